"""The metrics that clients report in training and in evaluation."""

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import (
    GLOBAL,
    METRICS,
    NODES,
    Make,
    Nodes,
    ask_nodes,
    assert_average,
    make_record,
    make_reply,
    reply_with_records,
)
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from snowball import defenses
from snowball.guard import AuditLog
from snowball.integrations.flower import Guarded, GuardedFedAvg

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.mark.parametrize("metrics", [{}, {"loss": [1.0, 2.0]}], ids=["none", "a list"])
def test_who_does_not_report_what_the_others_report_is_left_out(
    make: Make, metrics: dict[str, Any], audit: AuditLog
) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    first, *rest = ask_nodes(strategy)
    arrays, means = strategy.aggregate_train(
        1, [make_reply(first, **metrics), *(make_reply(m, loss=2.0) for m in rest)]
    )
    assert_average(arrays, NODES[1:])
    assert dict(means) == pytest.approx({"loss": 2.0})
    (entry,) = audit.read_entries()
    assert entry["dropped"][0]["detail"] == "its metrics lack ['loss'], as most report them"


EVALUATED: dict[str, Callable[[Message], Message]] = {
    "other metrics": lambda m: reply_with_records(m, metrics=MetricRecord({"num-examples": 3, "other": 1.0})),
    "no metrics": reply_with_records,
    "no examples": lambda m: reply_with_records(m, metrics=MetricRecord({"accuracy": 1.0})),
    "negative examples": lambda m: reply_with_records(m, metrics=MetricRecord({"num-examples": -20, "accuracy": 1.0})),
    "NaN examples": lambda m: reply_with_records(m, metrics=MetricRecord({"num-examples": math.nan, "accuracy": 1.0})),
    "a failure": lambda m: Message(Error(0, "gone"), reply_to=m),
}


@pytest.mark.parametrize("lie", EVALUATED.values(), ids=EVALUATED)
def test_a_hostile_reply_to_an_evaluation_is_left_out(make: Make, lie: Callable[[Message], Message]) -> None:
    strategy = make()
    first, *rest = strategy.configure_evaluate(1, make_record(GLOBAL), ConfigRecord(), Nodes())
    honest = [reply_with_records(m, metrics=MetricRecord({"num-examples": 2, "accuracy": 0.5})) for m in rest]
    assert dict(strategy.aggregate_evaluate(1, [lie(first), *honest])) == pytest.approx({"accuracy": 0.5})
    assert strategy.aggregate_evaluate(1, []) is None
    assert strategy.aggregate_evaluate(1, [lie(first)]) in (None, {}, {"other": 1.0})


def test_metrics_that_cannot_be_aggregated_do_not_cost_the_model(logged: pytest.LogCaptureFixture) -> None:
    def stumble(records: list[RecordDict], key: str) -> MetricRecord:
        raise ZeroDivisionError("no metrics today")

    strategy = GuardedFedAvg(defense=defenses.FedAvg(), train_metrics_aggr_fn=stumble, evaluate_metrics_aggr_fn=stumble)
    arrays, metrics = strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)))
    assert_average(arrays, NODES)
    assert metrics is None
    assert strategy.aggregate_evaluate(1, [reply_with_records(m, metrics=METRICS) for m in ask_nodes(strategy)]) is None
    assert logged.text.count("no metrics today") == 2
    held = Guarded(FedAvg(evaluate_metrics_aggr_fn=stumble))
    assert held.aggregate_evaluate(1, [reply_with_records(m, metrics=METRICS) for m in ask_nodes(held)]) is None

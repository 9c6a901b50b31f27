"""Strategies that `Guarded` can wrap, failing ones included."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import (
    GLOBAL,
    NODES,
    SHAPE,
    ask_nodes,
    make_record,
    make_reply,
    read_arrays,
    reply_with_nan,
    train_node,
)
from flwr.app import Message, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
    Strategy,
)
from flwr.serverapp.strategy import MultiKrum as FlowersMultiKrum

from snowball import defenses
from snowball.defenses import Snowball
from snowball.guard import AuditLog
from snowball.integrations.flower import Guarded, GuardedFedAvg
from snowball.integrations.flower.strategies import find_example_key

pytestmark = pytest.mark.usefixtures("runtime")

HELD: dict[str, Callable[[], Strategy]] = {
    "FedAdam": FedAdam,
    "FedAvgM": FedAvgM,
    "FedMedian": FedMedian,
    "FedTrimmedAvg": FedTrimmedAvg,
    "FedYogi": FedYogi,
    "MultiKrum": lambda: FlowersMultiKrum(num_malicious_nodes=1),
}


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
def test_other_strategies_can_be_held_and_get_what_they_would_get_alone(held: Callable[[], Strategy]) -> None:
    strategy, alone = Guarded(held(), defense=defenses.FedAvg()), held()
    for server_round in (1, 2):
        attacker, *rest = ask_nodes(strategy, server_round=server_round)
        ask_nodes(alone, server_round=server_round)
        replies = [make_reply(message, loss=1.0) for message in rest]
        arrays, metrics = strategy.aggregate_train(server_round, [reply_with_nan(attacker), *replies])
        expected, expected_metrics = alone.aggregate_train(server_round, replies)
        for name, values in read_arrays(expected).items():
            wanted = np.rint(values) if name == "counter" else values
            np.testing.assert_allclose(arrays[name].numpy(), wanted, atol=1e-6, rtol=1e-6)
        assert dict(metrics) == dict(expected_metrics)


def test_a_wrapper_can_be_held_and_its_strategys_key_is_found() -> None:
    inner = FedAvg(weighted_by_key="weight")
    private = DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 10.0, len(NODES))
    strategy = Guarded(private, defense=defenses.FedAvg())
    assert find_example_key(private) == find_example_key(strategy) == "weight"
    replies = [make_reply(message, weight=5) for message in ask_nodes(strategy)]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert np.isfinite(arrays["first"].numpy()).all()


def test_the_key_of_a_strategy_without_one_is_flowers_usual_one() -> None:
    assert find_example_key(object()) == "num-examples"


def test_the_strategys_attributes_are_the_wrappers() -> None:
    inner = FedAvg(fraction_train=0.5, weighted_by_key="weight")
    strategy = Guarded(inner)
    assert (strategy.fraction_train, strategy.weighted_by_key) == (0.5, "weight")
    assert len(ask_nodes(strategy)) == 4
    strategy.fraction_train = 1.0
    assert inner.fraction_train == 1.0
    assert len(ask_nodes(strategy)) == len(NODES)
    assert len(ask_nodes(GuardedFedAvg(fraction_train=0.5))) == 4
    with pytest.raises(AttributeError, match="absent"):
        strategy.absent  # noqa: B018
    assert copy.copy(strategy).strategy is inner


class Broken(FedAvg):
    """Returns or raises a given outcome."""

    def __init__(self, outcome: Any) -> None:
        super().__init__()
        self.outcome = outcome

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome, MetricRecord()


BROKEN = {
    "raises": (ValueError("no idea"), "no idea"),
    "gives nothing": (None, "no arrays"),
    "gives NaN": (make_record({**GLOBAL, "first": np.full(SHAPE, np.nan)}), "'first' holds NaN"),
    "gives NaN for a counter": (make_record({**GLOBAL, "counter": np.array(np.nan)}), "'counter' holds NaN"),
    "overflows": (make_record({**GLOBAL, "first": np.full(SHAPE, 1e300)}), "'first' holds NaN"),
    "gives another shape": (make_record({**GLOBAL, "first": np.ones(3)}), r"\(3,\), the model's is \(4, 5\)"),
    "gives other names": (make_record({"other": np.ones(3)}), "other"),
}


@pytest.mark.parametrize(("outcome", "said"), BROKEN.values(), ids=BROKEN)
def test_a_strategy_that_fails_keeps_the_old_model_and_the_audit_says_so(
    outcome: Any, said: str, audit: AuditLog
) -> None:
    strategy = Guarded(Broken(outcome), defense=Snowball(), audit=audit.path)
    assert strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy))) == (None, None)
    (entry,) = audit.read_entries()
    assert (entry["outcome"], entry["averaged"], entry["shares"]) == ("kept", [], {})
    assert entry["reason"].startswith("Broken failed: ")
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(entry["reason"])
    assert entry["model_before"] == entry["model_after"]
    assert strategy.guard.state is None
    strategy.outcome = make_record(train_node(1))
    arrays, _ = strategy.aggregate_train(2, map(make_reply, ask_nodes(strategy)))
    np.testing.assert_array_equal(arrays["first"].numpy(), train_node(1)["first"])
    assert strategy.guard.state is not None

"""Replies that differ from the majority only in form are normalised before the strategy sees them."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import (
    GLOBAL,
    NODES,
    Make,
    ask_nodes,
    assert_average,
    compute_average,
    make_guarded,
    make_record,
    make_reply,
    reply_with_arrays,
    reply_with_examples,
    reply_with_records,
    train_node,
)
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from snowball import defenses
from snowball.integrations.flower import Guarded

pytestmark = pytest.mark.usefixtures("runtime")

ODD: dict[str, Callable[[Message], Message]] = {
    "arrays in another order": lambda m: make_reply(m, dict(reversed(train_node(1).items()))),
    "float64": lambda m: reply_with_arrays(m, first=train_node(1)["first"].astype(np.float64)),
    "small integers for the counter": lambda m: reply_with_arrays(m, counter=train_node(1)["counter"].astype(np.int16)),
    "records by other names": lambda m: reply_with_records(
        m, a=make_record(train_node(1)), b=MetricRecord({"num-examples": 11})
    ),
    "names changed over": lambda m: reply_with_records(
        m, metrics=make_record(train_node(1)), arrays=MetricRecord({"num-examples": 11})
    ),
    "a record more": lambda m: reply_with_records(
        m, x=make_record(train_node(1)), arrays=ConfigRecord({"a": "b"}), metrics=MetricRecord({"num-examples": 11})
    ),
    "a metric more": lambda m: make_reply(m, odd=1.0),
    "examples as a fraction": lambda m: reply_with_examples(m, 11.0),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_reply_that_can_be_read_costs_nobody_the_round(make: Make, odd: Callable[[Message], Message]) -> None:
    strategy = make(defense=defenses.FedAvg())
    first, *rest = ask_nodes(strategy)
    arrays, metrics = strategy.aggregate_train(1, [odd(first), *map(make_reply, rest)])
    assert_average(arrays, NODES)
    assert metrics == {}


def test_a_coarse_type_is_not_passed_on_to_the_others(make: Make) -> None:
    strategy = make(defense=defenses.FedAvg())
    first, *rest = ask_nodes(strategy)
    coarse = reply_with_arrays(first, first=train_node(1)["first"].astype(np.float16))
    arrays, _ = strategy.aggregate_train(1, [coarse, *map(make_reply, rest)])
    assert arrays["first"].numpy().dtype == np.float32
    np.testing.assert_allclose(arrays["first"].numpy(), compute_average(NODES, "first"), atol=1e-4)
    assert (arrays["first"].numpy().astype(np.float16) != arrays["first"].numpy()).any()


def test_the_messages_that_came_are_left_as_they_are() -> None:
    strategy = make_guarded(defense=defenses.FedAvg())
    replies = [make_reply(message, odd=1.0) for message in ask_nodes(strategy)]
    before = copy.deepcopy([dict(reply.content["metrics"]) for reply in replies])
    strategy.aggregate_train(1, replies)
    assert [dict(reply.content["metrics"]) for reply in replies] == before


def test_what_reaches_the_strategy_has_the_models_order_types_and_the_usual_metrics() -> None:
    """Flower's privacy wrappers and its Krum rely on the order of arrays."""

    class Spy(FedAvg):
        """Stores the replies that it receives."""

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            self.seen = [reply.content for reply in replies]
            return super().aggregate_train(server_round, self.replies)

    strategy = Guarded(Spy(), defense=defenses.FedAvg())
    first, *rest = ask_nodes(strategy)
    strategy.replies = [make_reply(message, loss=1.0) for message in rest]
    strange = dict(reversed([(name, values.astype(np.float64)) for name, values in train_node(1).items()]))
    strange["counter"] = strange["counter"].astype(np.int64)
    strategy.aggregate_train(1, [make_reply(first, strange, loss=1.0, more=[1, 2]), *strategy.replies])
    assert len(strategy.seen) == len(NODES)
    for content in strategy.seen:
        assert set(content) == {"arrays", "metrics"}
        assert [(name, array.numpy().dtype) for name, array in content["arrays"].items()] == [
            (name, values.dtype) for name, values in GLOBAL.items()
        ]
        assert set(content["metrics"]) == {"num-examples", "loss"}

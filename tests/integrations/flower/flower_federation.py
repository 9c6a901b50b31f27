"""A small federation on real messages of Flower's, without a runtime: who is asked, and what clients answer."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from snowball.integrations.flower import Guarded, GuardedFedAvg
from snowball.rng import numpy_stream

NODES = range(1, 9)
GLOBAL = {
    "first": np.ones((4, 5), np.float32),
    "last": np.zeros((3, 4), np.float32),
    "counter": np.array(7),
}
SHAPE = GLOBAL["first"].shape
State = dict[str, np.ndarray]
Make = Callable[..., Any]


class Nodes:
    """As much of a grid as a strategy asks for; its clients answer at once."""

    def __init__(self, answers: Callable[[Message], Message | None] | None = None) -> None:
        self.answers = answers

    def get_node_ids(self) -> list[int]:
        return list(NODES)

    def send_and_receive(self, messages: Iterable[Message], timeout: float) -> list[Message]:
        assert self.answers is not None
        return [reply for message in messages if (reply := self.answers(message)) is not None]


def wrapped(**settings: Any) -> Guarded:
    return Guarded(FedAvg(), **settings)


STRATEGIES: dict[str, Make] = {"Guarded": wrapped, "GuardedFedAvg": GuardedFedAvg}


def record(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in state.items()})


def numbers(arrays: ArrayRecord) -> State:
    return {name: array.numpy() for name, array in arrays.items()}


def asked(strategy: Any, state: State = GLOBAL, server_round: int = 1) -> list[Message]:
    """The messages of a round, by node."""
    messages = strategy.configure_train(server_round, record(state), ConfigRecord(), Nodes())
    return sorted(messages, key=lambda message: message.metadata.dst_node_id)


def trained(node: int, move: float = 0.5) -> State:
    """Everybody moves the same way, a little differently."""
    rng = numpy_stream(0, "client", node)
    return {
        name: values + np.float32(move) + rng.normal(0, 0.05, values.shape).astype(np.float32)
        if values.ndim
        else values + node
        for name, values in GLOBAL.items()
    }


def answer(message: Message, state: State | None = None, **metrics: Any) -> Message:
    node = message.metadata.dst_node_id
    content = {
        "arrays": record(trained(node) if state is None else state),
        "metrics": MetricRecord({"num-examples": 10 + node, **metrics}),
    }
    return Message(RecordDict(content), reply_to=message)


def counted(message: Message, examples: Any) -> Message:
    return answer(message, **{"num-examples": examples})


def changed(message: Message, **arrays: np.ndarray) -> Message:
    return answer(message, {**trained(message.metadata.dst_node_id), **arrays})


def with_nan(message: Message) -> Message:
    """A reply one of whose numbers is none."""
    return changed(message, first=half(np.nan))


def half(value: float) -> np.ndarray:
    """An array of the model's numbers, one of them another."""
    values = np.ones(SHAPE, np.float32)
    values.flat[0] = value
    return values


def with_content(message: Message, **records: Any) -> Message:
    return Message(RecordDict(records), reply_to=message)


def bytes_for(message: Message, data: bytes) -> Message:
    reply = answer(message)
    reply.content["arrays"]["first"].data = data
    return reply


def average(nodes: Iterable[int], name: str) -> np.ndarray:
    nodes = list(nodes)
    return np.average([trained(node)[name] for node in nodes], axis=0, weights=[10 + node for node in nodes])


def is_average(arrays: ArrayRecord | None, nodes: Iterable[int]) -> None:
    assert arrays is not None
    assert list(arrays) == list(GLOBAL)
    for name in ("first", "last"):
        assert arrays[name].numpy().dtype == np.float32
        np.testing.assert_allclose(arrays[name].numpy(), average(nodes, name), atol=1e-6, rtol=1e-6)


ARRAYS, METRICS = record(GLOBAL), MetricRecord({"num-examples": 11})

"""A small federation with real Flower messages but no runtime."""

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
    """The part of a grid that strategies use; its clients answer at once."""

    def __init__(self, answers: Callable[[Message], Message | None] | None = None) -> None:
        self.answers = answers

    def get_node_ids(self) -> list[int]:
        return list(NODES)

    def send_and_receive(self, messages: Iterable[Message], timeout: float) -> list[Message]:
        assert self.answers is not None
        return [reply for message in messages if (reply := self.answers(message)) is not None]


def make_guarded(**settings: Any) -> Guarded:
    return Guarded(FedAvg(), **settings)


STRATEGIES: dict[str, Make] = {"Guarded": make_guarded, "GuardedFedAvg": GuardedFedAvg}


def make_record(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in state.items()})


def read_arrays(arrays: ArrayRecord) -> State:
    return {name: array.numpy() for name, array in arrays.items()}


def ask_nodes(strategy: Any, state: State = GLOBAL, server_round: int = 1) -> list[Message]:
    """Return the messages of a round, by node."""
    messages = strategy.configure_train(server_round, make_record(state), ConfigRecord(), Nodes())
    return sorted(messages, key=lambda message: message.metadata.dst_node_id)


def train_node(node: int, move: float = 0.5) -> State:
    """Return a node's arrays: all nodes move in about the same direction."""
    rng = numpy_stream(0, "client", node)
    return {
        name: values + np.float32(move) + rng.normal(0, 0.05, values.shape).astype(np.float32)
        if values.ndim
        else values + node
        for name, values in GLOBAL.items()
    }


def make_reply(message: Message, state: State | None = None, **metrics: Any) -> Message:
    node = message.metadata.dst_node_id
    content = {
        "arrays": make_record(train_node(node) if state is None else state),
        "metrics": MetricRecord({"num-examples": 10 + node, **metrics}),
    }
    return Message(RecordDict(content), reply_to=message)


def reply_with_examples(message: Message, examples: Any) -> Message:
    return make_reply(message, **{"num-examples": examples})


def reply_with_arrays(message: Message, **arrays: np.ndarray) -> Message:
    return make_reply(message, {**train_node(message.metadata.dst_node_id), **arrays})


def reply_with_nan(message: Message) -> Message:
    """Return a reply with one NaN."""
    return reply_with_arrays(message, first=make_array_with(np.nan))


def make_array_with(value: float) -> np.ndarray:
    """Return an array of the model with one other number."""
    values = np.ones(SHAPE, np.float32)
    values.flat[0] = value
    return values


def reply_with_records(message: Message, **records: Any) -> Message:
    return Message(RecordDict(records), reply_to=message)


def reply_with_bytes(message: Message, data: bytes) -> Message:
    reply = make_reply(message)
    reply.content["arrays"]["first"].data = data
    return reply


def compute_average(nodes: Iterable[int], name: str) -> np.ndarray:
    nodes = list(nodes)
    return np.average([train_node(node)[name] for node in nodes], axis=0, weights=[10 + node for node in nodes])


def assert_average(arrays: ArrayRecord | None, nodes: Iterable[int]) -> None:
    assert arrays is not None
    assert list(arrays) == list(GLOBAL)
    for name in ("first", "last"):
        assert arrays[name].numpy().dtype == np.float32
        np.testing.assert_allclose(arrays[name].numpy(), compute_average(nodes, name), atol=1e-6, rtol=1e-6)


ARRAYS, METRICS = make_record(GLOBAL), MetricRecord({"num-examples": 11})

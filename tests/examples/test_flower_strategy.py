import logging
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from snowball.defenses import Context, Snowball, Verdict
from snowball.errors import SettingError
from snowball.rng import numpy_stream
from snowball.updates import Updates

flwr = pytest.importorskip("flwr", reason="the Flower example needs flwr >= 1.41, which is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

NODES, HOSTILE = range(1, 9), {3, 6}
GLOBAL = {
    "first": np.ones((4, 5), np.float32),
    "last": np.zeros((3, 4), np.float32),
    "counter": np.array(7),
}
State = dict[str, np.ndarray]


class Nodes:
    """As much of a Grid as FedAvg asks for."""

    def get_node_ids(self) -> list[int]:
        return list(NODES)


@pytest.fixture(autouse=True)
def _runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can only be made inside a task: pretend to be the server's."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "flower_strategy.py"
    spec = spec_from_file_location("flower_strategy", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(state: State) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in state.items()})


def asked(strategy: Any, state: State = GLOBAL, server_round: int = 1) -> list[Message]:
    """The messages of a round, by node."""
    messages = strategy.configure_train(server_round, record(state), ConfigRecord(), Nodes())
    return sorted(messages, key=lambda message: message.metadata.dst_node_id)


def trained(node: int) -> State:
    """The benign move a little one way, the hostile together far the other way."""
    rng = numpy_stream(0, "client", node)
    move = -3.0 if node in HOSTILE else 0.5
    return {
        name: values + np.float32(move) + rng.normal(0, 0.05, values.shape).astype(np.float32)
        if values.ndim
        else values + 1
        for name, values in GLOBAL.items()
    }


def answer(message: Message, state: State | None = None, **metrics: Any) -> Message:
    node = message.metadata.dst_node_id
    content = {
        "arrays": record(trained(node) if state is None else state),
        "metrics": MetricRecord({"num-examples": 10 * node, **metrics}),
    }
    return Message(RecordDict(content), reply_to=message)


def average(nodes: list[int], name: str) -> np.ndarray:
    return np.average([trained(node)[name] for node in nodes], axis=0, weights=[10 * node for node in nodes])


def elected(logged: pytest.LogCaptureFixture) -> list[int]:
    line = next(text for text in reversed(logged.messages) if text.startswith("Elected"))
    return [int(node) for node in line.partition("nodes ")[2].split(", ")]


def test_the_strategy_averages_the_elected_alone(example: ModuleType, logged: pytest.LogCaptureFixture) -> None:
    strategy = example.ElectedFedAvg(Snowball(grow_after=0))
    arrays, metrics = strategy.aggregate_train(1, [answer(message, loss=1.0) for message in asked(strategy)])
    nodes = elected(logged)
    assert len(nodes) == 4
    assert not HOSTILE & set(nodes)
    for name in GLOBAL:
        np.testing.assert_allclose(arrays[name].numpy(), average(nodes, name), rtol=1e-5)
    assert metrics["loss"] == pytest.approx(1.0)


def test_without_the_election_the_hostile_would_move_the_average(example: ModuleType) -> None:
    strategy = example.ElectedFedAvg(Snowball(grow_after=0))
    replies = [answer(message) for message in asked(strategy)]
    arrays, _ = strategy.aggregate_train(1, replies)
    undefended, _ = super(example.ElectedFedAvg, strategy).aggregate_train(1, replies)
    assert arrays["first"].numpy().mean() == pytest.approx(1.5, abs=0.05)
    assert undefended["first"].numpy().mean() < 1


def test_the_election_keeps_its_state_and_grows_later(example: ModuleType, logged: pytest.LogCaptureFixture) -> None:
    strategy = example.ElectedFedAvg(Snowball(grow_after=1))
    sizes = []
    for server_round in (1, 2):
        messages = asked(strategy, server_round=server_round)
        strategy.aggregate_train(server_round, (answer(message) for message in messages))
        sizes.append(len(elected(logged)))
    assert sizes == [1, 4]
    assert strategy.state is not None
    assert strategy.state["clusters"] >= 3


def test_the_defense_sees_what_each_node_changed(example: ModuleType) -> None:
    seen: list[tuple[Updates, Context]] = []

    def first_two(updates: Updates, context: Context) -> Verdict:
        seen.append((updates, context))
        return Verdict(updates.values[0], torch.arange(len(updates)) < 2, state={"seen": len(seen)})

    strategy = example.ElectedFedAvg(first_two)
    for server_round in (1, 2):
        messages = asked(strategy, {name: values * server_round for name, values in GLOBAL.items()}, server_round)
        arrays, _ = strategy.aggregate_train(server_round, map(answer, messages))
        np.testing.assert_allclose(arrays["first"].numpy(), average([1, 2], "first"), rtol=1e-5)
    updates, context = seen[1]
    assert updates.clients == tuple(map(str, NODES))
    assert updates.examples.tolist() == [10 * node for node in NODES]
    for row, node in zip(updates.values, NODES, strict=True):
        change = updates.layout.split(row)["first"]
        np.testing.assert_allclose(change, trained(node)["first"] - 2 * GLOBAL["first"], rtol=1e-5)
    assert (context.round, context.state) == (2, {"seen": 1})


def test_failures_are_left_to_the_strategy(example: ModuleType, logged: pytest.LogCaptureFixture) -> None:
    strategy = example.ElectedFedAvg(Snowball(grow_after=0))
    lost, *rest = asked(strategy)
    failure = Message(Error(0, "out of memory"), reply_to=lost)
    arrays, _ = strategy.aggregate_train(1, [failure, *(answer(message) for message in rest)])
    assert arrays is not None
    assert not {1, *HOSTILE} & set(elected(logged))
    assert "out of memory" in logged.text


def test_only_failures_or_silence_keep_the_old_model(example: ModuleType) -> None:
    strategy = example.ElectedFedAvg()
    failures = [Message(Error(0, "gone"), reply_to=message) for message in asked(strategy)]
    assert strategy.aggregate_train(1, failures) == (None, None)
    assert strategy.aggregate_train(1, []) == (None, None)


def without(name: str, state: State) -> State:
    return {key: values for key, values in state.items() if key != name}


def with_content(message: Message, **records: Any) -> Message:
    return Message(RecordDict(records), reply_to=message)


def lying(message: Message) -> Message:
    reply = answer(message)
    reply.content["arrays"]["first"].data = b"no array"
    return reply


MALFORMED: dict[str, Callable[[Message], Message]] = {
    "other name": lambda message: answer(message, {"other": GLOBAL["first"]}),
    "one too many": lambda message: answer(message, {**GLOBAL, "extra": GLOBAL["first"]}),
    "no counter": lambda message: answer(message, without("counter", GLOBAL)),
    "counter of another shape": lambda message: answer(message, {**GLOBAL, "counter": np.zeros(3, int)}),
    "another shape": lambda message: answer(message, {**GLOBAL, "first": np.ones((5, 4), np.float32)}),
    "NaN": lambda message: answer(message, {**GLOBAL, "first": np.full((4, 5), np.nan, np.float32)}),
    "text": lambda message: answer(message, {**GLOBAL, "first": np.full((4, 5), "1")}),
    "complex": lambda message: answer(message, {**GLOBAL, "first": np.full((4, 5), 1j)}),
    "not an array": lying,
    "negative examples": lambda message: answer(message, **{"num-examples": -150}),
    "infinite examples": lambda message: answer(message, **{"num-examples": float("inf")}),
    "a list of examples": lambda message: answer(message, **{"num-examples": [1, 2]}),
    "no examples": lambda message: with_content(message, arrays=record(GLOBAL), metrics=MetricRecord({"loss": 1.0})),
    "two records of arrays": lambda message: with_content(
        message, arrays=record(GLOBAL), more=record(GLOBAL), metrics=MetricRecord({"num-examples": 1})
    ),
    "no metrics": lambda message: with_content(message, arrays=record(GLOBAL)),
    "no arrays": lambda message: with_content(message, metrics=MetricRecord({"num-examples": 1})),
    "nothing": with_content,
    "the same twice": lambda message: answer(message_to(1)),
}


def message_to(node: int) -> Message:
    return Message(RecordDict(), dst_node_id=node, message_type="train")


@pytest.fixture(params=MALFORMED)
def malformed(request: pytest.FixtureRequest) -> Callable[[Message], Message]:
    return MALFORMED[request.param]


def test_a_malformed_reply_keeps_the_old_model(
    example: ModuleType, malformed: Callable[[Message], Message], logged: pytest.LogCaptureFixture
) -> None:
    strategy = example.ElectedFedAvg()
    *rest, last = asked(strategy)
    replies = [*(answer(message) for message in rest), malformed(last)]
    assert strategy.aggregate_train(1, replies) == (None, None)
    assert any(text.startswith("Round 1 keeps the old global model: ") for text in logged.messages)


def test_odd_metrics_of_an_elected_client_do_not_end_the_run(example: ModuleType) -> None:
    strategy = example.ElectedFedAvg(Snowball(grow_after=0, target_share=1.0))
    *rest, last = asked(strategy)
    assert strategy.aggregate_train(1, [*map(answer, rest), answer(last, odd=1)]) == (None, None)


def test_a_wrong_setting_is_the_operators_to_fix(example: ModuleType) -> None:
    strategy = example.ElectedFedAvg(Snowball(layers=("absent",)))
    messages = asked(strategy)
    with pytest.raises(SettingError, match="absent"):
        strategy.aggregate_train(1, map(answer, messages))


def test_the_strategys_own_settings_still_apply(example: ModuleType) -> None:
    assert len(asked(example.ElectedFedAvg(fraction_train=0.5))) == 4

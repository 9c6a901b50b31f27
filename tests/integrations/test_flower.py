"""Guarded strategies on real messages of Flower's, without a runtime."""

import copy
import io
import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
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
from flwr.supercore.task_identity import TaskIdentity

from snowball import defenses
from snowball.defenses import Context, Flame, Median, MultiKrum, Rlr, Snowball, Verdict
from snowball.errors import RunError, SettingError, UpdateError
from snowball.guard import AuditLog, Guard, Reply
from snowball.integrations.flower import Guarded, GuardedFedAvg, example_key
from snowball.rng import numpy_stream
from snowball.updates import Updates

NODES = range(1, 9)
GLOBAL = {
    "first": np.ones((4, 5), np.float32),
    "last": np.zeros((3, 4), np.float32),
    "counter": np.array(7),
}
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


def wrapped(**settings: Any) -> Guarded:
    return Guarded(FedAvg(), **settings)


@pytest.fixture(params=[wrapped, GuardedFedAvg], ids=["Guarded", "GuardedFedAvg"])
def make(request: pytest.FixtureRequest) -> Make:
    """Either guarded strategy, by its guard's settings."""
    return request.param


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")


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


def archive() -> bytes:
    with io.BytesIO() as file:
        np.savez(file, first=GLOBAL["first"])
        return file.getvalue()


def half(shape: tuple[int, ...], value: float) -> np.ndarray:
    """An array of the model's numbers, one of them another."""
    values = np.ones(shape, np.float32)
    values.flat[0] = value
    return values


ARRAYS, METRICS = record(GLOBAL), MetricRecord({"num-examples": 11})
SHAPE = GLOBAL["first"].shape
HUGE_HEADER = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(128)

HOSTILE: dict[str, tuple[str, Callable[[Message], Message]]] = {
    "other keys": ("names", lambda m: answer(m, {"other": GLOBAL["first"]})),
    "one too many": ("names", lambda m: changed(m, extra=GLOBAL["first"])),
    "one too few": ("names", lambda m: answer(m, {"first": GLOBAL["first"], "last": GLOBAL["last"]})),
    "another shape": ("shape", lambda m: changed(m, first=np.ones((5, 4), np.float32))),
    "another shape that broadcasts": ("shape", lambda m: changed(m, first=np.ones((1, 5), np.float32))),
    "zero length": ("shape", lambda m: changed(m, first=np.ones((0, 5), np.float32))),
    "counter of another shape": ("shape", lambda m: changed(m, counter=np.zeros(3, int))),
    "NaN": ("not-finite", lambda m: changed(m, first=half(SHAPE, np.nan))),
    "infinity": ("not-finite", lambda m: changed(m, first=half(SHAPE, np.inf))),
    "too large for the type": ("not-finite", lambda m: changed(m, first=np.full(SHAPE, 1e300))),
    "weights of 1e30": ("norm", lambda m: changed(m, first=np.full(SHAPE, 1e30, np.float32))),
    "a counter that leaps": ("range", lambda m: changed(m, counter=np.array(2**62))),
    "a fractional counter": ("dtype", lambda m: changed(m, counter=np.array(7.5))),
    "text": ("dtype", lambda m: changed(m, first=np.full(SHAPE, "1"))),
    "complex": ("dtype", lambda m: changed(m, first=np.full(SHAPE, 1j))),
    "no array": ("error", lambda m: bytes_for(m, b"no array")),
    "nothing for an array": ("error", lambda m: bytes_for(m, b"")),
    "an archive": ("error", lambda m: bytes_for(m, archive())),
    "a pickle": ("error", lambda m: bytes_for(m, b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00]\x94K\x01a.")),
    "a terabyte announced": ("error", lambda m: bytes_for(m, HUGE_HEADER)),
    "no examples": ("examples", lambda m: counted(m, 0)),
    "negative examples": ("examples", lambda m: counted(m, -3)),
    "1e12 examples": ("examples", lambda m: counted(m, 10**12)),
    "NaN examples": ("examples", lambda m: counted(m, math.nan)),
    "infinitely many examples": ("examples", lambda m: counted(m, math.inf)),
    "a list of examples": ("examples", lambda m: counted(m, [1, 2])),
    "no number of examples": ("examples", lambda m: with_content(m, arrays=ARRAYS, metrics=MetricRecord({"x": 1}))),
    "two records of arrays": ("error", lambda m: with_content(m, arrays=ARRAYS, more=ARRAYS, metrics=METRICS)),
    "two records of metrics": ("error", lambda m: with_content(m, arrays=ARRAYS, more=METRICS, metrics=METRICS)),
    "no metrics": ("error", lambda m: with_content(m, arrays=ARRAYS)),
    "no arrays": ("error", lambda m: with_content(m, metrics=METRICS)),
    "an empty record of arrays": ("names", lambda m: with_content(m, arrays=ArrayRecord(), metrics=METRICS)),
    "nothing": ("error", with_content),
    "a failure": ("error", lambda m: Message(Error(0, "out of memory"), reply_to=m)),
    "a failure without a word": ("error", lambda m: Message(Error(5), reply_to=m)),
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> tuple[str, Callable[[Message], Message]]:
    return HOSTILE[request.param]


def test_with_fedavg_for_defense_the_model_is_flowers_own(make: Make) -> None:
    strategy, plain = make(defense=defenses.FedAvg()), FedAvg()
    replies = [answer(message, loss=message.metadata.dst_node_id) for message in asked(strategy)]
    arrays, metrics = strategy.aggregate_train(1, replies)
    expected, expected_metrics = plain.aggregate_train(1, replies)
    for name in ("first", "last"):
        np.testing.assert_allclose(arrays[name].numpy(), expected[name].numpy(), atol=1e-6, rtol=1e-6)
    assert dict(metrics) == pytest.approx(dict(expected_metrics))


def test_types_and_order_are_the_models_and_counters_stay_counters(make: Make) -> None:
    strategy = make(defense=defenses.FedAvg())
    arrays, _ = strategy.aggregate_train(1, map(answer, asked(strategy)))
    assert [array.numpy().dtype for array in arrays.values()] == [np.float32, np.float32, np.int64]
    highest, mean = 7 + max(NODES), round(float(average(NODES, "counter")))
    assert arrays["counter"].numpy() == (highest if make is GuardedFedAvg else mean)


def test_a_hostile_reply_neither_ends_the_run_nor_gets_in(
    make: Make, hostile: tuple[str, Callable[[Message], Message]], audit: AuditLog
) -> None:
    reason, lie = hostile
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    attacker, *rest = asked(strategy)
    arrays, metrics = strategy.aggregate_train(1, [lie(attacker), *map(answer, rest)])
    is_average(arrays, NODES[1:])
    assert metrics is not None
    following, _ = strategy.aggregate_train(2, map(answer, asked(strategy, server_round=2)))
    is_average(following, NODES)
    first, second = audit.entries()
    assert [(fault["client"], fault["reason"]) for fault in first["dropped"]] == [("1", reason)]
    assert first["averaged"] == [str(node) for node in NODES[1:]]
    assert (first["outcome"], second["outcome"], second["dropped"]) == ("aggregated", "aggregated", [])


def test_stock_fedavg_falls_for_some_of_these() -> None:
    """Otherwise there would be nothing to guard against."""
    for name in ("other keys", "another shape", "no metrics"):
        with pytest.raises(Exception):  # noqa: B017, PT011
            FedAvg().aggregate_train(1, [*map(answer, asked(FedAvg())[1:]), HOSTILE[name][1](asked(FedAvg())[0])])
    arrays, _ = FedAvg().aggregate_train(1, [HOSTILE["NaN"][1](asked(FedAvg())[0]), answer(asked(FedAvg())[1])])
    assert not np.isfinite(arrays["first"].numpy()).all()


def test_who_answers_twice_counts_once_and_who_was_not_asked_not_at_all(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    first, *rest = asked(strategy)
    stranger = Message(RecordDict(), dst_node_id=99, message_type="train")
    again = changed(first, first=np.full(SHAPE, -1, np.float32))
    replies = [answer(first), again, *map(answer, rest), answer(stranger, trained(3))]
    arrays, _ = strategy.aggregate_train(1, replies)
    is_average(arrays, NODES)
    (entry,) = audit.entries()
    assert {(fault["client"], fault["reason"]) for fault in entry["dropped"]} == {
        ("1", "duplicate"),
        ("99", "not-asked"),
    }


def test_whatever_comes_the_audit_names_the_failed_and_the_silent(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    failing, silent, *rest = asked(strategy)
    arrays, _ = strategy.aggregate_train(1, [Message(Error(0, "no disk"), reply_to=failing), *map(answer, rest)])
    is_average(arrays, NODES[2:])
    (entry,) = audit.entries()
    assert sorted(entry["asked"]) == [str(node) for node in NODES]
    assert entry["dropped"] == [{"client": "1", "reason": "error", "detail": "no disk"}]
    assert entry["silent"] == [str(silent.metadata.dst_node_id)]


def test_where_flower_speaks_for_a_node_that_is_gone_the_audit_names_the_node(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    gone, *rest = messages = asked(strategy)
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"message {number}"  # as a grid does when it sends them
    notice = Message(Error(5, "Node Unavailable"), reply_to=gone)
    notice.metadata.__dict__["_src_node_id"] = 2**60  # the SuperLink's own
    arrays, _ = strategy.aggregate_train(1, [notice, *map(answer, rest)])
    is_average(arrays, NODES[1:])
    (entry,) = audit.entries()
    assert (entry["dropped"][0]["client"], entry["silent"]) == ("1", [])


def test_nobody_answers_in_the_name_of_another(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    honest, liar, *rest = messages = asked(strategy)
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"message {number}"
    lie = Message(Error(0, "it is not me"), reply_to=honest)
    lie.metadata.__dict__["_src_node_id"] = liar.metadata.dst_node_id
    strategy.aggregate_train(1, [lie, answer(honest), *map(answer, rest)])
    (entry,) = audit.entries()
    assert [fault["client"] for fault in entry["dropped"]] == ["2"]
    assert "1" in entry["averaged"]


def test_where_nobody_answers_or_all_fail_the_old_model_stays(make: Make, audit: AuditLog) -> None:
    strategy = make(audit=audit.path)
    messages = asked(strategy)
    assert strategy.aggregate_train(1, []) == (None, None)
    assert strategy.aggregate_train(2, [Message(Error(0, "gone"), reply_to=m) for m in messages]) == (None, None)
    for entry in audit.entries():
        assert entry["outcome"] == "kept"
        assert entry["model_before"] == entry["model_after"]


ODD: dict[str, Callable[[Message], Message]] = {
    "arrays in another order": lambda m: answer(m, dict(reversed(trained(1).items()))),
    "float64": lambda m: changed(m, first=trained(1)["first"].astype(np.float64)),
    "small integers for the counter": lambda m: changed(m, counter=trained(1)["counter"].astype(np.int16)),
    "records by other names": lambda m: with_content(m, a=record(trained(1)), b=MetricRecord({"num-examples": 11})),
    "names changed over": lambda m: with_content(
        m, metrics=record(trained(1)), arrays=MetricRecord({"num-examples": 11})
    ),
    "a record more": lambda m: with_content(
        m, x=record(trained(1)), arrays=ConfigRecord({"a": "b"}), metrics=MetricRecord({"num-examples": 11})
    ),
    "a metric more": lambda m: answer(m, odd=1.0),
    "examples as a fraction": lambda m: counted(m, 11.0),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_reply_that_can_be_read_costs_nobody_the_round(make: Make, odd: Callable[[Message], Message]) -> None:
    strategy = make(defense=defenses.FedAvg())
    first, *rest = asked(strategy)
    arrays, metrics = strategy.aggregate_train(1, [odd(first), *map(answer, rest)])
    is_average(arrays, NODES)
    assert metrics == {}


def test_a_coarse_type_is_not_passed_on_to_the_others(make: Make) -> None:
    strategy = make(defense=defenses.FedAvg())
    first, *rest = asked(strategy)
    coarse = changed(first, first=trained(1)["first"].astype(np.float16))
    arrays, _ = strategy.aggregate_train(1, [coarse, *map(answer, rest)])
    assert arrays["first"].numpy().dtype == np.float32
    np.testing.assert_allclose(arrays["first"].numpy(), average(NODES, "first"), atol=1e-4)
    assert (arrays["first"].numpy().astype(np.float16) != arrays["first"].numpy()).any()


@pytest.mark.parametrize("metrics", [{}, {"loss": [1.0, 2.0]}], ids=["none", "a list"])
def test_who_does_not_report_what_the_others_report_is_left_out(
    make: Make, metrics: dict[str, Any], audit: AuditLog
) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    first, *rest = asked(strategy)
    arrays, means = strategy.aggregate_train(1, [answer(first, **metrics), *(answer(m, loss=2.0) for m in rest)])
    is_average(arrays, NODES[1:])
    assert dict(means) == pytest.approx({"loss": 2.0})
    (entry,) = audit.entries()
    assert entry["dropped"][0]["detail"] == "its metrics lack ['loss'], as most report them"


def test_the_messages_that_came_are_left_as_they_are() -> None:
    strategy = wrapped(defense=defenses.FedAvg())
    replies = [answer(message, odd=1.0) for message in asked(strategy)]
    before = copy.deepcopy([dict(reply.content["metrics"]) for reply in replies])
    strategy.aggregate_train(1, replies)
    assert [dict(reply.content["metrics"]) for reply in replies] == before


def test_the_elected_alone_reach_the_strategy(audit: AuditLog) -> None:
    strategy = Guarded(FedAvg(), defense=MultiKrum(tolerate=2, elect=5), audit=audit.path)
    far, opposite, *rest = asked(strategy)
    replies = [answer(far, trained(1, -3.0)), answer(opposite, trained(2, -3.0)), *map(answer, rest)]
    arrays, _ = strategy.aggregate_train(1, replies)
    (entry,) = audit.entries()
    assert len(entry["elected"]) == 5
    assert {"1", "2"} <= set(entry["left_out"])
    is_average(arrays, [int(client) for client in entry["averaged"]])


def test_in_monitor_mode_everybody_sane_is_averaged_and_the_audit_says_who_would_not_be(audit: AuditLog) -> None:
    strategy = Guarded(FedAvg(), defense=MultiKrum(tolerate=2, elect=5), mode="monitor", audit=audit.path)
    first, *rest = asked(strategy)
    arrays, _ = strategy.aggregate_train(1, [HOSTILE["NaN"][1](first), *map(answer, rest)])
    is_average(arrays, NODES[1:])
    (entry,) = audit.entries()
    assert len(entry["left_out"]) == 2


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
        attacker, *rest = asked(strategy, server_round=server_round)
        asked(alone, server_round=server_round)
        replies = [answer(message, loss=1.0) for message in rest]
        arrays, metrics = strategy.aggregate_train(server_round, [HOSTILE["NaN"][1](attacker), *replies])
        expected, expected_metrics = alone.aggregate_train(server_round, replies)
        for name, values in numbers(expected).items():
            wanted = np.rint(values) if name == "counter" else values
            np.testing.assert_allclose(arrays[name].numpy(), wanted, atol=1e-6, rtol=1e-6)
        assert dict(metrics) == dict(expected_metrics)


def test_what_reaches_the_strategy_has_the_models_order_types_and_the_usual_metrics() -> None:
    """Flower's wrappers for privacy and its Krum go by the order of arrays."""

    class Spy(FedAvg):
        """Looks at what it gets."""

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            self.seen = [reply.content for reply in replies]
            return super().aggregate_train(server_round, self.replies)

    strategy = Guarded(Spy(), defense=defenses.FedAvg())
    first, *rest = asked(strategy)
    strategy.replies = [answer(message, loss=1.0) for message in rest]
    strange = dict(reversed([(name, values.astype(np.float64)) for name, values in trained(1).items()]))
    strange["counter"] = strange["counter"].astype(np.int64)
    strategy.aggregate_train(1, [answer(first, strange, loss=1.0, more=[1, 2]), *strategy.replies])
    assert len(strategy.seen) == len(NODES)
    for content in strategy.seen:
        assert set(content) == {"arrays", "metrics"}
        assert [(name, array.numpy().dtype) for name, array in content["arrays"].items()] == [
            (name, values.dtype) for name, values in GLOBAL.items()
        ]
        assert set(content["metrics"]) == {"num-examples", "loss"}


def test_a_wrapper_can_be_held_and_its_strategys_key_is_found() -> None:
    inner = FedAvg(weighted_by_key="weight")
    private = DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 10.0, len(NODES))
    strategy = Guarded(private, defense=defenses.FedAvg())
    assert example_key(private) == example_key(strategy) == "weight"
    replies = [answer(message, weight=5) for message in asked(strategy)]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert np.isfinite(arrays["first"].numpy()).all()


def test_the_key_of_a_strategy_without_one_is_flowers_usual_one() -> None:
    assert example_key(object()) == "num-examples"


class Broken(FedAvg):
    """Gives whatever it is told to."""

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
    "gives NaN": (record({**GLOBAL, "first": np.full(SHAPE, np.nan)}), "'first' holds NaN"),
    "gives NaN for a counter": (record({**GLOBAL, "counter": np.array(np.nan)}), "'counter' holds NaN"),
    "overflows": (record({**GLOBAL, "first": np.full(SHAPE, 1e300)}), "'first' holds NaN"),
    "gives another shape": (record({**GLOBAL, "first": np.ones(3)}), r"\(3,\), the model's is \(4, 5\)"),
    "gives other names": (record({"other": np.ones(3)}), "other"),
}


@pytest.mark.parametrize(("outcome", "said"), BROKEN.values(), ids=BROKEN)
def test_a_strategy_that_fails_keeps_the_old_model_and_the_audit_says_so(
    outcome: Any, said: str, audit: AuditLog
) -> None:
    strategy = Guarded(Broken(outcome), defense=Snowball(), audit=audit.path)
    assert strategy.aggregate_train(1, map(answer, asked(strategy))) == (None, None)
    (entry,) = audit.entries()
    assert (entry["outcome"], entry["averaged"]) == ("kept", [])
    assert entry["reason"].startswith("Broken failed: ")
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(entry["reason"])
    assert entry["model_before"] == entry["model_after"]
    assert strategy.guard.state is None
    strategy.outcome = record(trained(1))
    arrays, _ = strategy.aggregate_train(2, map(answer, asked(strategy)))
    np.testing.assert_array_equal(arrays["first"].numpy(), trained(1)["first"])
    assert strategy.guard.state is not None


@pytest.mark.parametrize("defense", [Median(), Flame(), Rlr(), Snowball()], ids=lambda defense: type(defense).__name__)
def test_guarded_fedavg_gives_the_defenses_own_aggregate(defense: Any) -> None:
    strategy, guard = GuardedFedAvg(defense=defense, seed=3, rounds=10), Guard(defense, seed=3, rounds=10)
    replies = list(map(answer, asked(strategy)))
    arrays, metrics = strategy.aggregate_train(1, replies)
    expected = guard(GLOBAL, [Reply(str(node), 10 + node, trained(node)) for node in NODES])
    for name, values in expected.tensors.items():
        np.testing.assert_array_equal(arrays[name].numpy(), values.numpy())
    assert metrics == {}


def test_state_survives_a_restart(make: Make, tmp_path: Path) -> None:
    def strategy(file: str, seed: int | None = None) -> Any:
        return make(defense=Snowball(grow_after=1), state=tmp_path / file, audit=tmp_path / f"{file}.jsonl", seed=seed)

    through = strategy("through", seed=7)
    for server_round in (1, 2, 3):
        through.aggregate_train(server_round, map(answer, asked(through)))
    for server_round in (1, 2, 3):
        anew = strategy("anew", seed=7 if server_round == 1 else None)
        anew.aggregate_train(1, map(answer, asked(anew)))
    ends = [next(reversed(list(AuditLog(tmp_path / f"{name}.jsonl").entries()))) for name in ("through", "anew")]
    for entry in ends:
        assert entry["round"] == 3
    assert ends[0]["elected"] == ends[1]["elected"]
    assert ends[0]["model_after"] == ends[1]["model_after"]
    assert anew.guard.seed == 7
    assert anew.guard.state == through.guard.state is not None


def test_a_state_that_is_none_is_refused_before_anything_runs(make: Make, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"something else")
    with pytest.raises(RunError, match="not the state of a guard"):
        make(state=tmp_path / "state")


def test_a_guard_and_settings_of_a_guard_contradict_each_other(make: Make) -> None:
    with pytest.raises(SettingError, match="min_elected and a guard are given"):
        make(guard=Guard(), min_elected=2)
    guard = Guard()
    assert make(guard=guard).guard is guard


def test_a_setting_that_nobody_has_is_refused(make: Make) -> None:
    with pytest.raises(TypeError, match="min_elect"):
        make(min_elect=2)


def test_the_strategys_attributes_are_the_wrappers() -> None:
    inner = FedAvg(fraction_train=0.5, weighted_by_key="weight")
    strategy = Guarded(inner)
    assert (strategy.fraction_train, strategy.weighted_by_key) == (0.5, "weight")
    assert len(asked(strategy)) == 4
    strategy.fraction_train = 1.0
    assert inner.fraction_train == 1.0
    assert len(asked(strategy)) == len(NODES)
    assert len(asked(GuardedFedAvg(fraction_train=0.5))) == 4
    with pytest.raises(AttributeError, match="absent"):
        strategy.absent  # noqa: B018
    assert copy.copy(strategy).strategy is inner


def test_before_the_first_configuration_there_is_nothing_to_judge_by(make: Make) -> None:
    with pytest.raises(UpdateError, match="after configure_train"):
        make().aggregate_train(1, [])


EVALUATED: dict[str, Callable[[Message], Message]] = {
    "other metrics": lambda m: with_content(m, metrics=MetricRecord({"num-examples": 3, "other": 1.0})),
    "no metrics": with_content,
    "no examples": lambda m: with_content(m, metrics=MetricRecord({"accuracy": 1.0})),
    "negative examples": lambda m: with_content(m, metrics=MetricRecord({"num-examples": -20, "accuracy": 1.0})),
    "NaN examples": lambda m: with_content(m, metrics=MetricRecord({"num-examples": math.nan, "accuracy": 1.0})),
    "a failure": lambda m: Message(Error(0, "gone"), reply_to=m),
}


@pytest.mark.parametrize("lie", EVALUATED.values(), ids=EVALUATED)
def test_a_hostile_reply_to_an_evaluation_is_left_out(make: Make, lie: Callable[[Message], Message]) -> None:
    strategy = make()
    first, *rest = strategy.configure_evaluate(1, record(GLOBAL), ConfigRecord(), Nodes())
    honest = [with_content(m, metrics=MetricRecord({"num-examples": 2, "accuracy": 0.5})) for m in rest]
    assert dict(strategy.aggregate_evaluate(1, [lie(first), *honest])) == pytest.approx({"accuracy": 0.5})
    assert strategy.aggregate_evaluate(1, []) is None
    assert strategy.aggregate_evaluate(1, [lie(first)]) in (None, {}, {"other": 1.0})


def test_metrics_that_cannot_be_aggregated_do_not_cost_the_model(logged: pytest.LogCaptureFixture) -> None:
    def stumble(records: list[RecordDict], key: str) -> MetricRecord:
        raise ZeroDivisionError("no metrics today")

    strategy = GuardedFedAvg(defense=defenses.FedAvg(), train_metrics_aggr_fn=stumble, evaluate_metrics_aggr_fn=stumble)
    arrays, metrics = strategy.aggregate_train(1, map(answer, asked(strategy)))
    is_average(arrays, NODES)
    assert metrics is None
    assert strategy.aggregate_evaluate(1, [with_content(m, metrics=METRICS) for m in asked(strategy)]) is None
    assert logged.text.count("no metrics today") == 2
    held = Guarded(FedAvg(evaluate_metrics_aggr_fn=stumble))
    assert held.aggregate_evaluate(1, [with_content(m, metrics=METRICS) for m in asked(held)]) is None


def client(message: Message) -> Message | None:
    """Trains or evaluates; one sends NaN, one nothing."""
    node = message.metadata.dst_node_id
    if message.metadata.message_type == "evaluate":
        return with_content(message, metrics=MetricRecord({"num-examples": 1, "accuracy": 0.5}))
    if node == 1:
        return changed(message, first=np.full(SHAPE, np.nan, np.float32))
    return None if node == 2 else answer(message)


def test_a_whole_run_starts_as_the_strategys_own_and_a_second_goes_on(
    make: Make, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    for start in (1, 2):
        strategy = make(audit=tmp_path / "audit", state=tmp_path / "state")
        result = strategy.start(grid=Nodes(client), initial_arrays=record(GLOBAL), num_rounds=2)
        assert np.isfinite(result.arrays["first"].numpy()).all()
        assert result.evaluate_metrics_clientapp[2] == {"accuracy": 0.5}
        assert strategy.guard.rounds == 2 * start
    entries = list(AuditLog(tmp_path / "audit").entries())
    assert [entry["round"] for entry in entries] == [1, 2, 3, 4]
    assert all(entry["silent"] == ["2"] and entry["dropped"][0]["client"] == "1" for entry in entries)
    assert "Guard: Snowball(" in logged.text
    assert "guard: round 4, aggregated: {'answered': 7, 'silent': 1, 'dropped': 1," in logged.text


def test_a_guard_that_was_told_the_number_of_rounds_keeps_it(make: Make) -> None:
    strategy = make(rounds=5)
    strategy.start(Nodes(client), record(GLOBAL), 2)
    assert strategy.guard.rounds == 5


def test_a_state_that_cannot_be_saved_does_not_end_the_run(
    make: Make, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    strategy = make(defense=defenses.FedAvg(), state=tmp_path / "folder" / "state")
    (tmp_path / "folder").write_text("a file is in the way")
    arrays, _ = strategy.aggregate_train(1, map(answer, asked(strategy)))
    is_average(arrays, NODES)
    assert "state after round 1 is not saved" in logged.text


def test_a_strategys_own_start_is_the_one_that_runs() -> None:
    class Own(FedAvg):
        """Starts in its own way."""

        def start(self, grid: Any, initial_arrays: Any, num_rounds: int = 3, timeout: float = 1) -> str:
            replies = grid.send_and_receive(self.configure_train(1, initial_arrays, ConfigRecord(), grid), timeout)
            self.arrays, _ = self.aggregate_train(1, replies)
            return "its own"

    strategy = Guarded(Own(), defense=defenses.FedAvg())
    assert strategy.start(Nodes(client), record(GLOBAL), timeout=2) == "its own"
    is_average(strategy.arrays, NODES[2:])


def test_the_defense_sees_what_each_node_changed() -> None:
    seen: list[tuple[Updates, Context]] = []

    def everybody(updates: Updates, context: Context) -> Verdict:
        seen.append((updates, context))
        return defenses.FedAvg()(updates, context)

    strategy = wrapped(defense=everybody)
    doubled = {name: values * 2 for name, values in GLOBAL.items()}
    strategy.aggregate_train(5, map(answer, asked(strategy, doubled, 5)))
    (updates, context), *_ = seen
    assert updates.clients == tuple(map(str, NODES))
    assert updates.examples.tolist() == [10 + node for node in NODES]
    change = updates.layout.split(updates.values[0])["first"]
    np.testing.assert_allclose(change, trained(1)["first"] - doubled["first"], rtol=1e-5)
    assert context.round == 1


SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple).filter(lambda shape: shape != SHAPE)
BAD = st.sampled_from([np.nan, np.inf, -np.inf])
FAULTS: dict[str, st.SearchStrategy[Callable[[Message], Message]]] = {
    "bytes": st.binary(max_size=200).map(lambda data: lambda m: bytes_for(m, data)),
    "cut": st.integers(0, 150).map(lambda end: lambda m: bytes_for(m, np_bytes(GLOBAL["first"])[:end])),
    "names": st.dictionaries(st.text(max_size=12), st.just(GLOBAL["first"]), max_size=4).map(
        lambda state: lambda m: answer(m, state)
    ),
    "shape": SHAPES.map(lambda shape: lambda m: changed(m, first=np.zeros(shape, np.float32))),
    "dtype": st.sampled_from(["U3", "S2", "c8", "M8[s]", "V4", ">U1", "O"]).flatmap(
        lambda kind: st.just(lambda m: bytes_for(m, header(kind)))
    ),
    "numbers": st.tuples(BAD, st.integers(0, 19)).map(lambda at: lambda m: changed(m, first=spoilt(*at))),
    "weights": st.floats(1e9, 1e30).map(lambda value: lambda m: changed(m, first=np.full(SHAPE, value, np.float32))),
    "examples": st.one_of(
        st.integers(max_value=0),
        st.integers(min_value=10**6),
        st.floats(max_value=0.0),
        st.sampled_from([math.nan, math.inf]),
        st.lists(st.integers(0, 9), max_size=3),
    ).map(lambda count: lambda m: counted(m, count)),
    "records": st.lists(st.sampled_from(["arrays", "metrics", "config"]), max_size=5)
    .filter(lambda kinds: kinds.count("arrays") != 1 or kinds.count("metrics") != 1)
    .map(lambda kinds: lambda m: with_content(m, **{f"{kind} {at}": RECORDS[kind] for at, kind in enumerate(kinds)})),
    "errors": st.tuples(st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=400)).map(
        lambda error: lambda m: Message(Error(*error), reply_to=m)
    ),
}
RECORDS = {"arrays": ARRAYS, "metrics": METRICS, "config": ConfigRecord({"a": 1})}
LIARS, EXAMPLES = 5, 400


def np_bytes(values: np.ndarray) -> bytes:
    with io.BytesIO() as file:
        np.save(file, values)
        return file.getvalue()


def header(kind: str) -> bytes:
    """An array of a type that is no number's, as far as the format can say it."""
    return np_bytes(GLOBAL["first"]).replace(b"'<f4'", f"'{kind}'".encode())


def spoilt(value: float, place: int) -> np.ndarray:
    values = trained(1)["first"]
    values.flat[place] = value
    return values


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lies=st.lists(st.one_of(*FAULTS.values()), min_size=LIARS, max_size=LIARS),
    first=st.booleans(),
    make=st.sampled_from([wrapped, GuardedFedAvg]),
)
def test_no_malformed_reply_raises_or_gets_in(
    lies: list[Callable[[Message], Message]], first: bool, make: Make
) -> None:
    """Five liars among eight honest clients, in 400 rounds: two thousand malformed replies."""
    strategy = make(defense=defenses.FedAvg())
    honest = list(map(answer, asked(strategy)))
    strangers = [Message(RecordDict(), dst_node_id=100 + liar, message_type="train") for liar in range(LIARS)]
    strategy.gate.sent += [stranger.metadata for stranger in strangers]
    hostile = [lie(stranger) for lie, stranger in zip(lies, strangers, strict=True)]
    arrays, _ = strategy.aggregate_train(1, hostile + honest if first else honest + hostile)
    is_average(arrays, NODES)

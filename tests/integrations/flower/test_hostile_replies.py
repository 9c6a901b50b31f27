"""Hostile replies: none ends the run or is averaged, and the audit names each."""

import io
import math
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import (
    ARRAYS,
    GLOBAL,
    METRICS,
    NODES,
    SHAPE,
    Make,
    ask_nodes,
    assert_average,
    make_array_with,
    make_reply,
    reply_with_arrays,
    reply_with_bytes,
    reply_with_examples,
    reply_with_nan,
    reply_with_records,
    train_node,
)
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from snowball import defenses
from snowball.guard import AuditLog

pytestmark = pytest.mark.usefixtures("runtime")


def archive() -> bytes:
    with io.BytesIO() as file:
        np.savez(file, first=GLOBAL["first"])
        return file.getvalue()


HUGE_HEADER = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }".ljust(128)
HOSTILE: dict[str, tuple[str, Callable[[Message], Message]]] = {
    "other keys": ("names", lambda m: make_reply(m, {"other": GLOBAL["first"]})),
    "one too many": ("names", lambda m: reply_with_arrays(m, extra=GLOBAL["first"])),
    "one too few": ("names", lambda m: make_reply(m, {"first": GLOBAL["first"], "last": GLOBAL["last"]})),
    "another shape": ("shape", lambda m: reply_with_arrays(m, first=np.ones((5, 4), np.float32))),
    "another shape that broadcasts": ("shape", lambda m: reply_with_arrays(m, first=np.ones((1, 5), np.float32))),
    "zero length": ("shape", lambda m: reply_with_arrays(m, first=np.ones((0, 5), np.float32))),
    "counter of another shape": ("shape", lambda m: reply_with_arrays(m, counter=np.zeros(3, int))),
    "NaN": ("not-finite", lambda m: reply_with_arrays(m, first=make_array_with(np.nan))),
    "infinity": ("not-finite", lambda m: reply_with_arrays(m, first=make_array_with(np.inf))),
    "too large for the type": ("not-finite", lambda m: reply_with_arrays(m, first=np.full(SHAPE, 1e300))),
    "weights of 1e30": ("norm", lambda m: reply_with_arrays(m, first=np.full(SHAPE, 1e30, np.float32))),
    "a counter that jumps": ("range", lambda m: reply_with_arrays(m, counter=np.array(2**62))),
    "a fractional counter": ("dtype", lambda m: reply_with_arrays(m, counter=np.array(7.5))),
    "text": ("dtype", lambda m: reply_with_arrays(m, first=np.full(SHAPE, "1"))),
    "complex": ("dtype", lambda m: reply_with_arrays(m, first=np.full(SHAPE, 1j))),
    "no array": ("error", lambda m: reply_with_bytes(m, b"no array")),
    "nothing for an array": ("error", lambda m: reply_with_bytes(m, b"")),
    "an archive": ("error", lambda m: reply_with_bytes(m, archive())),
    "a pickle": ("error", lambda m: reply_with_bytes(m, b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00]\x94K\x01a.")),
    "a terabyte announced": ("error", lambda m: reply_with_bytes(m, HUGE_HEADER)),
    "no examples": ("examples", lambda m: reply_with_examples(m, 0)),
    "negative examples": ("examples", lambda m: reply_with_examples(m, -3)),
    "1e12 examples": ("examples", lambda m: reply_with_examples(m, 10**12)),
    "NaN examples": ("examples", lambda m: reply_with_examples(m, math.nan)),
    "infinitely many examples": ("examples", lambda m: reply_with_examples(m, math.inf)),
    "a list of examples": ("examples", lambda m: reply_with_examples(m, [1, 2])),
    "no number of examples": (
        "examples",
        lambda m: reply_with_records(m, arrays=ARRAYS, metrics=MetricRecord({"x": 1})),
    ),
    "two records of arrays": ("error", lambda m: reply_with_records(m, arrays=ARRAYS, more=ARRAYS, metrics=METRICS)),
    "two records of metrics": ("error", lambda m: reply_with_records(m, arrays=ARRAYS, more=METRICS, metrics=METRICS)),
    "no metrics": ("error", lambda m: reply_with_records(m, arrays=ARRAYS)),
    "no arrays": ("error", lambda m: reply_with_records(m, metrics=METRICS)),
    "an empty record of arrays": ("names", lambda m: reply_with_records(m, arrays=ArrayRecord(), metrics=METRICS)),
    "nothing": ("error", reply_with_records),
    "a failure": ("error", lambda m: Message(Error(0, "out of memory"), reply_to=m)),
    "a failure without a word": ("error", lambda m: Message(Error(5), reply_to=m)),
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> tuple[str, Callable[[Message], Message]]:
    return HOSTILE[request.param]


def test_a_hostile_reply_neither_ends_the_run_nor_gets_in(
    make: Make, hostile: tuple[str, Callable[[Message], Message]], audit: AuditLog
) -> None:
    reason, lie = hostile
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    attacker, *rest = ask_nodes(strategy)
    arrays, metrics = strategy.aggregate_train(1, [lie(attacker), *map(make_reply, rest)])
    assert_average(arrays, NODES[1:])
    assert metrics is not None
    following, _ = strategy.aggregate_train(2, map(make_reply, ask_nodes(strategy, server_round=2)))
    assert_average(following, NODES)
    first, second = audit.read_entries()
    assert [(fault["client"], fault["reason"]) for fault in first["dropped"]] == [("1", reason)]
    assert first["averaged"] == [str(node) for node in NODES[1:]]
    assert (first["outcome"], second["outcome"], second["dropped"]) == ("aggregated", "aggregated", [])


def test_stock_fedavg_falls_for_some_of_these() -> None:
    """Otherwise there would be nothing to guard against."""
    for name in ("other keys", "another shape", "no metrics"):
        with pytest.raises(Exception):  # noqa: B017, PT011
            FedAvg().aggregate_train(
                1, [*map(make_reply, ask_nodes(FedAvg())[1:]), HOSTILE[name][1](ask_nodes(FedAvg())[0])]
            )
    arrays, _ = FedAvg().aggregate_train(
        1, [reply_with_nan(ask_nodes(FedAvg())[0]), make_reply(ask_nodes(FedAvg())[1])]
    )
    assert not np.isfinite(arrays["first"].numpy()).all()


def test_who_answers_twice_counts_once_and_who_was_not_asked_not_at_all(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    first, *rest = ask_nodes(strategy)
    stranger = Message(RecordDict(), dst_node_id=99, message_type="train")
    again = reply_with_arrays(first, first=np.full(SHAPE, -1, np.float32))
    replies = [make_reply(first), again, *map(make_reply, rest), make_reply(stranger, train_node(3))]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert_average(arrays, NODES)
    (entry,) = audit.read_entries()
    assert {(fault["client"], fault["reason"]) for fault in entry["dropped"]} == {
        ("1", "duplicate"),
        ("99", "not-asked"),
    }


def test_whatever_comes_the_audit_names_the_failed_and_the_silent(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    failing, silent, *rest = ask_nodes(strategy)
    arrays, _ = strategy.aggregate_train(1, [Message(Error(0, "no disk"), reply_to=failing), *map(make_reply, rest)])
    assert_average(arrays, NODES[2:])
    (entry,) = audit.read_entries()
    assert sorted(entry["asked"]) == [str(node) for node in NODES]
    assert entry["dropped"] == [{"client": "1", "reason": "error", "detail": "no disk"}]
    assert entry["silent"] == [str(silent.metadata.dst_node_id)]


def test_where_flower_speaks_for_a_node_that_is_gone_the_audit_names_the_node(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    gone, *rest = messages = ask_nodes(strategy)
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"message {number}"  # as a grid does when it sends them
    notice = Message(Error(5, "Node Unavailable"), reply_to=gone)
    notice.metadata.__dict__["_src_node_id"] = 2**60  # the SuperLink's own
    arrays, _ = strategy.aggregate_train(1, [notice, *map(make_reply, rest)])
    assert_average(arrays, NODES[1:])
    (entry,) = audit.read_entries()
    assert (entry["dropped"][0]["client"], entry["silent"]) == ("1", [])


def test_nobody_answers_in_the_name_of_another(make: Make, audit: AuditLog) -> None:
    strategy = make(defense=defenses.FedAvg(), audit=audit.path)
    honest, liar, *rest = messages = ask_nodes(strategy)
    for number, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"message {number}"
    lie = Message(Error(0, "it is not me"), reply_to=honest)
    lie.metadata.__dict__["_src_node_id"] = liar.metadata.dst_node_id
    strategy.aggregate_train(1, [lie, make_reply(honest), *map(make_reply, rest)])
    (entry,) = audit.read_entries()
    assert [fault["client"] for fault in entry["dropped"]] == ["2"]
    assert "1" in entry["averaged"]


def test_where_nobody_answers_or_all_fail_the_old_model_stays(make: Make, audit: AuditLog) -> None:
    strategy = make(audit=audit.path)
    messages = ask_nodes(strategy)
    assert strategy.aggregate_train(1, []) == (None, None)
    assert strategy.aggregate_train(2, [Message(Error(0, "gone"), reply_to=m) for m in messages]) == (None, None)
    for entry in audit.read_entries():
        assert entry["outcome"] == "kept"
        assert entry["model_before"] == entry["model_after"]

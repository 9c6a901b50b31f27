"""Thousands of malformed replies, drawn at random."""

import io
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
    make_guarded,
    make_reply,
    reply_with_arrays,
    reply_with_bytes,
    reply_with_examples,
    reply_with_records,
    train_node,
)
from flwr.app import ConfigRecord, Error, Message, RecordDict

from snowball import defenses
from snowball.integrations.flower import GuardedFedAvg

pytestmark = pytest.mark.usefixtures("runtime")

SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple).filter(lambda shape: shape != SHAPE)
BAD = st.sampled_from([np.nan, np.inf, -np.inf])
FAULTS: dict[str, st.SearchStrategy[Callable[[Message], Message]]] = {
    "bytes": st.binary(max_size=200).map(lambda data: lambda m: reply_with_bytes(m, data)),
    "cut": st.integers(0, 150).map(lambda end: lambda m: reply_with_bytes(m, np_bytes(GLOBAL["first"])[:end])),
    "names": st.dictionaries(st.text(max_size=12), st.just(GLOBAL["first"]), max_size=4).map(
        lambda state: lambda m: make_reply(m, state)
    ),
    "shape": SHAPES.map(lambda shape: lambda m: reply_with_arrays(m, first=np.zeros(shape, np.float32))),
    "dtype": st.sampled_from(["U3", "S2", "c8", "M8[s]", "V4", ">U1", "O"]).flatmap(
        lambda kind: st.just(lambda m: reply_with_bytes(m, header(kind)))
    ),
    "numbers": st.tuples(BAD, st.integers(0, 19)).map(lambda at: lambda m: reply_with_arrays(m, first=spoilt(*at))),
    "weights": st.floats(1e9, 1e30).map(
        lambda value: lambda m: reply_with_arrays(m, first=np.full(SHAPE, value, np.float32))
    ),
    "examples": st.one_of(
        st.integers(max_value=0),
        st.integers(min_value=10**6),
        st.floats(max_value=0.0),
        st.sampled_from([math.nan, math.inf]),
        st.lists(st.integers(0, 9), max_size=3),
    ).map(lambda count: lambda m: reply_with_examples(m, count)),
    "records": st.lists(st.sampled_from(["arrays", "metrics", "config"]), max_size=5)
    .filter(lambda kinds: kinds.count("arrays") != 1 or kinds.count("metrics") != 1)
    .map(
        lambda kinds: (
            lambda m: reply_with_records(m, **{f"{kind} {at}": RECORDS[kind] for at, kind in enumerate(kinds)})
        )
    ),
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
    """Return the bytes of an array whose header names a type that is not numeric."""
    return np_bytes(GLOBAL["first"]).replace(b"'<f4'", f"'{kind}'".encode())


def spoilt(value: float, index: int) -> np.ndarray:
    values = train_node(1)["first"]
    values.flat[index] = value
    return values


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lies=st.lists(st.one_of(*FAULTS.values()), min_size=LIARS, max_size=LIARS),
    first=st.booleans(),
    make=st.sampled_from([make_guarded, GuardedFedAvg]),
)
def test_no_malformed_reply_raises_or_gets_in(
    lies: list[Callable[[Message], Message]], first: bool, make: Make
) -> None:
    """Five liars among eight honest clients, in 400 rounds: two thousand malformed replies."""
    strategy = make(defense=defenses.FedAvg())
    honest = list(map(make_reply, ask_nodes(strategy)))
    strangers = [Message(RecordDict(), dst_node_id=100 + liar, message_type="train") for liar in range(LIARS)]
    strategy.guard_session.sent += [stranger.metadata for stranger in strangers]
    hostile = [lie(stranger) for lie, stranger in zip(lies, strangers, strict=True)]
    arrays, _ = strategy.aggregate_train(1, hostile + honest if first else honest + hostile)
    assert_average(arrays, NODES)

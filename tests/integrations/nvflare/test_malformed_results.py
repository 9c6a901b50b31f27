"""Thousands of generated results, each with at least one fault."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare.app_common.abstract.fl_model import FLModel
from nvflare_federation import (
    DIFF,
    FULL,
    GLOBAL,
    SITES,
    WAYS,
    assert_average,
    make_federation,
    make_honest_results,
    make_params,
)

from snowball.guard import AuditLog
from snowball.records.audit import REASONS

LIARS = 7
"""Fewer than the eight honest sites, who vote if the global model is not known."""

FLOATING = st.sampled_from(["first", "last"])
HUGE = 1e16
"""Longer than any valid update, whatever the others send."""


def array(name: str, values: Any, kind: str) -> np.ndarray:
    return np.full(GLOBAL[name].shape, values).astype(kind)


@st.composite
def misshapen(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(FLOATING)
    shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple).filter(lambda shape: shape != GLOBAL[name].shape)
    kind = draw(st.sampled_from(["float16", "float32", "float64", "int8", "int64"]))
    return {name: np.ones(draw(shapes), kind)}


@st.composite
def mistyped(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(FLOATING)
    kinds = st.sampled_from(["complex64", "complex128", "object", "U5", "S3", "bool", "datetime64[s]"])
    arrays = st.builds(array, st.just(name), st.sampled_from([0, 1]), kinds)
    return draw(
        st.one_of(
            st.fixed_dictionaries({name: arrays | st.none() | st.text(max_size=3) | st.binary(max_size=3)}),
            st.fixed_dictionaries({"counter": st.floats().map(np.array) | st.none() | st.text(max_size=3)}),
        )
    )


@st.composite
def infinite(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(FLOATING)
    values = array(name, 0.5, draw(st.sampled_from(["float16", "float32", "float64"])))
    places = draw(st.sets(st.integers(0, values.size - 1), min_size=1))
    values.flat[list(places)] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return {name: values}


@st.composite
def enormous(draw: st.DrawFn) -> dict[str, Any]:
    """Return tensors too long for any update, or too large for the model's type."""
    name = draw(FLOATING)
    size = draw(st.floats(HUGE, 1e38) | st.floats(1e39, 1e308)) * draw(st.sampled_from([1, -1]))
    return {name: array(name, size, "float64")}


LEAPS = st.integers(1 << 32, 1 << 62).flatmap(lambda leap: st.sampled_from([leap, -leap]))
OTHER_NAMES = (st.text(max_size=4) | st.integers() | st.none() | st.binary(max_size=2)).filter(
    lambda n: n not in GLOBAL
)
TENSOR_FAULTS = st.one_of(
    misshapen(),
    mistyped(),
    infinite(),
    enormous(),
    LEAPS.map(lambda leap: {"counter": np.array(leap)}),
    st.dictionaries(OTHER_NAMES, misshapen() | st.none() | st.floats(), min_size=1, max_size=3),
)
LACKING = st.sets(st.sampled_from(list(GLOBAL)), min_size=1)
NO_TENSORS = st.one_of(
    st.lists(st.floats(), max_size=2), st.text(max_size=3), st.binary(max_size=3), st.integers(), misshapen().map(list)
)
COUNTS = st.one_of(
    st.floats(max_value=0),
    st.integers(max_value=0),
    st.integers(min_value=(1 << 53) + 1),
    st.sampled_from([np.nan, np.inf, -np.inf, True, None, 1j, 10**400, np.array([3, 4]), np.array([]), np.bool_(True)]),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
METRICS = st.none() | st.dictionaries(st.text(max_size=2) | st.integers(), COUNTS | st.floats(), max_size=2)


@st.composite
def malformed(draw: st.DrawFn, number: int) -> FLModel:
    """Return a result with faulty tensors, a faulty count, or both; or an honest site's second result."""
    place = draw(st.sampled_from(["tensors", "tensor", "names", "count", "both", "sender"]))
    kind = draw(st.sampled_from([FULL, DIFF]))
    sent: Any = make_params(draw(st.sampled_from(SITES)), kind)
    if place in ("tensor", "both"):
        sent = {**sent, **draw(TENSOR_FAULTS)}
    if place == "names":
        lacking = draw(LACKING)
        sent = {name: values for name, values in sent.items() if name not in lacking}
    if place == "tensors":
        sent = draw(NO_TENSORS)
    count = draw(COUNTS) if place in ("count", "both") else draw(st.integers(1, 50))
    sender = draw(st.sampled_from(SITES)) if place == "sender" else f"liar-{number}"
    return FLModel(
        kind,
        sent,
        metrics=draw(METRICS),
        meta={"client_name": sender, "NUM_STEPS_CURRENT_ROUND": count, "props": {}},
    )


ROUND = st.tuples(*(malformed(number) for number in range(LIARS)))
SEEN = {"results": 0}


def survives(way: str, liars: tuple[FLModel, ...]) -> None:
    """Check that all liars are dropped for a reason, and that all others are averaged, in the next round too."""
    with TemporaryDirectory() as folder:
        audit = AuditLog(Path(folder) / "audit.jsonl")
        federation = make_federation(way, audit)
        new = [model for model in liars if model.meta["client_name"] not in SITES]
        second = [model for model in liars if model.meta["client_name"] in SITES]
        assert_average(federation([*new, *make_honest_results(federation.kind), *second]), SITES)
        assert_average(federation(make_honest_results(federation.kind)), SITES)
        first, after = audit.read_entries()
    assert sorted(fault["client"] for fault in first["dropped"]) == sorted(model.meta["client_name"] for model in liars)
    assert {fault["reason"] for fault in first["dropped"]} <= set(REASONS)
    assert (first["averaged"], after["averaged"], after["dropped"]) == (SITES, SITES, [])


@settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(WAYS[:3]), st.sampled_from(WAYS[3:]), ROUND)
def check_malformed_results(aggregator: str, controller: str, liars: tuple[FLModel, ...]) -> None:
    survives(aggregator, liars)
    survives(controller, liars)
    SEEN["results"] += len(liars)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, when the nonsense is made
def test_two_thousand_malformed_results_neither_raise_nor_reach_the_average() -> None:
    SEEN["results"] = 0
    check_malformed_results()
    assert SEEN["results"] >= 2000

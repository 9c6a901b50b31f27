"""Hostile results: the run continues without them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare_federation import (
    FULL,
    GLOBAL,
    SITES,
    WAYS,
    State,
    apply_aggregate,
    assert_average,
    list_dropped,
    make_federation,
    make_honest_results,
    make_params,
    make_result,
)

from snowball.guard import AuditLog
from snowball.integrations.nvflare import GuardedFedAvg

SHAPE = GLOBAL["first"].shape


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


def half(value: float) -> np.ndarray:
    """Return an array of the model with one other number."""
    values = np.ones(SHAPE, np.float32)
    values.flat[0] = value
    return values


HOSTILE_PARAMS: dict[str, tuple[str, Callable[[State], Any]]] = {
    "other keys": ("names", lambda own: {"other": own["first"]}),
    "one too many": ("names", lambda own: {**own, "extra": own["first"]}),
    "one too few": ("names", lambda own: {"first": own["first"], "last": own["last"]}),
    "names that are no text": ("names", lambda own: {**own, 7: own["first"], None: own["first"]}),
    "empty": ("names", lambda own: {}),
    "a list": ("names", lambda own: list(own.values())),
    "an array": ("names", lambda own: own["first"]),
    "another shape": ("shape", lambda own: {**own, "first": np.ones((5, 4), np.float32)}),
    "another shape that broadcasts": ("shape", lambda own: {**own, "first": np.ones((1, 5), np.float32)}),
    "a number": ("shape", lambda own: {**own, "first": 1.5}),
    "zero length": ("shape", lambda own: {**own, "first": np.ones((0, 5), np.float32)}),
    "NaN": ("not-finite", lambda own: {**own, "first": half(np.nan)}),
    "infinity": ("not-finite", lambda own: {**own, "first": half(-np.inf)}),
    "too large for the type": ("not-finite", lambda own: {**own, "first": np.full(SHAPE, 1e300)}),
    "weights of 1e30": ("norm", lambda own: {**own, "first": np.full(SHAPE, 1e30, np.float32)}),
    "a counter that jumps": ("range", lambda own: {**own, "counter": np.array(2**62)}),
    "a fractional counter": ("dtype", lambda own: {**own, "counter": np.array(7.5)}),
    "text": ("dtype", lambda own: {**own, "first": np.full(SHAPE, "1")}),
    "objects": ("dtype", lambda own: {**own, "first": np.full(SHAPE, None)}),
    "complex": ("dtype", lambda own: {**own, "first": np.full(SHAPE, 1j)}),
    "bools": ("dtype", lambda own: {**own, "first": np.ones(SHAPE, bool)}),
    "nothing": ("dtype", lambda own: {**own, "first": None}),
    "a meta tensor": ("dtype", lambda own: {**own, "first": torch.empty(SHAPE, device="meta")}),
}
HOSTILE_EXAMPLES: list[Any] = [0, -3, 1e12, math.nan, math.inf, True, "10", 10**400, None, [5], {}, np.array([3, 4])]


@pytest.mark.parametrize(("reason", "lie"), HOSTILE_PARAMS.values(), ids=HOSTILE_PARAMS)
def test_hostile_tensors_neither_end_the_run_nor_get_in(
    way: str, reason: str, lie: Callable[[State], Any], audit: AuditLog
) -> None:
    federation = make_federation(way, audit)
    sent = lie(make_params(SITES[0], federation.kind))
    assert_average(
        federation([make_result(SITES[0], sent, federation.kind), *make_honest_results(federation.kind, SITES[1:])]),
        SITES[1:],
    )
    assert_average(federation(make_honest_results(federation.kind)), SITES)
    first, second = audit.read_entries()
    assert list_dropped(first) == [(SITES[0], reason)]
    assert first["averaged"] == SITES[1:]
    assert (second["round"], second["dropped"], second["averaged"]) == (2, [], SITES)


@pytest.mark.parametrize("examples", HOSTILE_EXAMPLES, ids=repr)
def test_hostile_counts_neither_end_the_run_nor_get_in(way: str, examples: Any, audit: AuditLog) -> None:
    federation = make_federation(way, audit)
    liar = make_result(SITES[0], make_params(SITES[0], federation.kind), federation.kind)
    liar.meta["NUM_STEPS_CURRENT_ROUND"] = examples
    assert_average(federation([liar, *make_honest_results(federation.kind, SITES[1:])]), SITES[1:])
    assert_average(federation(make_honest_results(federation.kind)), SITES)
    assert list_dropped(audit.read_entries()[0]) == [(SITES[0], "examples")]


def stock(*sent: tuple[State, float]) -> State:
    """Aggregate results as NVFlare's recipe does; its controller skips those that raise."""
    helper = WeightedAggregationHelper()
    for number, (weights, examples) in enumerate(sent):
        try:
            helper.add(weights, examples, f"site-{number}", 0)
        except ValueError:
            continue
    return helper.get_result()


def test_what_nvflare_does_without_a_guard() -> None:
    """Check the documentation's table; if this fails, NVFlare has improved and the table is out of date."""
    one, five = np.ones((2, 3), np.float32), np.full((2, 3), 5, np.float32)
    fair = {"first": one}, 10.0
    assert np.isnan(stock(fair, ({"first": one * np.nan}, 10))["first"]).all()
    assert set(stock(fair, ({"other": five}, 10))) == {"first", "other"}
    assert stock(({"first": five.T}, 10), fair, fair)["first"].shape == (3, 2)
    np.testing.assert_allclose(stock(fair, ({"first": five}, 1e12))["first"], five, rtol=1e-6)


def test_a_failure_ends_the_recipes_run_and_not_the_guarded_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    for controller in (FedAvg(num_clients=3), GuardedFedAvg(num_clients=3)):
        controller._current_num_targets = controller._current_min_responses = 3  # as it is when all are waited for
        monkeypatch.setattr(controller, "panic", lambda reason, own=controller: ended.append(own))
        controller._accept_train_result(SITES[0], make_reply(ReturnCode.EXECUTION_EXCEPTION), FLContext())
    assert [type(controller) for controller in ended] == [FedAvg]


def test_a_second_result_of_a_client_does_not_count(way: str, audit: AuditLog) -> None:
    federation = make_federation(way, audit)
    kind = federation.kind
    twice = make_result(SITES[0], {name: 5 * values for name, values in make_params(SITES[0], kind).items()}, kind)
    assert_average(federation([*make_honest_results(kind), twice]), SITES)
    assert_average(federation(make_honest_results(kind)), SITES)
    assert list_dropped(audit.read_entries()[0]) == [(SITES[0], "duplicate")]


def test_a_result_without_a_model_is_dropped(way: str, audit: AuditLog) -> None:
    federation = make_federation(way, audit)
    nothing = FLModel(metrics={"loss": 1.0}, meta={"client_name": SITES[0]})
    assert_average(federation([nothing, *make_honest_results(federation.kind, SITES[1:])]), SITES[1:])
    assert_average(federation(make_honest_results(federation.kind)), SITES)
    (fault,) = audit.read_entries()[0]["dropped"]
    assert (fault["client"], fault["reason"] in ("names", "error")) == (SITES[0], True)


@pytest.mark.parametrize(("reason", "lie"), HOSTILE_PARAMS.values(), ids=HOSTILE_PARAMS)
def test_the_recipes_controller_hands_on_what_is_hostile_but_not_what_is_empty(
    reason: str, lie: Callable[[State], Any], audit: AuditLog
) -> None:
    federation = make_federation("whole models", audit)
    recipe = FedAvg(num_clients=len(SITES), aggregator=federation.guarded)
    sent = lie(make_params(SITES[0], FULL))
    taken = []
    for model in (make_result(SITES[0], sent, FULL), *make_honest_results(FULL, SITES[1:])):
        try:
            taken.append(recipe._aggregate_one_result(model))
        except ValueError:  # the truth of an array, which NVFlare asks for, and whose result it then leaves out
            taken.append(False)
    assert_average(apply_aggregate(recipe._get_aggregated_result()), SITES[1:])
    lost = isinstance(sent, np.ndarray) or not sent
    assert taken == [not lost, *[True] * 7]
    assert list_dropped(audit.read_entries()[0]) == ([] if lost else [(SITES[0], reason)])

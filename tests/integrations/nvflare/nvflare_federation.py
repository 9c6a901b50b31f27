"""Eight sites with real NVFlare models but no server, guarded by the aggregator or the controller."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from snowball.guard import AuditLog
from snowball.integrations.nvflare import GuardedAggregator, GuardedFedAvg
from snowball.rng import numpy_stream

FULL, DIFF = ParamsType.FULL, ParamsType.DIFF
SITES = [f"site-{number}" for number in range(1, 9)]
GLOBAL = {
    "first": np.ones((4, 5), np.float32),
    "last": np.zeros((3, 4), np.float32),
    "counter": np.array(7),
}
State = dict[str, Any]


def make_change(site: str) -> State:
    """Return a site's change: all sites move in about the same direction."""
    rng, number = numpy_stream(0, site), SITES.index(site)
    moves = {name: 0.5 + rng.normal(0, 0.05, values.shape) for name, values in GLOBAL.items()}
    return {**{name: move.astype(np.float32) for name, move in moves.items()}, "counter": np.array(number)}


def make_params(site: str, kind: ParamsType) -> State:
    return (
        make_change(site) if kind == DIFF else {name: GLOBAL[name] + move for name, move in make_change(site).items()}
    )


def make_result(site: str, sent: Any, kind: ParamsType, examples: Any = None, **more: Any) -> FLModel:
    count = get_examples(site) if examples is None else examples
    return FLModel(kind, sent, meta={"client_name": site, "NUM_STEPS_CURRENT_ROUND": count, "props": {}}, **more)


def get_examples(site: str) -> int:
    return 10 + SITES.index(site)


def make_honest_results(kind: ParamsType, sites: Iterable[str] = SITES) -> list[FLModel]:
    return [make_result(site, make_params(site, kind), kind) for site in sites]


def compute_average(sites: Iterable[str], name: str) -> Any:
    sites = list(sites)
    weights = list(map(get_examples, sites))
    return GLOBAL[name] + np.average([make_change(site)[name] for site in sites], axis=0, weights=weights)


def assert_average(state: State, sites: Iterable[str]) -> None:
    sites = list(sites)
    assert set(state) == set(GLOBAL)
    for name in ("first", "last"):
        assert state[name].dtype == np.float32
        np.testing.assert_allclose(state[name], compute_average(sites, name), atol=1e-6, rtol=1e-6)
    assert state["counter"].dtype == np.int64
    assert state["counter"] == 7 + max(SITES.index(site) for site in sites)


def make_context(model: State = GLOBAL) -> FLContext:
    """Return a server's context that holds the global model, as NVFlare's controllers keep it."""
    context = FLContext()
    context.set_prop(AppConstants.GLOBAL_MODEL, make_model_learnable(model, {}), private=True, sticky=False)
    return context


def apply_aggregate(aggregate: FLModel, model: State = GLOBAL) -> State:
    """Apply an aggregate to a model as NVFlare does."""
    return FLModelUtils.update_model(FLModel(FULL, dict(model)), aggregate).params


class Federation:
    """One way to put the guard into NVFlare: by the aggregator or the controller, on whole models or differences."""

    def __init__(self, way: str, **guard: Any) -> None:
        self.kind = FULL if way in ("whole models", "controller") else DIFF
        self.guarded: Any = GuardedFedAvg(**guard) if way.startswith("controller") else GuardedAggregator(**guard)
        if way.startswith("controller"):
            self.guarded.guard_session.open_files(Path(), 10)
        elif way != "unknown model":
            self.guarded.fl_ctx = make_context()

    def __call__(self, results: Sequence[FLModel]) -> State:
        if isinstance(self.guarded, GuardedFedAvg):
            self.guarded.current_round = 0
            asked = dict.fromkeys([*SITES, *(model.meta["client_name"] for model in results)])
            return apply_aggregate(self.guarded.judge_results(FLModel(FULL, dict(GLOBAL)), list(asked), results))
        self.guarded.reset_stats()
        for model in results:
            self.guarded.accept_model(model)
        return apply_aggregate(self.guarded.aggregate_model())


WAYS = ["whole models", "differences", "unknown model", "controller", "controller, differences"]


def make_federation(way: str, audit: AuditLog | None = None, **guard: Any) -> Federation:
    return Federation(way, defense="fedavg", audit=str(audit.path) if audit else "", **guard)


def list_dropped(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the dropped clients of an audit entry, and the reasons."""
    return [(fault["client"], fault["reason"]) for fault in entry["dropped"]]

"""The guarded aggregator and controller on NVFlare's own models, without a server."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import make_model_learnable
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from snowball import defenses
from snowball.errors import RunError, SettingError, UpdateError
from snowball.guard import AuditLog
from snowball.integrations.nvflare import GuardedAggregator, GuardedFedAvg
from snowball.integrations.nvflare_gate import defense_of
from snowball.rng import numpy_stream

FULL, DIFF = ParamsType.FULL, ParamsType.DIFF
SITES = [f"site-{number}" for number in range(1, 9)]
GLOBAL = {
    "first": np.ones((4, 5), np.float32),
    "last": np.zeros((3, 4), np.float32),
    "counter": np.array(7),
}
SHAPE = GLOBAL["first"].shape
State = dict[str, Any]
Round = Callable[[Sequence[FLModel]], State]


def change(site: str) -> State:
    """Everybody moves the same way, a little differently."""
    rng, number = numpy_stream(0, site), SITES.index(site)
    moves = {name: 0.5 + rng.normal(0, 0.05, values.shape) for name, values in GLOBAL.items()}
    return {**{name: move.astype(np.float32) for name, move in moves.items()}, "counter": np.array(number)}


def params(site: str, kind: ParamsType) -> State:
    return change(site) if kind == DIFF else {name: GLOBAL[name] + move for name, move in change(site).items()}


def result(site: str, sent: Any, kind: ParamsType, examples: Any = None, **more: Any) -> FLModel:
    count = 10 + SITES.index(site) if examples is None else examples
    return FLModel(kind, sent, meta={"client_name": site, "NUM_STEPS_CURRENT_ROUND": count, "props": {}}, **more)


def honest(kind: ParamsType, sites: Iterable[str] = SITES) -> list[FLModel]:
    return [result(site, params(site, kind), kind) for site in sites]


def average(sites: Iterable[str], name: str) -> Any:
    sites = list(sites)
    weights = [10 + SITES.index(site) for site in sites]
    return GLOBAL[name] + np.average([change(site)[name] for site in sites], axis=0, weights=weights)


def is_average(state: State, sites: Iterable[str]) -> None:
    sites = list(sites)
    assert set(state) == set(GLOBAL)
    for name in ("first", "last"):
        assert state[name].dtype == np.float32
        np.testing.assert_allclose(state[name], average(sites, name), atol=1e-6, rtol=1e-6)
    assert state["counter"].dtype == np.int64
    assert state["counter"] == 7 + max(SITES.index(site) for site in sites)


def known(model: State = GLOBAL) -> FLContext:
    """A server's context with the global model, as NVFlare's controllers keep it."""
    context = FLContext()
    context.set_prop(AppConstants.GLOBAL_MODEL, make_model_learnable(model, {}), private=True, sticky=False)
    return context


def updated(aggregate: FLModel, model: State = GLOBAL) -> State:
    """What NVFlare makes of an aggregate."""
    return FLModelUtils.update_model(FLModel(FULL, dict(model)), aggregate).params


class Federation:
    """One way to put the guard into NVFlare: by the aggregator or the controller, on whole models or differences."""

    def __init__(self, way: str, **guard: Any) -> None:
        self.kind = FULL if way in ("whole models", "controller") else DIFF
        self.guarded: Any = GuardedFedAvg(**guard) if way.startswith("controller") else GuardedAggregator(**guard)
        if way.startswith("controller"):
            self.guarded.gate.start(Path(), 10)
        elif way != "unknown model":
            self.guarded.fl_ctx = known()

    def __call__(self, results: Sequence[FLModel]) -> State:
        if isinstance(self.guarded, GuardedFedAvg):
            self.guarded.current_round = 0
            return updated(self.guarded.judged(FLModel(FULL, dict(GLOBAL)), SITES, results))
        self.guarded.reset_stats()
        for model in results:
            self.guarded.accept_model(model)
        return updated(self.guarded.aggregate_model())


WAYS = ["whole models", "differences", "unknown model", "controller", "controller, differences"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")


def plain(way: str, audit: AuditLog | None = None, **guard: Any) -> Federation:
    return Federation(way, defense="fedavg", audit=str(audit.path) if audit else "", **guard)


def half(value: float) -> np.ndarray:
    """The right shape, one number of it another."""
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
    "a counter that leaps": ("range", lambda own: {**own, "counter": np.array(2**62)}),
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
    federation = plain(way, audit)
    sent = lie(params(SITES[0], federation.kind))
    is_average(federation([result(SITES[0], sent, federation.kind), *honest(federation.kind, SITES[1:])]), SITES[1:])
    is_average(federation(honest(federation.kind)), SITES)
    first, second = audit.entries()
    assert [(fault["client"], fault["reason"]) for fault in first["dropped"]] == [(SITES[0], reason)]
    assert first["averaged"] == SITES[1:]
    assert (second["round"], second["dropped"], second["averaged"]) == (2, [], SITES)


@pytest.mark.parametrize("examples", HOSTILE_EXAMPLES, ids=repr)
def test_hostile_counts_neither_end_the_run_nor_get_in(way: str, examples: Any, audit: AuditLog) -> None:
    federation = plain(way, audit)
    liar = result(SITES[0], params(SITES[0], federation.kind), federation.kind)
    liar.meta["NUM_STEPS_CURRENT_ROUND"] = examples
    is_average(federation([liar, *honest(federation.kind, SITES[1:])]), SITES[1:])
    is_average(federation(honest(federation.kind)), SITES)
    assert [(fault["client"], fault["reason"]) for fault in audit.entries()[0]["dropped"]] == [(SITES[0], "examples")]


def stock(*sent: tuple[State, float]) -> State:
    """What the recipe's own aggregation makes of results; one that it raises at is skipped, as its controller does."""
    helper = WeightedAggregationHelper()
    for number, (weights, examples) in enumerate(sent):
        try:
            helper.add(weights, examples, f"site-{number}", 0)
        except ValueError:
            continue
    return helper.get_result()


def test_what_nvflare_does_without_a_guard() -> None:
    """The table of the documentation; where this fails, NVFlare has got better, and the table is out of date."""
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


def test_the_average_is_weighted_by_examples(way: str) -> None:
    federation = plain(way)
    is_average(federation(honest(federation.kind)), SITES)


def test_where_nobody_says_a_number_of_examples_all_count_the_same(way: str) -> None:
    federation = plain(way)
    models = honest(federation.kind)
    for model in models:
        del model.meta["NUM_STEPS_CURRENT_ROUND"]
    mean = np.mean([change(site)["first"] for site in SITES], axis=0)
    np.testing.assert_allclose(federation(models)["first"], GLOBAL["first"] + mean, atol=1e-6)


def test_a_second_result_of_a_client_does_not_count(way: str, audit: AuditLog) -> None:
    federation = plain(way, audit)
    kind = federation.kind
    twice = result(SITES[0], {name: 5 * values for name, values in params(SITES[0], kind).items()}, kind)
    is_average(federation([*honest(kind), twice]), SITES)
    assert [(fault["client"], fault["reason"]) for fault in audit.entries()[0]["dropped"]] == [(SITES[0], "duplicate")]


def test_a_result_without_a_model_is_dropped(way: str, audit: AuditLog) -> None:
    federation = plain(way, audit)
    nothing = FLModel(metrics={"loss": 1.0}, meta={"client_name": SITES[0]})
    is_average(federation([nothing, *honest(federation.kind, SITES[1:])]), SITES[1:])
    (fault,) = audit.entries()[0]["dropped"]
    assert (fault["client"], fault["reason"] in ("names", "error")) == (SITES[0], True)


@pytest.mark.parametrize("results", [[], ["site-1"]], ids=["nobody answers", "one sends NaN"])
def test_where_nobody_is_averaged_the_global_model_stays_to_the_bit(
    way: str, results: list[str], audit: AuditLog
) -> None:
    federation = plain(way, audit)
    sent = {name: values * np.nan for name, values in params(SITES[0], federation.kind).items()}
    state = federation([result(site, sent, federation.kind) for site in results])
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)
    (entry,) = audit.entries()
    assert (entry["outcome"], entry["model_before"]) == ("kept", entry["model_after"])


def test_too_few_elected_keep_the_model(way: str) -> None:
    federation = plain(way, min_elected=9)
    state = federation(honest(federation.kind))
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)


def test_the_defense_is_the_one_that_is_named(way: str, audit: AuditLog) -> None:
    chosen = {"defense": "multi-krum", "settings": {"tolerate": 2, "elect": 3}}
    federation = Federation(way, **chosen, audit=str(audit.path))
    far = {name: values if name == "counter" else values + 9 for name, values in change(SITES[0]).items()}
    sent = far if federation.kind == DIFF else {name: GLOBAL[name] + move for name, move in far.items()}
    federation([result(SITES[0], sent, federation.kind), *honest(federation.kind, SITES[1:])])
    (entry,) = audit.entries()
    assert len(entry["averaged"]) == 3
    assert SITES[0] in entry["left_out"]


def test_monitoring_averages_everybody_sane(way: str, audit: AuditLog) -> None:
    federation = Federation(way, defense="krum", mode="monitor", audit=str(audit.path))
    is_average(federation(honest(federation.kind)), SITES)
    assert len(audit.entries()[0]["left_out"]) == len(SITES) - 1


def test_the_global_models_names_count_where_it_is_known_even_against_all_clients() -> None:
    federation = plain("differences")
    models = [result(site, {"other": np.ones(3, np.float32)}, DIFF) for site in SITES]
    assert all(np.array_equal(federation(models)[name], GLOBAL[name]) for name in GLOBAL)


def test_an_unknown_models_names_are_those_of_more_than_half_and_then_stay() -> None:
    federation = plain("unknown model")
    odd = [result(site, {"other": np.ones(3, np.float32)}, DIFF) for site in SITES[:4]]
    state = federation([*odd, *honest(DIFF, SITES[4:])])
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)  # half is not more than half
    is_average(federation([*odd[:3], *honest(DIFF, SITES[3:])]), SITES[3:])
    is_average(federation([*odd, *honest(DIFF, SITES[4:6])]), SITES[4:6])  # the last round's names, though outvoted


def test_a_client_cannot_stuff_the_ballot_on_an_unknown_models_names() -> None:
    federation = plain("unknown model")
    stuffed = [result(SITES[0], {"other": np.ones(3, np.float32)}, DIFF) for _ in range(20)]
    is_average(federation([*stuffed, *honest(DIFF, SITES[1:])]), SITES[1:])


@pytest.mark.parametrize("sent", [{"counter": np.array(3)}, {"norm.running_mean": np.ones(3, np.float32)}, {}])
def test_an_unknown_model_of_which_nothing_is_trained_changes_nothing(sent: State, audit: AuditLog) -> None:
    federation = plain("unknown model", audit)
    state = federation([result(SITES[0], sent, DIFF)])
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)
    assert audit.entries()[0]["outcome"] == "kept"
    is_average(federation(honest(DIFF)), SITES)


def test_whole_models_are_refused_where_the_global_one_is_unknown(audit: AuditLog) -> None:
    federation = plain("unknown model", audit)
    is_average(federation([*honest(FULL, SITES[:2]), *honest(DIFF, SITES[2:])]), SITES[2:])
    assert {fault["detail"] for fault in audit.entries()[0]["dropped"]} == {
        "it sent a whole model, and the global one is not known"
    }


def test_torch_models_stay_torch_and_batch_normalisation_is_understood() -> None:
    model = {name: tensor.clone() for name, tensor in torch.nn.BatchNorm1d(3).state_dict().items()}
    aggregator = GuardedAggregator("fedavg")
    aggregator.fl_ctx = known(model)
    for site in SITES[:3]:
        moves = {
            name: torch.full_like(tensor, 2 if tensor.dtype == torch.int64 else -0.5) for name, tensor in model.items()
        }
        aggregator.accept_model(result(site, moves, DIFF))
    state = updated(aggregator.aggregate_model(), model)
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    assert state["num_batches_tracked"] == 2
    assert torch.allclose(state["running_var"], torch.full((3,), 0.5))


def test_metrics_are_the_mean_of_those_averaged_and_lies_do_not_raise() -> None:
    aggregator = GuardedAggregator("fedavg")
    aggregator.fl_ctx = known()
    reported: list[Any] = [1.0, 2.0, np.float32(3.0)]
    for site, loss in zip(SITES, reported, strict=False):
        metrics = {"loss": loss, "own": "text", site: 1.0, "complex": np.complex64(1)}
        aggregator.accept_model(result(site, params(site, FULL), FULL, 5, metrics=metrics))
    aggregator.accept_model(result(SITES[3], {}, FULL, metrics={"loss": 1e9}))
    assert aggregator.aggregate_model().metrics == pytest.approx({"loss": 2.0})
    aggregator.accept_model(result(SITES[4], params(SITES[4], FULL), FULL, 5, metrics={"loss": math.nan, 3: 10**400}))
    assert aggregator.aggregate_model().metrics is None


def test_a_new_server_goes_on_where_the_old_one_stood(way: str, tmp_path: Path) -> None:
    chosen = {"defense": "fldetector", "state": str(tmp_path / "guard.safetensors")}
    before = Federation(way, **chosen, seed=3)
    for _ in range(3):
        before(honest(before.kind))
    after = Federation(way, **chosen)
    together = after(honest(after.kind)), before(honest(before.kind))
    assert after.guarded.gate.guard.round == 4
    assert after.guarded.gate.guard.seed == 3
    assert all(np.array_equal(together[0][name], together[1][name]) for name in GLOBAL)


def test_files_that_cannot_be_written_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    federation = Federation("whole models", defense="fedavg", audit="file/audit.jsonl", state="file/state")
    federation.guarded.gate.start(tmp_path)
    is_average(federation(honest(FULL)), SITES)
    assert "not in the audit" in caplog.text
    assert "is not saved" in caplog.text


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"no state")
    federation = Federation("whole models", state=str(tmp_path / "state"))
    with pytest.raises(RunError, match="is not the state of a guard"):
        federation(honest(FULL))


ARRAYS = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.floats(),
    st.builds(
        lambda shape, value, kind: np.full(shape, value).astype(kind),
        st.sampled_from([SHAPE, (3, 4), (), (0,), (1, 5), (5, 4), (2, 2, 2)]),
        st.sampled_from([0, 1, -1, 0.5, 1e30, -1e38, np.nan, np.inf, 2**31]),
        st.sampled_from(["float16", "float32", "float64", "complex64", "object", "U5"]),
    ),
    st.builds(np.ones, st.sampled_from([SHAPE, (3, 4), ()]), st.sampled_from(["int64", "int8", "bool", "float32"])),
)
PARAMS = st.one_of(
    st.dictionaries(st.sampled_from([*GLOBAL, "other", "", 3, None]), ARRAYS, max_size=4),
    st.fixed_dictionaries({name: st.one_of(st.just(values), ARRAYS) for name, values in GLOBAL.items()}),
    st.lists(ARRAYS, max_size=2),
    st.text(max_size=2),
)
EXAMPLES = st.one_of(st.sampled_from(HOSTILE_EXAMPLES), st.floats(), st.integers(), st.text(max_size=2), ARRAYS)
METRICS = st.none() | st.dictionaries(st.text(max_size=2) | st.integers(), EXAMPLES, max_size=2)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(WAYS),
    st.lists(st.tuples(PARAMS, st.sampled_from([FULL, DIFF]), EXAMPLES, METRICS), min_size=4, max_size=6),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, when the nonsense is made
def test_whatever_is_sent_does_not_raise_and_the_model_stays_finite(way: str, sent: list[Any]) -> None:
    """Four malformed results at least, 500 times over: 2,000 and more."""
    federation = plain(way)
    liars = [
        result(site, *lie[:3], metrics=lie[3]) for site, lie in zip(SITES, sent, strict=False) if lie[2] is not None
    ]
    state = federation([*liars, *honest(federation.kind, SITES[1:])])
    assert all(np.isfinite(values).all() for values in state.values())
    assert {name: values.shape for name, values in state.items()} == {
        name: values.shape for name, values in GLOBAL.items()
    }
    federation(honest(federation.kind))


class Laboratory(GuardedFedAvg):
    """A controller whose clients answer at once, through NVFlare's own acceptance."""

    def __init__(self, folder: Path, answers: Callable[[str], Shareable | None], **chosen: Any) -> None:
        super().__init__(num_clients=len(SITES), **chosen)
        self.folder, self.answers, self.saved = folder, answers, []
        self.fl_ctx, self.abort_signal, self.events = FLContext(), Signal(), []

    def get_run_dir(self) -> str:
        return str(self.folder)

    def load_model(self) -> FLModel:
        return FLModel(FULL, dict(GLOBAL))

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        return SITES[:num_clients]

    def event(self, event_type: str) -> None:
        self.events.append(event_type)

    def fire_event_with_data(self, event_type: str, *data: Any) -> None:
        self.events.append(event_type)

    def save_model(self, model: FLModel) -> None:
        self.saved.append(dict(model.params))

    def send_model_and_wait(self, task_name: str = "train", data: Any = None, targets: Any = None, **more: Any) -> Any:
        results = []
        for site in targets:
            if (answer := self.answers(site)) is None or not self._accept_train_result(site, answer, self.fl_ctx):
                continue
            try:
                model = FLModelUtils.from_shareable(answer)
            except Exception:
                continue
            model.meta["client_name"] = site
            results.append(model)
        return results


def shareable(site: str) -> Shareable:
    meta = {"NUM_STEPS_CURRENT_ROUND": 10 + SITES.index(site), "client_name": "somebody else"}
    return DXO(DataKind.WEIGHTS, params(site, FULL), meta).to_shareable()


ODD: dict[str, Shareable | None] = {
    SITES[0]: None,
    SITES[1]: make_reply(ReturnCode.EXECUTION_EXCEPTION),
    SITES[2]: Shareable(),
}


def test_the_controller_knows_who_was_asked_who_failed_and_who_is_silent(audit: AuditLog) -> None:
    laboratory = Laboratory(
        audit.path.parent,
        lambda site: ODD[site] if site in ODD else shareable(site),
        defense="fedavg",
        num_rounds=2,
        audit=audit.path.name,
    )
    laboratory.run()
    assert len(laboratory.saved) == 2
    is_average(laboratory.saved[0], SITES[3:])
    for entry in audit.entries():
        assert entry["asked"] == SITES
        assert entry["silent"] == [SITES[0]]
        assert [(fault["client"], fault["reason"], fault["detail"]) for fault in entry["dropped"]] == [
            (SITES[1], "error", "EXECUTION_EXCEPTION"),
            (SITES[2], "error", "its result cannot be read"),
        ]
        assert entry["averaged"] == SITES[3:]


def test_the_controller_tells_the_guard_how_many_rounds_there_will_be(tmp_path: Path) -> None:
    for rounds in (2, 5):
        laboratory = Laboratory(tmp_path, shareable, defense="fedavg", num_rounds=2, state="state")
        laboratory.run()
        guard = laboratory.gate.guard
        assert (guard.round, guard.rounds) == ((2, 2) if rounds == 2 else (4, 4))


def test_an_aborted_run_saves_nothing_more(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path, shareable, defense="fedavg", num_rounds=2)
    laboratory.abort_signal.trigger(True)
    laboratory.run()
    assert laboratory.saved == []


CHOSEN: dict[str, Any] = {
    "defense": "multi-krum",
    "settings": {"tolerate": 1, "elect": 2},
    "mode": "monitor",
    "min_elected": 2,
    "max_examples": 500.0,
    "audit": "audit.jsonl",
    "state": "guard.safetensors",
    "buffers": ["scale"],
    "seed": 5,
}
CONTROLLER = {**CHOSEN, "num_clients": 4, "num_rounds": 7, "start_round": 2, "timeout": 60, "persistor_id": "mine"}


def exported(job: Any, folder: Path) -> Any:
    """The server's workflow in a job as it is sent."""
    (job.export if isinstance(job, FedAvgRecipe) else job.export_job)(str(folder))
    (path,) = folder.rglob("config_fed_server.*")
    return json.loads(path.read_text())["workflows"][0]


def rebuilt(component: Any) -> Any:
    module, name = component["path"].rsplit(".", 1)
    return getattr(import_module(module), name)(**component["args"])


def script(tmp_path: Path) -> str:
    path = tmp_path / "client.py"
    path.write_text("")
    return str(path)


def test_the_aggregators_settings_survive_the_recipe(tmp_path: Path) -> None:
    aggregator = GuardedAggregator(**CHOSEN, rounds=7)
    model = {"class_path": "torch.nn.Linear", "args": {"in_features": 2, "out_features": 2}}
    recipe = FedAvgRecipe(model=model, min_clients=3, train_script=script(tmp_path), aggregator=aggregator)
    new = rebuilt(exported(recipe, tmp_path / "job")["args"]["aggregator"])
    assert isinstance(new, GuardedAggregator)
    assert {name: getattr(new, name) for name in {**CHOSEN, "rounds": 7}} == {**CHOSEN, "rounds": 7}
    assert new.gate.guard.defense == defenses.MultiKrum(tolerate=1, elect=2)
    assert (new.gate.guard.mode, new.gate.guard.seed, new.gate.guard.rounds) == ("monitor", 5, 7)


def test_the_controllers_settings_survive_the_job(tmp_path: Path) -> None:
    job = FedJob("guarded")
    job.to_server(GuardedFedAvg(**CONTROLLER))
    job.to_clients(ScriptRunner(script(tmp_path)))
    new = rebuilt(exported(job, tmp_path / "job"))
    assert isinstance(new, GuardedFedAvg)
    own = {name: getattr(new, name if name in vars(new) else f"_{name}") for name in CONTROLLER}
    assert own == CONTROLLER


def test_a_defense_is_made_from_its_name_and_plain_settings() -> None:
    made = defense_of("snowball", {"layers": ["first", "last"], "vae": {"hidden": 8}, "judge": "vae"})
    assert made == defenses.Snowball(layers=("first", "last"), vae=defenses.VaeSettings(hidden=8), judge="vae")
    assert defense_of("snowball", None) == defenses.Snowball()


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"defense": "snowbal"}, "'snowbal' is not known; did you mean 'snowball'"),
        ({"settings": {"judg": "vae"}}, "'judg' is not a setting of snowball; did you mean 'judge'"),
        ({"settings": {"judge": "nobody"}}, "snowball.judge = 'nobody'"),
        ({"mode": "off"}, "mode is 'enforce' or 'monitor'"),
        ({"min_elected": 0}, "min_elected must be positive, got 0"),
        ({"defense": "fltrust"}, "acts in training"),
        ({"defense": "ideal"}, "is told who is malicious|cannot be set so"),
    ],
)
@pytest.mark.parametrize("kind", [GuardedAggregator, GuardedFedAvg])
def test_settings_that_cannot_be_are_refused_before_a_job_is_sent(
    kind: Any, chosen: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        kind(**chosen)


def test_a_broken_global_model_is_the_operators_to_put_right() -> None:
    aggregator = GuardedAggregator("fedavg")
    aggregator.fl_ctx = known({"first": np.full(SHAPE, np.nan, np.float32)})
    with pytest.raises(UpdateError, match="of the global model holds NaN"):
        aggregator.aggregate_model()

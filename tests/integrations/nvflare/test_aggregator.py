"""The guarded aggregator and controller with real NVFlare models but no server."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare_federation import (
    DIFF,
    FULL,
    GLOBAL,
    SITES,
    WAYS,
    Federation,
    apply_aggregate,
    assert_average,
    make_change,
    make_context,
    make_federation,
    make_honest_results,
    make_params,
    make_result,
)

from snowball.errors import RunError, UpdateError
from snowball.guard import AuditLog
from snowball.guard.alerts import LISTENERS, Event
from snowball.integrations.nvflare import GuardedAggregator

SHAPE = GLOBAL["first"].shape


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_average_is_weighted_by_examples(way: str) -> None:
    federation = make_federation(way)
    assert_average(federation(make_honest_results(federation.kind)), SITES)


def test_where_nobody_says_a_number_of_examples_all_count_the_same(way: str) -> None:
    federation = make_federation(way)
    models = make_honest_results(federation.kind)
    for model in models:
        del model.meta["NUM_STEPS_CURRENT_ROUND"]
    mean = np.mean([make_change(site)["first"] for site in SITES], axis=0)
    np.testing.assert_allclose(federation(models)["first"], GLOBAL["first"] + mean, atol=1e-6)


@pytest.mark.parametrize("results", [[], ["site-1"]], ids=["nobody answers", "one sends NaN"])
def test_where_nobody_is_averaged_the_global_model_stays_to_the_bit(
    way: str, results: list[str], audit: AuditLog
) -> None:
    federation = make_federation(way, audit)
    sent = {name: values * np.nan for name, values in make_params(SITES[0], federation.kind).items()}
    state = federation([make_result(site, sent, federation.kind) for site in results])
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)
    (entry,) = audit.read_entries()
    assert (entry["outcome"], entry["model_before"]) == ("kept", entry["model_after"])


def test_too_few_elected_keep_the_model(way: str) -> None:
    federation = make_federation(way, min_elected=9)
    state = federation(make_honest_results(federation.kind))
    assert all(np.array_equal(state[name], GLOBAL[name]) for name in GLOBAL)


def test_the_defense_is_the_one_that_is_named(way: str, audit: AuditLog) -> None:
    chosen = {"defense": "multi-krum", "settings": {"tolerate": 2, "elect": 3}}
    federation = Federation(way, **chosen, audit=str(audit.path))
    far = {name: values if name == "counter" else values + 9 for name, values in make_change(SITES[0]).items()}
    sent = far if federation.kind == DIFF else {name: GLOBAL[name] + move for name, move in far.items()}
    federation([make_result(SITES[0], sent, federation.kind), *make_honest_results(federation.kind, SITES[1:])])
    (entry,) = audit.read_entries()
    assert len(entry["averaged"]) == 3
    assert SITES[0] in entry["left_out"]


def test_monitoring_averages_everybody_sane(way: str, audit: AuditLog) -> None:
    federation = Federation(way, defense="krum", mode="monitor", audit=str(audit.path))
    assert_average(federation(make_honest_results(federation.kind)), SITES)
    assert len(audit.read_entries()[0]["left_out"]) == len(SITES) - 1


def test_torch_models_stay_torch_and_batch_normalisation_is_understood() -> None:
    model = {name: tensor.clone() for name, tensor in torch.nn.BatchNorm1d(3).state_dict().items()}
    aggregator = GuardedAggregator("fedavg")
    aggregator.fl_ctx = make_context(model)
    for number, site in enumerate(SITES[:3]):
        moves = {
            name: torch.full_like(tensor, 2 if tensor.dtype == torch.int64 else -0.5) for name, tensor in model.items()
        }
        moves["weight"] *= 1 + number / 10  # equal updates count as one
        aggregator.accept_model(make_result(site, moves, DIFF))
    state = apply_aggregate(aggregator.aggregate_model(), model)
    assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    assert state["num_batches_tracked"] == 2
    assert torch.allclose(state["running_var"], torch.full((3,), 0.5))


def test_metrics_are_the_mean_of_those_averaged_and_lies_do_not_raise() -> None:
    aggregator = GuardedAggregator("fedavg")
    aggregator.fl_ctx = make_context()
    reported: list[Any] = [1.0, 2.0, np.float32(3.0)]
    for site, loss in zip(SITES, reported, strict=False):
        metrics = {"loss": loss, "own": "text", site: 1.0, "complex": np.complex64(1)}
        aggregator.accept_model(make_result(site, make_params(site, FULL), FULL, 5, metrics=metrics))
    aggregator.accept_model(make_result(SITES[3], {}, FULL, metrics={"loss": 1e9}))
    assert aggregator.aggregate_model().metrics == pytest.approx({"loss": 2.0})
    aggregator.accept_model(
        make_result(SITES[4], make_params(SITES[4], FULL), FULL, 5, metrics={"loss": math.nan, 3: 10**400})
    )
    assert aggregator.aggregate_model().metrics is None


def test_a_new_server_goes_on_where_the_old_one_stood(way: str, tmp_path: Path) -> None:
    chosen = {"defense": "fldetector", "state": str(tmp_path / "guard.safetensors")}
    before = Federation(way, **chosen, seed=3)
    for _ in range(3):
        before(make_honest_results(before.kind))
    after = Federation(way, **chosen)
    together = after(make_honest_results(after.kind)), before(make_honest_results(before.kind))
    assert after.guarded.guard_session.guard.round == 4
    assert after.guarded.guard_session.guard.seed == 3
    assert all(np.array_equal(together[0][name], together[1][name]) for name in GLOBAL)


def test_files_that_cannot_be_written_are_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    federation = Federation("whole models", defense="fedavg", audit="file/audit.jsonl", state="file/state")
    federation.guarded.guard_session.open_files(tmp_path)
    assert_average(federation(make_honest_results(FULL)), SITES)
    assert "Round 1: its line of the audit is not saved: " in caplog.text
    assert "Round 1: the guard's state is not saved: " in caplog.text


HEARD: list[str] = []


def listen(event: Event, prefix: str = "") -> None:
    HEARD.append(f"{prefix}{event.kind}")


def test_listeners_are_built_on_the_server_and_hear_every_round(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LISTENERS, "listen", listen)
    HEARD.clear()
    chosen = {"listeners": {"listen": {"prefix": "a "}}, "patience": 1}
    assert GuardedAggregator(**chosen).guard_session.guard.alerts.listeners == ()
    federation = make_federation(way, **chosen)
    federation(make_honest_results(federation.kind))
    federation([])
    assert HEARD == ["a round", "a round", "a kept"]


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"no state")
    federation = Federation("whole models", state=str(tmp_path / "state"))
    with pytest.raises(RunError, match="is not the state of a guard"):
        federation(make_honest_results(FULL))


def test_a_broken_global_model_is_the_operators_to_put_right() -> None:
    aggregator = GuardedAggregator("fedavg")
    aggregator.fl_ctx = make_context({"first": np.full(SHAPE, np.nan, np.float32)})
    with pytest.raises(UpdateError, match="of the global model holds NaN"):
        aggregator.aggregate_model()

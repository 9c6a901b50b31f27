"""What an operator sets through NVFlare: names, decisions, turnout, another defense over an old state, and rollback."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_context import FLContext
from nvflare_federation import FULL, SITES, Federation, assert_average, make_federation, make_honest_results

from snowball.guard import AuditLog, Guard, restore_model
from snowball.integrations.nvflare import GuardedAggregator, GuardedFedAvg

KNOWN_MODEL = ["whole models", "differences", "controller", "controller, differences"]


def write_files(folder: Path, rule: str) -> dict[str, str]:
    """Write a name and a decision about the first site, and return them as settings."""
    (folder / "sites.toml").write_text(f'[sites]\n"{SITES[0]}" = "Ulm"\n')
    decision = f'[[decision]]\nsite = "Ulm"\nrule = "{rule}"\nreason = "it is broken"\nby = "M. Weber"\n'
    (folder / "decisions.toml").write_text(decision)
    return {"names": str(folder / "sites.toml"), "decisions": str(folder / "decisions.toml")}


@pytest.mark.parametrize("rule", ["deny", "probation"])
@pytest.mark.parametrize("way", KNOWN_MODEL)
def test_people_decide_about_sites_by_name(way: str, rule: str, audit: AuditLog, tmp_path: Path) -> None:
    federation = make_federation(way, audit, **write_files(tmp_path, rule))
    assert_average(federation(make_honest_results(federation.kind)), SITES[1:])
    (entry,) = audit.read_entries()
    assert entry["ids"] == {"Ulm": SITES[0]}
    assert [(decision["client"], decision["rule"]) for decision in entry["decisions"]] == [("Ulm", rule)]


def test_the_controller_keeps_the_model_on_a_low_turnout(audit: AuditLog) -> None:
    kept = make_federation("controller", audit)
    kept(make_honest_results(FULL)[:3])
    make_federation("controller", audit, low_turnout="aggregate")(make_honest_results(FULL)[:3])
    first, second = audit.read_entries()
    assert (first["outcome"], second["outcome"]) == ("kept", "aggregated")
    assert all(entry["reason"].startswith("low turnout: 3 of 8 asked") for entry in (first, second))


def test_the_aggregator_does_not_know_who_was_asked_and_goes_by_the_defense(audit: AuditLog) -> None:
    federation = Federation("whole models", defense="median", audit=str(audit.path))
    for count in (2, 3):
        federation(make_honest_results(FULL)[:count])
    assert [entry["outcome"] for entry in audit.read_entries()] == ["kept", "aggregated"]


@pytest.mark.parametrize("way", KNOWN_MODEL)
def test_the_last_models_can_be_restored(way: str, tmp_path: Path) -> None:
    federation = make_federation(way, models=str(tmp_path / "models"), keep_models=2)
    after = federation(make_honest_results(federation.kind))
    restored = restore_model(tmp_path / "models", 1)
    assert all(np.array_equal(restored[name].numpy(), after[name]) for name in after)


def test_changes_of_an_unknown_model_are_not_taken_for_models(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    federation = make_federation("unknown model", models=str(tmp_path / "models"), keep_models=2)
    for _ in range(2):
        federation(make_honest_results(federation.kind))
    assert not (tmp_path / "models").exists()
    assert caplog.text.count("No global model is written") == 1


class Panicking:
    """Notes the reasons for which a component ends the run."""

    reasons: list[str]

    def system_panic(self, reason: str, fl_ctx: FLContext) -> None:
        self.reasons.append(reason)

    def panic(self, reason: str) -> None:
        self.reasons.append(reason)

    def get_run_dir(self) -> str:
        return ""


class PanickingAggregator(Panicking, GuardedAggregator):
    """An aggregator at the start of a run."""

    def start(self) -> None:
        self.handle_event(EventType.START_RUN, FLContext())


class PanickingController(Panicking, GuardedFedAvg):
    """A controller at the start of a run."""

    def start(self) -> None:
        self.run()


@pytest.mark.parametrize("kind", [PanickingAggregator, PanickingController])
def test_files_that_cannot_be_used_end_the_run_with_a_sentence(kind: Any, tmp_path: Path) -> None:
    Guard().save(tmp_path / "state")
    (tmp_path / "sites.toml").write_text("broken")
    for settings, words in (
        ({"defense": "median", "state": str(tmp_path / "state")}, "set on_other_state='fresh'"),
        ({"names": str(tmp_path / "sites.toml")}, "sites.toml is not a TOML file"),
        ({"decisions": str(tmp_path / "nowhere")}, "there is no such file"),
    ):
        component = kind(**settings)  # where the job is written there are no files
        component.reasons = []
        component.start()
        (reason,) = component.reasons
        assert reason.startswith("the guard cannot start: ")
        assert words in reason


def test_fresh_goes_on_with_another_defense(tmp_path: Path) -> None:
    guard = Guard(seed=3)
    guard.round = 7
    guard.save(tmp_path / "state")
    chosen = {"defense": "median", "state": str(tmp_path / "state"), "on_other_state": "fresh"}
    federation = Federation("whole models", **chosen)
    federation(make_honest_results(FULL))
    now = federation.guarded.guard_session.guard
    assert (now.round, now.seed) == (8, 3)

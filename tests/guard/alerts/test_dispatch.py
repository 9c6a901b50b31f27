import logging
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.defenses import Context, FedAvg, Verdict
from snowball.defenses.ops import average_by_examples
from snowball.errors import RunError, SettingError
from snowball.guard import Guard
from snowball.guard.alerts import Alerts, Event
from snowball.records.audit import read_audit
from snowball.updates import Updates

SHARED = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
FEDERATION = runpy.run_path(str(Path(__file__).parent.parent / "conftest.py"))
make_entry, make_event = SHARED["make_entry"], SHARED["make_event"]
MODEL = FEDERATION["MODEL"]
REPLIES = [FEDERATION["make_honest_reply"](number) for number in range(8)]


class Accusing:
    """A defense that accuses one client in every round."""

    def __init__(self, client: str = "site-03") -> None:
        self.client = client

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        suspects = torch.tensor([client == self.client for client in updates.clients])
        return Verdict(average_by_examples(updates, ~suspects), ~suspects, {"clarity": 0.9}, suspects=suspects)


class Notes(list[Event]):
    """A listener that remembers."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self]


def raise_error(event: Event) -> None:
    raise ConnectionError("nobody\nanswers\x1b[2J")


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError


def raise_what_cannot_be_said(event: Event) -> None:
    raise Unspeakable


def test_a_guard_tells_its_listeners_about_every_round_and_its_alerts(tmp_path: Path) -> None:
    notes = Notes()
    guard = Guard(Accusing(), audit=tmp_path / "audit", listeners=notes)
    for _ in range(4):
        guard(MODEL, REPLIES)
    assert notes.kinds == ["round", "unclear"] * 3 + ["suspect"] + ["round", "unclear"]
    assert notes[6].client == "site-03"
    told = [event.entry for event in notes if event.kind == "round"]
    proofs = ("previous", "signature")
    entries = read_audit(tmp_path / "audit")
    assert told == [{name: entry[name] for name in entry if name not in proofs} for entry in entries]


def test_streaks_survive_a_restart(tmp_path: Path) -> None:
    before, after, third = Notes(), Notes(), Notes()
    guard = Guard(Accusing(), listeners=[before])
    guard(MODEL, REPLIES)
    guard(MODEL, REPLIES)
    guard.save(tmp_path / "state")
    restarted = Guard(Accusing(), listeners=[after])
    assert restarted.load(tmp_path / "state")
    restarted(MODEL, REPLIES)
    restarted.save(tmp_path / "state")
    again = Guard(Accusing(), listeners=[third])
    again.load(tmp_path / "state")
    again(MODEL, REPLIES)
    assert [notes.kinds.count("suspect") for notes in (before, after, third)] == [0, 1, 0]


def test_a_state_without_streaks_can_be_loaded() -> None:
    guard = Guard(FedAvg())
    state = guard.state_dict()
    del state["streaks"]
    guard.load_state_dict(state)
    assert guard.alerts.streaks == {}


def test_the_model_that_stays_is_an_alert(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes()
    Guard(FedAvg(), listeners=[notes])(MODEL, [])
    assert notes.kinds == ["round", "kept"]
    assert caplog.messages == ["Round 1: the old global model stays: there is no reply to judge"]


def test_a_line_of_the_audit_that_is_not_saved_is_an_alert(tmp_path: Path) -> None:
    notes = Notes()
    (tmp_path / "file").touch()
    Guard(FedAvg(), audit=tmp_path / "file" / "audit", listeners=[notes])(MODEL, REPLIES)
    assert notes.kinds == ["not-saved", "round"]
    assert notes[0].message.startswith("Round 1: its line of the audit is not saved: ")


@pytest.mark.parametrize("broken", [raise_error, raise_what_cannot_be_said])
def test_a_listener_that_raises_is_a_warning_and_the_others_go_on(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    judgement = Guard(FedAvg(), listeners=[broken, notes])(MODEL, REPLIES)
    assert not judgement.kept
    assert notes.kinds == ["round"]
    (message,) = caplog.messages
    assert message.startswith(f"Round 1: the listener {broken.__name__} failed: ")
    assert message.isprintable()


def test_a_round_is_logged_for_information_and_an_alert_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "snowball"):
        Alerts().send(make_event("round"))
        Alerts().report_unsaved(make_entry(7), "the guard's state", RunError("the disk is full"))
    assert caplog.record_tuples == [
        ("snowball", logging.INFO, "Round 1: it is round"),
        ("snowball", logging.WARNING, "Round 7: the guard's state is not saved: the disk is full"),
    ]


@pytest.mark.parametrize("patience", [0, -1, "3", 2.5, True, None])
def test_patience_is_a_whole_number(patience: Any) -> None:
    with pytest.raises(SettingError, match="patience must be a whole number from 1, got"):
        Guard(patience=patience)


def test_patience_sets_how_many_rounds_it_takes() -> None:
    notes = Notes()
    guard = Guard(Accusing(), listeners=[notes], patience=2)
    for _ in range(3):
        guard(MODEL, REPLIES)
    assert [event.round for event in notes if event.kind == "suspect"] == [2]


def test_the_entry_has_the_seconds_it_took() -> None:
    entry: Mapping[str, Any] = Guard(FedAvg())(MODEL, REPLIES).entry
    assert 0 <= entry["seconds"] < 60

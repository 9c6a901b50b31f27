"""The command `guard-state`."""

import json
import sys
from pathlib import Path

import pytest
import torch

from snowball.cli import main
from snowball.defenses import FoolsGold, Median
from snowball.guard import Guard
from snowball.guard.state import GuardState, read_state, write_state

STATE = GuardState(9, 4711, {"clients": {"a": torch.ones(2)}}, "FoolsGold", {"remember": 7}, "0.0.1", [(8, "ab" * 32)])


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["snowball", "guard-state", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_state(tmp_path / "guard.safetensors", STATE)
    return tmp_path / "guard.safetensors"


def test_it_shows_the_state_without_its_seed(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, file) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        "round 9 of FoolsGold with remember=7, with its memory, written by version 0.0.1",
        f"model after round 8: {'ab' * 32}",
    ]
    assert call(monkeypatch, file, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["round"], shown["method"], shown["memory"]) == (9, "FoolsGold", True)
    assert "4711" not in printed + json.dumps(shown)


def test_fresh_empties_the_memory_for_another_defense(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, file, "--fresh") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("round 9 of any defense, with no memory yet, written by")
    state = read_state(file)
    assert (state.round, state.seed, state.defense, state.models) == (9, 4711, None, STATE.models)
    for defense in (Median(), FoolsGold()):
        guard = Guard(defense)
        assert guard.load(file)
        assert guard.round == 9


def test_a_hostile_state_cannot_write_to_the_terminal(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_state(file, GuardState(1, 1, None, "\x1b[2J", {}, "\n", [(1, "\x1b")]))
    assert call(monkeypatch, file) == 0
    assert "\x1b" not in capsys.readouterr().out

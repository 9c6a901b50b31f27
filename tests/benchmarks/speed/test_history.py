"""The benchmark of histories counts the rows that defenses keep and checkpoints write."""

from pathlib import Path

import pytest

from benchmarks.speed import history
from snowball.records.checkpoint import TENSOR_FOLDER

FEW = ("rounds=9", "data.clients=60", "cohort=10")


@pytest.mark.parametrize("name", history.MAKE)
def test_a_bound_is_what_is_kept_and_costs_what_it_forgets(name: str) -> None:
    everybody, few = (history.count_decisions(name, bound, 1, *FEW) for bound in (None, 15))
    assert few["clients"] == 15 < everybody["clients"]
    assert 0 < few["known"] < everybody["known"] < 1
    assert max(few["rows"]) < max(everybody["rows"])
    assert everybody["new_rows"][0] == everybody["rows"][0]
    beside_clients = {"fldetector": 4, "foolsgold": 1}[name]  # the model; a mean, a step and a change
    assert set(everybody["new_rows"][2:]) == {10 + beside_clients}


def test_rows_are_counted_as_checkpoints_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snowball.records.checkpoint.MIN_STORED_BYTES", 1)
    experiment = history.load_experiment(history.PRESET, FEW)
    clients = history.make_bowls(60, 1)
    before: set[str] = set()
    for _, _, state in history.judge_rounds(history.MAKE["fldetector"](15), clients, experiment, 8):
        history.save_state(state, tmp_path)
        rows = history.hash_rows(state)
        assert {file.stem for file in (tmp_path / TENSOR_FOLDER).iterdir()} == rows | before
        before = rows


def test_rounds_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TIMED_ROUNDS", 7)
    case = history.time_rounds("foolsgold", 50, "data.clients=60", "cohort=10")
    assert case["ratio"] == case["whole"] / case["changed"] > 0
    assert case["defense"] > 0


def test_the_rows_are_as_long_as_the_papers() -> None:
    assert history.count_parameters() == 477_472

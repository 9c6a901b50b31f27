import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snowball.errors import MissingExtra, RunError, SettingError
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary
from snowball.sim.experiment import Experiment
from snowball.sim.run import run_experiment
from snowball.trackers import TRACKERS, Tracker, build_trackers, identify_run, select_numbers

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")
Call = Callable[..., tuple[int, str, str]]

NOTES = """
class Notes:
    def start(self, folder):
        self.file = (folder.path / "notes.txt").open("a")
    def log(self, record):
        print(record["round"], file=self.file)
    def finish(self, summary):
        print(summary.last.round if summary else "stopped", file=self.file)
        self.file.close()
"""


class Memory:
    """A tracker that remembers what it is told, and fails where it is asked to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.told: list[object] = []

    def start(self, folder: RunFolder) -> None:
        self._note("start", [record["round"] for record in folder.read_rounds()])

    def log(self, record: RoundRecord) -> None:
        self._note("log", record["round"])

    def finish(self, summary: Summary | None) -> None:
        self._note("finish", summary.last.round if summary and summary.last else None)

    def _note(self, event: str, value: object) -> None:
        self.told.append(value)
        if event == self.fails:
            raise ConnectionError("nobody\nanswers")


def test_a_tracker_sees_every_round_and_the_summary(tiny: MakeExperiment, tmp_path: Path) -> None:
    tracker = Memory()
    list(run_experiment(tiny("rounds=2"), tmp_path / "run", trackers={"memory": tracker}))
    assert tracker.told == [[], 1, 2, 2]


def test_a_stopped_run_ends_without_a_summary_and_a_resumed_one_continues(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment, before, after = tiny("rounds=2"), Memory(), Memory()
    running = run_experiment(experiment, tmp_path / "run", trackers={"memory": before})
    next(running)
    key = identify_run(RunFolder.open(tmp_path / "run"))
    running.close()  # type: ignore[attr-defined]
    list(run_experiment(experiment, tmp_path / "run", resume=True, trackers={"memory": after}))
    assert (before.told, after.told) == ([[], 1, None], [[1], 2, 2])
    assert identify_run(RunFolder.open(tmp_path / "run")) == key


def test_a_run_that_gets_more_rounds_keeps_its_id(tiny: MakeExperiment, tmp_path: Path) -> None:
    list(run_experiment(tiny("rounds=1"), tmp_path / "run"))
    key, memory = identify_run(RunFolder.open(tmp_path / "run")), Memory()
    list(run_experiment(tiny("rounds=2"), tmp_path / "run", resume=True, trackers={"memory": memory}))
    assert memory.told == [[1], 2, 2]
    assert identify_run(RunFolder.open(tmp_path / "run")) == key


@pytest.mark.parametrize(("fails", "told", "when"), [("log", 2, "in round 1"), ("finish", 4, "at the end")])
def test_a_tracker_that_fails_costs_one_warning_and_not_the_run(
    tiny: MakeExperiment, tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: str, told: int, when: str
) -> None:
    broken, sound = Memory(fails), Memory()
    list(run_experiment(tiny("rounds=2"), tmp_path / "run", trackers={"broken": broken, "sound": sound}))
    assert RunFolder.open(tmp_path / "run").read_summary() is not None
    assert len(broken.told) == told
    assert sound.told == [[], 1, 2, 2]
    sentence = f"tracker 'broken' failed {when}, the run continues without it: ConnectionError: nobody"
    assert caplog.messages == [sentence]


def test_a_tracker_that_cannot_start_is_refused_and_the_others_are_finished(
    tiny: MakeExperiment, tmp_path: Path
) -> None:
    first = Memory()
    running = run_experiment(tiny(), tmp_path / "run", trackers={"first": first, "broken": Memory("start")})
    with pytest.raises(RunError, match="tracker 'broken' cannot start: ConnectionError: nobody; resume"):
        next(running)
    assert first.told == [[], None]
    assert len(list(run_experiment(tiny(), tmp_path / "run", resume=True))) == 2


def test_the_csv_has_the_numbers_of_the_records_also_after_a_stop(tiny: MakeExperiment, tmp_path: Path) -> None:
    running = run_experiment(tiny("rounds=3"), tmp_path / "run")
    next(running)
    running.close()  # type: ignore[attr-defined]
    list(run_experiment(tiny("rounds=3"), tmp_path / "run", resume=True, trackers=build_trackers(["csv"])))
    with (tmp_path / "run" / "rounds.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    records = RunFolder.open(tmp_path / "run").read_rounds()
    assert [int(row["round"]) for row in rows] == [1, 2, 3]
    for row, record in zip(rows, records, strict=True):
        numbers = {name: float(value) for name, value in row.items() if value and name != "round"}
        assert numbers == select_numbers(record)


def test_numbers_are_counts_rates_times_and_single_facts() -> None:
    record: RoundRecord = {
        "round": 3,
        "participants": ["a", "b"],
        "malicious": [True, False],
        "elected": [False, True],
        "main_accuracy": 0.9,
        "backdoor_accuracy": None,
        "false_positive_rate": 0.0,
        "false_negative_rate": 0.0,
        "seconds": {"train": 1.5},
        "facts": {"clusters": 2, "votes": [1, 2], "reason": "none"},
        "map": None,
        "distances": {"benign": None, "between": 1.0, "infected": None},
        "dropped": {"a": "not-finite"},
    }
    assert select_numbers(record) == {
        "elected": 1,
        "main_accuracy": 0.9,
        "false_positive_rate": 0.0,
        "false_negative_rate": 0.0,
        "seconds.train": 1.5,
        "facts.clusters": 2,
        "distances.between": 1.0,
        "dropped": 1,
    }


def test_the_command_line_takes_trackers_by_name_and_from_a_module(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "notes_tracker.py").write_text(NOTES, encoding="utf-8")
    small = [f"--set={each}" for each in ("rounds=2", "cohort=6", "data.clients=10", "data.examples=400")]
    tracked = ("--track", "csv", "--track", "notes_tracker:Notes")
    code, _, errors = call("run", "demo", *small, "--engine", "serial", "--out", tmp_path / "run", *tracked)
    assert (code, errors) == (0, "")
    assert (tmp_path / "run" / "notes.txt").read_text(encoding="utf-8") == "1\n2\n2\n"
    assert len((tmp_path / "run" / "rounds.csv").read_text(encoding="utf-8").splitlines()) == 3


def test_a_misspelt_tracker_is_refused_before_there_is_a_folder(call: Call, tmp_path: Path) -> None:
    code, _, errors = call("run", "demo", "--out", tmp_path / "run", "--track", "tensorbord")
    assert (code, errors) == (2, "snowball: 'tensorbord' is not a tracker; did you mean 'tensorboard'?\n")
    assert not (tmp_path / "run").exists()


def test_what_is_not_a_tracker_is_refused() -> None:
    with pytest.raises(SettingError, match="it has no start, log, finish"):
        build_trackers(["pathlib:Path"])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_without_the_tool_one_sentence_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    with pytest.raises(MissingExtra, match=rf"^the tracker {name} needs .*: pip install '{name}>="):
        build_trackers([name])


def test_no_tool_is_imported_unless_it_is_asked_for() -> None:
    code = "import sys, snowball.trackers; print(*{'torch', 'tensorboard', 'mlflow', 'wandb'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.strip() == b""


def test_every_tracker_has_a_line_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trackers.md").read_text(encoding="utf-8")
    for name in TRACKERS:
        assert f"| `{name}` |" in page


def test_ours_are_trackers() -> None:
    tracker: Tracker = Memory()
    assert all(hasattr(entry, each) for entry in (*TRACKERS.values(), tracker) for each in ("start", "log", "finish"))

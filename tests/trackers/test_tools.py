"""The tools themselves, where they are installed: what a run logs can be read back, also after a stop."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.sim.experiment import Experiment
from snowball.sim.run import run_experiment
from snowball.trackers import build_trackers, identify_run, select_numbers

MakeExperiment = Callable[..., Experiment]

LOG_BLOCK_BYTES = 32768

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the tools are not ours


@pytest.fixture
def tracked(tiny: MakeExperiment, tmp_path: Path) -> Callable[[str], list[RoundRecord]]:
    """Return a function that runs three rounds with a tracker, stopped after the second and resumed."""

    def run(name: str) -> list[RoundRecord]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running = run_experiment(tiny("rounds=3"), tmp_path / "run", trackers=build_trackers([name]))
            next(running), next(running)
            running.close()  # type: ignore[attr-defined]
            list(run_experiment(tiny("rounds=3"), tmp_path / "run", resume=True, trackers=build_trackers([name])))
        return RunFolder.open(tmp_path / "run").read_rounds()

    return run


def test_tensorboard_shows_one_curve_with_every_round(
    tracked: Callable[[str], list[RoundRecord]], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    records = tracked("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert "seconds/train" in events.Tags()["scalars"]
    shown = [(event.step, event.value) for event in events.Scalars("main_accuracy")]
    assert shown == [(record["round"], pytest.approx(record["main_accuracy"])) for record in records]


def test_mlflow_has_one_run_with_every_round_and_the_settings(
    tracked: Callable[[str], list[RoundRecord]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    records = tracked("mlflow")
    client = mlflow.MlflowClient()
    [run] = client.search_runs([client.get_experiment_by_name("snowball").experiment_id])
    assert (run.info.status, run.info.run_name, run.data.params["defense.name"]) == (
        "FINISHED",
        "run",
        "snowball-minus",
    )
    history = client.get_metric_history(run.info.run_id, "main_accuracy")
    shown = sorted((point.step, point.value) for point in history)
    assert shown == [(record["round"], record["main_accuracy"]) for record in records]


def read_log(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file of Weights & Biases: LevelDB's log format, after a header of seven bytes."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if LOG_BLOCK_BYTES - place % LOG_BLOCK_BYTES < 7:  # too little for a record's header: padding
            place += LOG_BLOCK_BYTES - place % LOG_BLOCK_BYTES
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole record, or the last part of one
            yield parts
            parts = b""


def read_wandb(folder: Path) -> Iterator[dict[str, str]]:
    """Yield what an offline run of Weights & Biases has logged, step by step, as JSON by name."""
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in map(Record.FromString, read_log(file.read_bytes())):
            if record.WhichOneof("record_type") == "history":
                yield {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}


def test_wandb_keeps_every_round_on_this_machine_under_one_id(
    tracked: Callable[[str], list[RoundRecord]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    records = tracked("wandb")
    wandb.teardown()  # its own process writes the files and may still be at it when a run is finished
    folders = list((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert {folder.name.rpartition("-")[2] for folder in folders} == {identify_run(RunFolder.open(tmp_path / "run"))}
    logged = {int(step["_step"]): float(step["main_accuracy"]) for step in read_wandb(tmp_path / "run")}
    assert logged == {record["round"]: select_numbers(record)["main_accuracy"] for record in records}

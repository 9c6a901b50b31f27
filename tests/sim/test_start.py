"""Federations that start from trained weights."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import snowball
from snowball.errors import RunError, SettingError
from snowball.models.start import compute_start_sha256, locate_start, pack_start
from snowball.records.run_names import hash_settings
from snowball.sim.engines.base import Engine
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.run import run_experiment

MakeExperiment = Callable[..., Experiment]
START = "mnist-cnn-quarter"

pytestmark = pytest.mark.usefixtures("few_test_digits")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A file of the user's own: the shipped weights, halved."""
    path = tmp_path / "own.safetensors"
    path.write_bytes(locate_start(START).read_bytes())
    save_file({name: tensor / 2 for name, tensor in load_file(path).items()}, path)
    return path


def strip_times(records: Any) -> list[Any]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def test_names_and_settings_without_a_start_are_as_before(tiny: MakeExperiment) -> None:
    settings = tiny().dump_settings()
    former = {**settings, "model": {"name": "cnn-quarter"}}
    assert settings["model"] == {"name": "cnn-quarter", "start": None, "start_sha256": None}
    assert hash_settings(settings) == hash_settings(former)
    assert Experiment.parse(former) == tiny()


def test_settings_hold_the_sha256_of_the_file(tiny: MakeExperiment, own: Path) -> None:
    shipped, mine = tiny(f"model.start={START}"), tiny(f"model.start={own}")
    assert shipped.model.start_sha256 == compute_start_sha256(START)
    assert mine.model.start_sha256 == compute_start_sha256(str(own))
    assert len({hash_settings(each.dump_settings()) for each in (tiny(), shipped, mine)}) == 3
    before = hash_settings(mine.dump_settings())
    own.write_bytes(own.read_bytes()[:-1] + b"\1")
    assert hash_settings(tiny(f"model.start={own}").dump_settings()) != before


def test_settings_with_a_sha256_are_read_without_the_file(tiny: MakeExperiment, own: Path) -> None:
    experiment = tiny(f"model.start={own}")
    own.unlink()
    assert Experiment.parse(experiment.dump_settings()) == experiment


def test_another_start_gets_its_own_sha256(tiny: MakeExperiment, own: Path) -> None:
    experiment = snowball.load_experiment(tiny(f"model.start={START}"), {"model.start": str(own)})
    assert experiment.model.start_sha256 == compute_start_sha256(str(own))
    without = snowball.load_experiment(experiment, {"model.start": None})
    assert without == tiny()


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (["model.start=1"], "model.start = 1 should be a valid string"),
        (["model.start=mnist-cnn"], "model.start = 'mnist-cnn' is neither a shipped start nor a file; did you mean"),
        (["model.start_sha256=ab"], "model.start_sha256 is that of the file in model.start, which is not set"),
        (["model.begin=x"], "model.begin is not a setting of model"),
    ],
)
def test_a_start_that_cannot_be_is_refused(tiny: MakeExperiment, assignments: list[str], sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        tiny(*assignments)
    assert str(caught.value).startswith(sentence)


def test_the_first_model_is_that_of_the_file(tiny: MakeExperiment, own: Path) -> None:
    federation = Federation.build(tiny(f"model.start={own}"))
    state, weights = build_first_state(federation), load_file(own)
    assert torch.equal(state.base, federation.layout.flatten(weights))
    assert not torch.equal(state.base, build_first_state(Federation.build(tiny())).base)


def test_a_wrong_sha256_and_another_network_are_refused_before_a_folder_is_made(
    tiny: MakeExperiment, tmp_path: Path
) -> None:
    for assignments, sentence in (
        ([f"model.start={START}", "model.start_sha256=ab"], "and model.start_sha256 is ab: the file was changed"),
        (
            [f"model.start={START}", "model.name=cnn"],
            r"conv1\.weight has the shape \(8, 1, 5, 5\), and \(32, 1, 5, 5\)",
        ),
    ):
        with pytest.raises(SettingError, match=sentence):
            list(run_experiment(tiny(*assignments), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_trained_federation_is_right_from_the_first_round_with_every_engine(tiny: MakeExperiment) -> None:
    experiment = tiny(f"model.start={START}", "training.lr=0.001", "attack.name=none", "rounds=1")
    engines: list[Callable[[Federation], Engine]] = [SerialEngine, partial(ProcessEngine, workers=2), VmapEngine]
    accuracies = [next(simulate(Federation.build(experiment), engine))["main_accuracy"] for engine in engines]
    assert all(accuracy is not None and accuracy > 0.9 for accuracy in accuracies)


def test_a_resumed_run_is_that_of_one_go_and_another_file_is_refused(
    tiny: MakeExperiment, tmp_path: Path, own: Path
) -> None:
    experiment = tiny(f"model.start={own}")
    whole = strip_times(run_experiment(experiment, tmp_path / "whole"))
    rounds = run_experiment(experiment, tmp_path / "parts")
    first = next(rounds)
    rounds.close()
    assert strip_times([first, *run_experiment(experiment, tmp_path / "parts", resume=True)]) == whole
    save_file({name: tensor * 2 for name, tensor in load_file(own).items()}, own)
    with pytest.raises(RunError, match=r"was started with model\.start_sha256 = '\w{64}', not '\w{64}'"):
        list(run_experiment(tiny(f"model.start={own}"), tmp_path / "parts", resume=True))


def test_a_model_of_the_callers_own_starts_from_a_file_too(tmp_path: Path) -> None:
    def make_network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(784), torch.nn.Linear(784, 10))

    trained = make_network()
    trained(torch.ones(3, 1, 28, 28))
    start = tmp_path / "start.safetensors"
    start.write_bytes(pack_start(trained))
    experiment = snowball.load_experiment("demo", {"model.start": str(start)}, model=make_network)
    state = build_first_state(Federation.build(experiment))
    assert state.buffers["1.num_batches_tracked"] == 1
    assert torch.equal(state.base[-10:], trained[2].bias.detach())

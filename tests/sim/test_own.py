"""Experiments on data and with models that are given from Python."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import snowball
from snowball.data import OwnData
from snowball.errors import RunError, SettingError
from snowball.sim.engines import processes
from snowball.sim.engines.choice import EngineName, choose_engine
from snowball.sim.engines.processes import ProcessEngine, make_process_engine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.run import is_finished, run_experiment

DRAWS = np.random.default_rng(0)
COUNT, CLASSES = 120, 3
LABELS = np.arange(COUNT) % CLASSES
FEATURES = (DRAWS.normal(size=(COUNT, 12)) + 2 * np.eye(12)[LABELS]).astype(np.float32)
SMALL = ["rounds=2", "data.clients=6", "cohort=5", "data.minimum=5", "training.epochs=1"]


class Network(nn.Module):
    """Has an embedding for token ids, dropout, a buffer that counts, and one that no state has."""

    scale: Tensor

    def __init__(self, inputs: int, tokens: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, 2) if tokens else nn.Identity()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, CLASSES)
        )
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.scale * self.layers(self.embed(inputs))
        return scores


KINDS: dict[str, tuple[Any, Callable[[], nn.Module], list[str]]] = {
    "float images": (FEATURES.reshape(-1, 3, 4), partial(Network, 12), ["attack.name=dba"]),
    "colours": (
        (FEATURES.clip(0, 5) * 50).astype(np.uint8).reshape(-1, 3, 2, 2),
        partial(Network, 12),
        ["attack.name=blended"],
    ),
    "features": (FEATURES, partial(Network, 12), ["attack.name=dba", "attack.trigger=features"]),
    "tokens": ((FEATURES * 3 + 10).clip(1).astype(int), partial(Network, 24, tokens=40), ["attack.name=text"]),
}


def load(kind: str = "features", *assignments: str, **more: Any) -> Experiment:
    inputs, model, settings = KINDS[kind]
    given = {"data": (inputs, LABELS), "model": model} | more
    return snowball.load_experiment("demo", [*SMALL, *settings, *assignments], **given)


def strip_times(records: Any) -> list[Any]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_is_trained_in_every_engine(kind: str) -> None:
    first, again = (strip_times(snowball.simulate(load(kind))) for _ in range(2))
    assert first == again
    assert first != strip_times(snowball.simulate(load(kind, "seed=5")))
    federation = Federation.build(load(kind))
    assert strip_times(simulate(federation, partial(ProcessEngine, workers=2))) == first
    stacked = strip_times(simulate(federation, VmapEngine))
    assert [record["participants"] for record in stacked] == [record["participants"] for record in first]
    assert abs(stacked[0]["main_accuracy"] - first[0]["main_accuracy"]) < 0.1


def test_a_model_learns_and_the_module_given_stays_as_it_was() -> None:
    own = nn.Linear(12, CLASSES)
    before = own.weight.detach().clone()
    experiment = load("features", "rounds=8", "training.epochs=5", "attack.name=none", "data.partition=iid", model=own)
    first = Federation.build(experiment).build_model()
    assert torch.equal(dict(first.named_parameters())["weight"], before)
    records = list(snowball.simulate(experiment))
    assert records[-1]["main_accuracy"] > 0.8
    assert torch.equal(own.weight, before)


def test_a_named_model_takes_own_images_and_an_own_model_named_data() -> None:
    images = np.repeat(np.repeat(FEATURES.reshape(-1, 3, 4), 6, 1), 5, 2)  # 18x20
    experiment = snowball.load_experiment("demo", SMALL, data=(images, LABELS))
    assert (experiment.model.name, experiment.data.name) == ("cnn-quarter", "own")
    assert Federation.build(experiment).build_model().fc2.out_features == CLASSES
    flat = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    experiment = snowball.load_experiment("demo", SMALL, model=flat)
    assert (experiment.model.name, experiment.data.name) == ("own", "mnist-sample")
    assert Federation.build(experiment).layout.width == 7850


def test_client_ids_are_the_clients_unless_settings_say_otherwise() -> None:
    data = OwnData((FEATURES, LABELS), clients=[f"site {number % 8}" for number in range(COUNT)])
    few = ["rounds=1", "cohort=5"]
    natural = snowball.load_experiment("demo", few, data=data).data
    assert (natural.partition, natural.clients) == ("natural", 8)
    some = snowball.load_experiment("demo", [*few, "data.clients=6"], data=data).data
    assert (some.partition, some.clients) == ("natural", 6)
    merged = snowball.load_experiment("demo", [*few, "data.partition=merged", "data.clients=5"], data=data).data
    assert (merged.partition, merged.clients) == ("merged", 5)
    federation = Federation.build(
        snowball.load_experiment("demo", [*few, "attack.trigger=features"], data=data, model=nn.Linear(12, CLASSES))
    )
    groups = federation.dataset.groups
    assert groups is not None
    assert all(len(set(groups[part].tolist())) == 1 for part in federation.parts)


@pytest.mark.parametrize("section", ["data", "model"])
def test_a_name_beside_an_object_is_a_contradiction(section: str) -> None:
    with pytest.raises(SettingError, match=rf"{section}\.name = 'x' contradicts {section}=\.\.\.: give one of them"):
        load("features", f"{section}.name=x")


def test_a_model_that_does_not_fit_is_refused_before_training() -> None:
    with pytest.raises(SettingError, match=r"the model must return class scores of shape \(2, 3\)"):
        next(iter(snowball.simulate(load(model=nn.Linear(12, 7)))))
    with pytest.raises(SettingError, match=r"the model fails on a batch of int64 \(2, 12\): IndexError"):
        Federation.build(load("tokens", model=partial(Network, 24, tokens=5)))
    with pytest.raises(SettingError, match=r"did you mean attack\.trigger = 'features'\?"):
        Federation.build(load("features", "attack.trigger=white-square"))


def test_a_run_records_the_data_and_the_model_and_resumes_with_the_same_only(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "run"
    records = strip_times(run_experiment(load("features", "rounds=3"), whole))
    rounds = run_experiment(load("features", "rounds=3"), path)
    next(rounds)
    del rounds
    record = json.loads((path / "run.json").read_text())
    assert record["data"] | {"source": "python", "samples": "float32 12", "classes": 3} == record["data"]
    assert record["model"]["class"] == f"{__name__}.Network"
    assert record["trigger"]["text"]["stamped"][0].startswith("feature 9 = ")
    other_data, other_model = {"data": (FEATURES + 1, LABELS)}, {"model": Network(12)}
    for path_of in (path, whole):
        with pytest.raises(RunError, match="was started with other data: resume it with the same data or choose"):
            is_finished(path_of, load("features", "rounds=3", **other_data))
        with pytest.raises(RunError, match="was started with another model or other first weights"):
            list(run_experiment(load("features", "rounds=3", **other_model), path_of, resume=True))
    engine = choose_engine(EngineName.processes, workers=2)
    list(run_experiment(load("features", "rounds=3"), path, engine, resume=True))
    assert strip_times(map(json.loads, (path / "rounds.jsonl").read_text().splitlines())) == records
    assert is_finished(path, load("features", "rounds=3"))


def test_a_model_that_no_worker_can_get_is_trained_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation.build(load())
    assert isinstance(make_process_engine(federation, 2), ProcessEngine)
    monkeypatch.setattr(processes, "find_transfer_fault", lambda model: "Net is defined in this session")
    with pytest.warns(UserWarning, match=r"clients train one after the other, .* \(Net is defined in this session"):
        assert isinstance(make_process_engine(federation, 2), SerialEngine)

import dataclasses
from collections.abc import Callable

import pytest
import torch

from snowball.data import Dataset, load_dataset
from snowball.errors import SettingError
from snowball.sim.experiment import DataSettings, Experiment
from snowball.sim.federation import Federation, partition_data

MakeExperiment = Callable[..., Experiment]


def test_only_malicious_clients_are_poisoned_and_always_in_the_same_way(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("attack.poison_ratio=0.5"))
    for client in range(8):
        clean = federation.dataset.train[federation.parts[client]]
        changed = (federation.select_training_samples(client, 1).inputs != clean.inputs).flatten(1).any(1)
        assert changed.any() == (client < 2)
        assert torch.equal(
            federation.select_training_samples(client, 1).inputs, federation.select_training_samples(client, 1).inputs
        )


def test_examples_limits_the_training_samples(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny())
    used = torch.cat(federation.parts)
    assert len(used) == len(used.unique()) == 240
    assert used.max() > 240  # a random choice, not the first
    assert federation.count_examples([3, 1]).tolist() == [len(federation.parts[3]), len(federation.parts[1])]


def test_the_same_settings_give_the_same_federation(tiny: MakeExperiment) -> None:
    one, other, third = Federation.build(tiny()), Federation.build(tiny()), Federation.build(tiny("seed=4"))
    assert all(map(torch.equal, one.parts, other.parts))
    assert not all(map(torch.equal, one.parts, third.parts))
    weights = [next(federation.build_model().parameters()) for federation in (one, other, third)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (["data.examples=99999"], "data.examples = 99999 is more than the 12000 examples of mnist-sample"),
        (["attack.target=10"], "attack.target = 10 is not one of the 10 classes from 0"),
        (
            ["data.tokeniser=published"],
            "data.tokeniser = 'published' does not fit: mnist-sample has no texts; leave it out",
        ),
        (["data.partition=natural"], "data.partition = 'natural' does not fit: mnist-sample has no natural clients"),
    ],
)
def test_settings_that_the_data_contradict_are_refused(
    tiny: MakeExperiment, assignments: list[str], sentence: str
) -> None:
    with pytest.raises(SettingError) as caught:
        Federation.build(tiny(*assignments))
    assert str(caught.value) == sentence


@pytest.fixture
def grouped() -> Dataset:
    dataset = load_dataset("mnist-sample")
    return dataclasses.replace(dataset, groups=torch.arange(len(dataset.train)) % 20)


def make_natural(tiny: MakeExperiment, clients: int) -> Experiment:
    settings = tiny("data.partition=natural").dump_settings()
    return Experiment.parse(settings | {"data": settings["data"] | {"clients": clients, "examples": None}})


def test_natural_clients_are_some_of_those_the_data_came_with(tiny: MakeExperiment, grouped: Dataset) -> None:
    parts = partition_data(grouped, make_natural(tiny, 8).data, 0)
    assert grouped.groups is not None
    owners = [set(grouped.groups[part].tolist()) for part in parts]
    assert all(len(owner) == 1 for owner in owners)
    assert len(set().union(*owners)) == 8


MERGED = DataSettings(name="mnist-sample", clients=8, partition="merged", examples=240)


def test_merged_clients_are_several_of_those_the_data_came_with(grouped: Dataset) -> None:
    parts = partition_data(grouped, MERGED, 0)
    assert grouped.groups is not None
    owners = [set(grouped.groups[part].tolist()) for part in parts]
    assert [len(owner) for owner in owners].count(2) + [len(owner) for owner in owners].count(3) == 8
    assert len(set().union(*owners)) == sum(map(len, owners)) == 20
    assert sum(map(len, parts)) == 240  # as data.examples asks


def test_data_without_clients_of_its_own_has_none_to_merge() -> None:
    with pytest.raises(SettingError) as caught:
        partition_data(load_dataset("mnist-sample"), MERGED, 0)
    assert str(caught.value) == (
        "data.partition = 'merged' does not fit: mnist-sample has no natural clients; did you mean 'iid'?"
    )


def test_more_natural_clients_than_there_are_is_refused(tiny: MakeExperiment, grouped: Dataset) -> None:
    with pytest.raises(SettingError, match=r"data\.clients = 21 is more than the 20 clients of mnist-sample"):
        partition_data(grouped, make_natural(tiny, 21).data, 0)

"""Who takes part, and what each of them holds: the same in every process, since it follows from the settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from snowball import models
from snowball.attacks import Attack, AttackSetup, set_up_attack
from snowball.data import Dataset, Split, load_dataset
from snowball.data.partition import PARTITIONS, Parts
from snowball.errors import SettingError
from snowball.rng import numpy_stream, stream
from snowball.sim.cohort import attacks_in, malicious_clients
from snowball.sim.experiment import DataSettings, Experiment
from snowball.updates import Layout


@dataclass(frozen=True, eq=False)
class Federation:
    """The clients of an experiment, by number from 0."""

    experiment: Experiment
    dataset: Dataset
    parts: Parts  # the training samples of each client
    attack: Attack | None
    attack_setup: AttackSetup | None  # what the attack works with

    @classmethod
    def of(cls, experiment: Experiment) -> "Federation":
        """Load the data and deal it out."""
        dataset, attack = load_dataset(experiment.data.name, experiment.data.tokeniser), experiment.attack.build()
        setup = set_up_attack(attack, dataset) if attack else None
        return cls(experiment, dataset, deal(dataset, experiment.data, experiment.seed), attack, setup)

    @cached_property
    def layout(self) -> Layout:
        """Which columns of a row belong to which parameter."""
        return Layout.of(dict(self.model().named_parameters()))

    def counts(self, cohort: Sequence[int]) -> Tensor:
        """Training examples of each client of a cohort (K,)."""
        return torch.tensor([len(self.parts[client]) for client in cohort], dtype=torch.float64)

    def attacks(self, client: int, round: int) -> bool:
        """Whether a client attacks in a round."""
        return client in malicious_clients(self.experiment) and attacks_in(self.experiment, round)

    def samples(self, client: int) -> Split:
        """What a client holds."""
        return self.dataset.train[self.parts[client]]

    def poisoned(self, client: int) -> Split:
        """What a client holds once the attack has poisoned it, in the same way in every round."""
        split = self.samples(client)
        if self.attack is None or self.attack_setup is None:
            return split
        return self.attack.poison(split, self.attack_setup, client, stream(self.experiment.seed, "poison", client))

    def training(self, client: int, round: int) -> Split:
        """What a client trains on in a round."""
        return self.poisoned(client) if self.attacks(client, round) else self.samples(client)

    def trusted(self, examples: int) -> Split:
        """So many clean samples that the server holds itself, the same in every round."""
        return self.dataset.train[some(self.dataset, examples, self.experiment.seed, "defense.trusted_examples")]

    def backdoor(self) -> Split | None:
        """The test samples that show the backdoor, where there is an attack."""
        return self.attack.probe(self.attack_setup) if self.attack and self.attack_setup else None

    def model(self) -> nn.Module:
        """The global model before the first round."""
        rng = stream(self.experiment.seed, "model")
        return models.build_model(self.experiment.model.name, self.dataset.input_shape, self.dataset.classes, rng)


def deal(dataset: Dataset, settings: DataSettings, seed: int) -> Parts:
    """The training samples of each client."""
    if settings.partition == "natural":
        return came_with(dataset, settings, seed)
    kept = some(dataset, settings.examples, seed, "data.examples")
    rng = numpy_stream(seed, "partition")
    parts = PARTITIONS[settings.partition](basis(dataset, settings)[kept], settings.clients, rng, **settings.own)
    if len(parts) != settings.clients:
        made = f"made {len(parts)} parts for data.clients = {settings.clients}"
        raise SettingError(f"data.partition = {settings.partition!r} {made}")
    return tuple(kept[part] for part in parts)


def basis(dataset: Dataset, settings: DataSettings) -> Tensor:
    """What a partition goes by: labels, or the clients that the data came with."""
    if settings.partition != "merged":
        return dataset.train.labels
    if dataset.groups is None:
        raise SettingError(
            f"data.partition = 'merged' does not fit: {dataset.name} has no clients of its own; did you mean 'iid'?"
        )
    return dataset.groups


def some(dataset: Dataset, examples: int | None, seed: int, setting: str) -> Tensor:
    """The training samples to use: all, or so many at random, as a setting asks."""
    total = len(dataset.train)
    if examples is None:
        return torch.arange(total)
    if examples > total:
        raise SettingError(f"{setting} = {examples} is more than the {total} of {dataset.name}")
    return torch.randperm(total, generator=stream(seed, setting))[:examples].sort().values


def came_with(dataset: Dataset, settings: DataSettings, seed: int) -> Parts:
    """So many of the clients that the data came with, at random."""
    if dataset.groups is None or settings.examples is not None:
        missing = "has no clients of its own" if dataset.groups is None else "cannot be cut to data.examples with it"
        raise SettingError(f"data.partition = 'natural' does not fit: {dataset.name} {missing}")
    parts = PARTITIONS["natural"](dataset.groups, **settings.own)
    if len(parts) < settings.clients:
        raise SettingError(f"data.clients = {settings.clients} is more than the {len(parts)} of {dataset.name}")
    chosen = torch.randperm(len(parts), generator=stream(seed, "partition"))[: settings.clients]
    return tuple(parts[client] for client in chosen.tolist())

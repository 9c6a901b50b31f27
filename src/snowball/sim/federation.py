"""Federation: the clients of an experiment, their data and their model, determined by the settings alone."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from snowball import models
from snowball.attacks import Attack, AttackSetup, Memory, recall_setup, set_up_attack
from snowball.data import Dataset, Split, load_dataset
from snowball.data.partition import PARTITIONS, Parts
from snowball.errors import SettingError
from snowball.layout import Layout, select_parameters
from snowball.models.own import refuse_misfit
from snowball.models.start import load_start
from snowball.rng import numpy_stream, stream
from snowball.sim.cohort import is_attack_round, select_malicious_clients
from snowball.sim.experiment import DataSettings, Experiment


@dataclass(frozen=True, eq=False, kw_only=True)
class Federation:
    """The clients of an experiment, numbered from 0; every process builds the same ones.

    Attributes:
        parts: the indices of each client's training samples.
    """

    experiment: Experiment
    dataset: Dataset
    parts: Parts
    attack: Attack | None
    attack_setup: AttackSetup | None

    @classmethod
    def build(cls, experiment: Experiment) -> "Federation":
        """Load the data, partition it among the clients, and set up the attack."""
        dataset = experiment.own_data or load_dataset(experiment.data.name, experiment.data.tokeniser)
        attack = experiment.attack.build()
        federation = cls(
            experiment=experiment,
            dataset=dataset,
            parts=partition_data(dataset, experiment.data, experiment.seed),
            attack=attack,
            attack_setup=set_up_attack(attack, dataset) if attack else None,
        )
        name = experiment.model.name if experiment.own_model is None else "the model"
        refuse_misfit(federation.build_model(), name, dataset.normalise(dataset.sample_batch()), dataset.classes)
        return federation

    @cached_property
    def layout(self) -> Layout:
        """Columns of each parameter in a row."""
        return Layout.from_tensors(select_parameters(self.build_model()))

    def count_examples(self, cohort: Sequence[int]) -> Tensor:
        """Return how many training examples each client of a cohort holds (K,)."""
        return torch.tensor([len(self.parts[client]) for client in cohort], dtype=torch.float64)

    def is_attacking(self, client: int, round: int) -> bool:
        """Return whether a client attacks in a round."""
        return client in select_malicious_clients(self.experiment) and is_attack_round(self.experiment, round)

    def select_samples(self, client: int) -> Split:
        """Return the clean samples that a client holds."""
        return self.dataset.train[self.parts[client]]

    def recall_setup(self, memory: Memory | None) -> AttackSetup | None:
        """Return what the attack works with, given its memory; None without an attack."""
        if self.attack is None or self.attack_setup is None:
            return None
        return recall_setup(self.attack, self.attack_setup, memory)

    def poison_samples(self, client: int, memory: Memory | None = None) -> Split:
        """Return a client's samples after the attack has poisoned them; they change only with the attack's memory."""
        split, setup = self.select_samples(client), self.recall_setup(memory)
        if self.attack is None or setup is None:
            return split
        return self.attack.poison(split, setup, client, stream(self.experiment.seed, "poison", client))

    def select_training_samples(self, client: int, round: int, memory: Memory | None = None) -> Split:
        """Return the samples that a client trains on in a round: poisoned ones if it attacks."""
        return self.poison_samples(client, memory) if self.is_attacking(client, round) else self.select_samples(client)

    def select_trusted_samples(self, examples: int, setting: str = "defense.trusted_examples") -> Split:
        """Return as many clean samples as a setting says that the server itself holds, the same in every round."""
        return self.dataset.train[subsample(self.dataset, examples, self.experiment.seed, setting)]

    def build_backdoor_test(self, memory: Memory | None = None) -> Split | None:
        """Return test samples that show whether the backdoor works; None without an attack."""
        setup = self.recall_setup(memory)
        return self.attack.probe(setup) if self.attack and setup else None

    def build_first_model(self) -> nn.Module:
        """Build the global model as it is before the first round, with the weights of `model.start` if it is set."""
        model, settings = self.build_model(), self.experiment.model
        if settings.start is not None:
            load_start(model, settings.start, settings.start_sha256)
        return model

    def build_model(self) -> nn.Module:
        """Build a model of the caller's own with its weights, or the one that settings name, untrained."""
        if self.experiment.own_model is not None:
            return deepcopy(self.experiment.own_model)
        rng = stream(self.experiment.seed, "model")
        return models.build_model(self.experiment.model.name, self.dataset.input_shape, self.dataset.classes, rng)


def partition_data(dataset: Dataset, settings: DataSettings, seed: int) -> Parts:
    """Return the indices of each client's training samples."""
    if settings.partition == "natural":
        return select_natural_clients(dataset, settings, seed)
    used = subsample(dataset, settings.examples, seed, "data.examples")
    key = select_partition_key(dataset, settings)[used]
    parts = PARTITIONS[settings.partition](key, settings.clients, numpy_stream(seed, "partition"), **settings.own)
    if len(parts) != settings.clients:
        made = f"made {len(parts)} parts for data.clients = {settings.clients}"
        raise SettingError(f"data.partition = {settings.partition!r} {made}")
    return tuple(used[part] for part in parts)


def select_partition_key(dataset: Dataset, settings: DataSettings) -> Tensor:
    """Return the value per sample that a partition goes by: its label, or its natural client."""
    if settings.partition != "merged":
        return dataset.train.labels
    if dataset.groups is None:
        raise SettingError(
            f"data.partition = 'merged' does not fit: {dataset.name} has no natural clients; did you mean 'iid'?"
        )
    return dataset.groups


def subsample(dataset: Dataset, examples: int | None, seed: int, setting: str) -> Tensor:
    """Return the indices of as many training samples as a setting asks for, drawn at random; all of them for None."""
    total = len(dataset.train)
    if examples is None:
        return torch.arange(total)
    if examples > total:
        raise SettingError(f"{setting} = {examples} is more than the {total} examples of {dataset.name}")
    return torch.randperm(total, generator=stream(seed, setting))[:examples].sort().values


def select_natural_clients(dataset: Dataset, settings: DataSettings, seed: int) -> Parts:
    """Draw at random as many of the clients that the data set comes with as the settings ask for."""
    if dataset.groups is None or settings.examples is not None:
        reason = "has no natural clients" if dataset.groups is None else "cannot be reduced to data.examples with it"
        raise SettingError(f"data.partition = 'natural' does not fit: {dataset.name} {reason}")
    parts = PARTITIONS["natural"](dataset.groups, **settings.own)
    if len(parts) < settings.clients:
        raise SettingError(f"data.clients = {settings.clients} is more than the {len(parts)} clients of {dataset.name}")
    chosen = torch.randperm(len(parts), generator=stream(seed, "partition"))[: settings.clients]
    return tuple(parts[client] for client in chosen.tolist())

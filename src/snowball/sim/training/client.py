"""What clients do in a round, and what the server trains of its own."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from snowball.attacks import TrainingAttack
from snowball.buffers import Buffers, buffers_of, load_buffers
from snowball.data import Dataset, Split
from snowball.defenses import Lesson, LocalDefense, State
from snowball.models import draw_from
from snowball.rng import stream
from snowball.sim.federation import Federation
from snowball.sim.training.malicious import LocalWork
from snowball.sim.training.sgd import Trainer


class Reply(NamedTuple):
    """What comes of a client's training.

    Attributes:
        row: (d,) local minus global.
        kept: what the client keeps for its next round.
        buffers: those of its model.
    """

    row: Tensor
    kept: State | None
    buffers: Buffers


class LocalTraining:
    """Trains any one client of a federation: a benign one as the defense wants it, if that has a say."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.federation = federation
        self.trainer = Trainer(federation.model(), federation.experiment.training, device)
        defense = federation.experiment.defense.build()
        self.school = School(federation, defense, device) if isinstance(defense, LocalDefense) else None

    def __call__(self, base: Tensor, client: int, round: int, kept: State | None, buffers: Buffers) -> Reply:
        """Train a client from the global row and buffers, and from what it kept."""
        split, attacks = self.federation.training(client, round), self.federation.attacks(client, round)
        rng = stream(self.federation.experiment.seed, "client", client, "round", round)
        if attacks and isinstance(self.federation.attack, TrainingAttack):
            work = LocalWork(self.federation, self.trainer, base, buffers, client, round)
            row = work.row(self.federation.attack.train(work))
            return Reply(row, None, self.trainer.buffers())
        if not self.school or attacks:
            return Reply(self._train(base, buffers, split, round, rng), None, self.trainer.buffers())
        self.school.load(base, buffers)
        kept = self.school.train(split, round, rng, kept)
        return Reply(self.school.row() - base, kept, self.school.buffers())

    def is_special(self, client: int, round: int) -> bool:
        """Whether a client trains in a way that an attack or the defense has for it, and not by SGD alone."""
        if self.federation.attacks(client, round):
            return isinstance(self.federation.attack, TrainingAttack)
        return self.school is not None

    def trusted(self, split: Split, base: Tensor, buffers: Buffers, round: int) -> Tensor:
        """The server's own row, trained as a client's on samples that nobody has touched."""
        rng = stream(self.federation.experiment.seed, "server", "round", round)
        return self._train(base, buffers, split, round, rng)

    def _train(self, base: Tensor, buffers: Buffers, split: Split, round: int, rng: torch.Generator) -> Tensor:
        inputs = self.federation.dataset.normalise(split.inputs.to(self.trainer.device))
        rate = self.federation.experiment.training.rate(round)
        self.trainer.load(base, buffers)
        self.trainer.train(inputs, split.labels.to(self.trainer.device), rate, rng)
        return self.trainer.row() - base


class School:
    """Gives clients their lessons of a defense that acts in local training."""

    def __init__(self, federation: Federation, defense: LocalDefense, device: str) -> None:
        self.federation = federation
        self.defense = defense
        self.device = device
        self.pupil = Standardising(federation.dataset, federation.model()).to(device)

    def load(self, row: Tensor, buffers: Buffers) -> None:
        """Give the pupil these weights and buffers."""
        parameters = dict(self.pupil.model.named_parameters())
        with torch.no_grad():
            for name, tensor in self.federation.layout.split(row).items():
                parameters[name].copy_(tensor)
        load_buffers(self.pupil.model, buffers)

    def train(self, split: Split, round: int, rng: torch.Generator, kept: State | None) -> State | None:
        """Teach the pupil what a client that holds these samples does; what that client keeps for its next round."""
        settings = self.federation.experiment.training
        lesson = Lesson(
            self.pupil.train(),
            self.federation.dataset.scale(split.inputs.to(self.device)),
            split.labels.to(self.device),
            self.federation.dataset.classes,
            settings.epochs,
            settings.batch,
            settings.rate(round),
            rng,
            kept,
        )
        with draw_from(stream(rng.initial_seed(), "dropout"), self.device):
            return self.defense.train(lesson)

    def row(self) -> Tensor:
        """The pupil's weights as a row."""
        parameters = {name: value.detach().cpu() for name, value in self.pupil.model.named_parameters()}
        return self.federation.layout.flatten(parameters)

    def buffers(self) -> Buffers:
        """The pupil's buffers."""
        return buffers_of(self.pupil.model)


class Standardising(nn.Module):
    """A model that takes pixels in 0..1 and standardises them itself."""

    def __init__(self, dataset: Dataset, model: nn.Module) -> None:
        super().__init__()
        self.dataset = dataset
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.model(self.dataset.standardise(pixels))
        return scores

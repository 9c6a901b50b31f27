"""What clients do in a round, and what the server trains of its own."""

import torch
from torch import Tensor, nn

from snowball.data import Dataset, Split
from snowball.defenses import Lesson, LocalDefense, State
from snowball.rng import stream
from snowball.sim.client import Trainer
from snowball.sim.cohort import malicious_clients
from snowball.sim.federation import Federation


class LocalTraining:
    """Trains any one client of a federation: a benign one as the defense wants it, if that has a say."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.federation = federation
        self.trainer = Trainer(federation.model(), federation.experiment.training, device)
        defense = federation.experiment.defense.build()
        self.school = School(federation, defense, device) if isinstance(defense, LocalDefense) else None

    def __call__(self, base: Tensor, client: int, round: int, kept: State | None = None) -> tuple[Tensor, State | None]:
        """The client's row, local minus global, and what it keeps for its next round."""
        split = self.federation.training(client)
        rng = stream(self.federation.experiment.seed, "client", client, "round", round)
        if self.school and client not in malicious_clients(self.federation.experiment):
            return self.school.train(base, split, round, rng, kept)
        return self._train(base, split, round, rng), None

    def trusted(self, split: Split, base: Tensor, round: int) -> Tensor:
        """The server's own row, trained as a client's on samples that nobody has touched."""
        rng = stream(self.federation.experiment.seed, "server", "round", round)
        return self._train(base, split, round, rng)

    def _train(self, base: Tensor, split: Split, round: int, rng: torch.Generator) -> Tensor:
        inputs = self.federation.dataset.normalise(split.inputs.to(self.trainer.device))
        rate = self.federation.experiment.training.rate(round)
        self.trainer.load(base)
        self.trainer.train(inputs, split.labels.to(self.trainer.device), rate, rng)
        return self.trainer.row() - base


class School:
    """Gives clients their lessons of a defense that acts in local training."""

    def __init__(self, federation: Federation, defense: LocalDefense, device: str) -> None:
        self.federation = federation
        self.defense = defense
        self.device = device
        self.pupil = Standardising(federation.dataset, federation.model()).to(device)

    def train(
        self, base: Tensor, split: Split, round: int, rng: torch.Generator, kept: State | None
    ) -> tuple[Tensor, State | None]:
        """The row of a client that holds these samples, and what it keeps for its next round."""
        settings, layout = self.federation.experiment.training, self.federation.layout
        parameters = dict(self.pupil.model.named_parameters())
        with torch.no_grad():
            for name, tensor in layout.split(base).items():
                parameters[name].copy_(tensor)
        lesson = Lesson(
            self.pupil,
            self.federation.dataset.scale(split.inputs.to(self.device)),
            split.labels.to(self.device),
            self.federation.dataset.classes,
            settings.epochs,
            settings.batch,
            settings.rate(round),
            rng,
            kept,
        )
        kept = self.defense.train(lesson)
        return layout.flatten({name: value.detach().cpu() for name, value in parameters.items()}) - base, kept


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

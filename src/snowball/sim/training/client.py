"""Local training of one client in a round, and of the server on its trusted samples."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from snowball.attacks import Memory, TrainingAttack
from snowball.buffers import Buffers, copy_buffers, load_buffers
from snowball.data import Dataset, Split
from snowball.defenses import ClientTask, LocalDefense, State
from snowball.layout import Layout
from snowball.models import draw_from
from snowball.rng import stream
from snowball.sim.federation import Federation
from snowball.sim.training.malicious import SimulatedSession
from snowball.sim.training.sgd import Trainer


class Reply(NamedTuple):
    """Result of a client's training.

    Attributes:
        row: (d,) local minus global parameters.
        client_state: what the client keeps for its next round; None if nothing new.
        buffers: the buffers of its model.
    """

    row: Tensor
    client_state: State | None
    buffers: Buffers


class LocalTraining:
    """Trains any client of a federation: attackers as the attack wants it, others as the defense wants it."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.federation = federation
        self.trainer = Trainer(federation.build_model(), federation.experiment.training, device)
        defense = federation.experiment.defense.build()
        self.defended = DefendedTraining(federation, defense, device) if isinstance(defense, LocalDefense) else None

    def __call__(
        self,
        base: Tensor,
        client: int,
        round: int,
        client_state: State | None,
        buffers: Buffers,
        memory: Memory | None = None,
    ) -> Reply:
        """Train a client from the global row and buffers and its own state, or an attacker with the attack's memory."""
        split = self.federation.select_training_samples(client, round, memory)
        attacks = self.federation.is_attacking(client, round)
        rng = stream(self.federation.experiment.seed, "client", client, "round", round)
        if attacks and isinstance(self.federation.attack, TrainingAttack):
            session = SimulatedSession(
                federation=self.federation,
                trainer=self.trainer,
                base=base,
                buffers=buffers,
                client=client,
                round=round,
                memory=memory,
            )
            row = session.compute_update(self.federation.attack.train(session))
            return Reply(row, None, self.trainer.copy_buffers())
        if not self.defended or attacks:
            return Reply(self._train(base, buffers, split, round, rng), None, self.trainer.copy_buffers())
        self.defended.load(base, buffers)
        client_state = self.defended.train(split, round, rng, client_state)
        return Reply(self.defended.read_row() - base, client_state, self.defended.copy_buffers())

    def has_special_training(self, client: int, round: int) -> bool:
        """Return whether an attack or a defense replaces a client's plain SGD in a round."""
        if self.federation.is_attacking(client, round):
            return isinstance(self.federation.attack, TrainingAttack)
        return self.defended is not None

    def train_trusted(self, split: Split, base: Tensor, buffers: Buffers, round: int) -> Tensor:
        """Train the server's own update on clean samples, in the way clients train."""
        rng = stream(self.federation.experiment.seed, "server", "round", round)
        return self._train(base, buffers, split, round, rng)

    def _train(self, base: Tensor, buffers: Buffers, split: Split, round: int, rng: torch.Generator) -> Tensor:
        inputs = self.federation.dataset.normalise(split.inputs.to(self.trainer.device))
        rate = self.federation.experiment.training.compute_rate(round)
        self.trainer.load(base, buffers)
        self.trainer.train(inputs, split.labels.to(self.trainer.device), rate, rng)
        return self.trainer.read_row() - base


class DefendedTraining:
    """Trains benign clients with a defense that replaces plain SGD."""

    def __init__(self, federation: Federation, defense: LocalDefense, device: str) -> None:
        self.federation = federation
        self.defense = defense
        self.device = device
        self.network = federation.build_model()
        self.model = StandardisingModel(federation.dataset, self.network).to(device)

    def load(self, row: Tensor, buffers: Buffers) -> None:
        """Load weights and buffers into the model."""
        self.model.load(self.federation.layout, row, buffers)

    def train(self, split: Split, round: int, rng: torch.Generator, client_state: State | None) -> State | None:
        """Train the model on a client's samples, and return the client's state for its next round."""
        settings = self.federation.experiment.training
        task = ClientTask(
            model=self.model.train(),
            inputs=self.federation.dataset.scale(split.inputs.to(self.device)),
            labels=split.labels.to(self.device),
            classes=self.federation.dataset.classes,
            epochs=settings.epochs,
            batch=settings.batch,
            rate=settings.compute_rate(round),
            rng=rng,
            state=client_state,
        )
        with draw_from(stream(rng.initial_seed(), "dropout"), self.device):
            return self.defense.train(task)

    def read_row(self) -> Tensor:
        """Return the model's weights as a row."""
        parameters = {name: value.detach().cpu() for name, value in self.network.named_parameters()}
        return self.federation.layout.flatten(parameters)

    def copy_buffers(self) -> Buffers:
        """Return a copy of the model's buffers."""
        return copy_buffers(self.network)


class StandardisingModel(nn.Module):
    """A model that takes pixels in 0..1 and standardises them itself."""

    def __init__(self, dataset: Dataset, model: nn.Module) -> None:
        super().__init__()
        self.dataset = dataset
        self.model = model

    def load(self, layout: Layout, row: Tensor, buffers: Buffers) -> None:
        """Load weights and buffers into the model."""
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in layout.split(row).items():
                parameters[name].copy_(tensor)
        load_buffers(self.model, buffers)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return class scores."""
        scores: Tensor = self.model(self.dataset.standardise(pixels))
        return scores

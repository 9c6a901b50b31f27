"""How good the global model is, and how well it obeys the trigger."""

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.data import Split
from snowball.defenses import Context, Defense, PredictionDefense
from snowball.defenses.base import require
from snowball.sim.client import Trainer
from snowball.sim.federation import Federation

BATCH = 200
"""Samples at a time: more do not fit the cache, and take half as long again."""


class FederatedModel:
    """The federation's model as a function of its parameters.

    Attributes:
        buffers: the global ones, whoever's the parameters are.
    """

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.dataset = federation.dataset
        self.trainer = Trainer(federation.model(), federation.experiment.training, device)
        self.buffers: Buffers = self.trainer.buffers()

    @torch.no_grad()
    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        """(n, classes) scores of raw samples, with the parameters in a row."""
        self.trainer.load(row, self.buffers)
        self.trainer.model.eval()
        batches = torch.split(inputs.to(self.trainer.device), BATCH)
        return torch.cat([self.trainer.model(self.dataset.normalise(batch)) for batch in batches]).cpu()

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise, evenly drawn over what a sample can be."""
        return self.dataset.random_inputs(count, rng)


class Evaluation:
    """Measures any global row on the test samples, plain and triggered, as the defense lets the model be used."""

    def __init__(self, federation: Federation, model: FederatedModel, defense: Defense) -> None:
        self.model = model
        self.defense = defense
        self.splits = {"main_accuracy": federation.dataset.test, "backdoor_accuracy": federation.backdoor()}

    def __call__(self, context: Context) -> dict[str, float | None]:
        """Both accuracies of the context's base, as fractions; None for a backdoor that nobody plants."""
        return {name: self.accuracy(split, context) if split else None for name, split in self.splits.items()}

    def accuracy(self, split: Split, context: Context) -> float:
        """The share of samples that are labelled as the split does; a rejected sample is labelled wrongly."""
        if isinstance(self.defense, PredictionDefense):
            labels = self.defense.predict(split.inputs, context)
        else:
            labels = self.model(require(context.base, "base", "evaluation"), split.inputs).argmax(1)
        return int((labels == split.labels).sum()) / len(split)

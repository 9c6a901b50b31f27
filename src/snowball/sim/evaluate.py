"""How good the global model is, and how well it obeys the trigger."""

import torch
from torch import Tensor

from snowball.data import Split
from snowball.sim.client import Trainer
from snowball.sim.federation import Federation

BATCH = 200
"""Samples at a time: more do not fit the cache, and take half as long again."""


class Evaluation:
    """Measures any global row on the test samples, plain and triggered."""

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.normalise = federation.dataset.normalise
        self.splits = {"main_accuracy": federation.dataset.test, "backdoor_accuracy": federation.backdoor()}
        self.trainer = Trainer(federation.model(), federation.experiment.training, device)

    def __call__(self, base: Tensor) -> dict[str, float | None]:
        """Both accuracies as fractions; None for a backdoor that nobody plants."""
        self.trainer.load(base)
        return {name: self.accuracy(split) if split else None for name, split in self.splits.items()}

    @torch.no_grad()
    def accuracy(self, split: Split) -> float:
        """The share of samples that the model labels as the split does."""
        batches = zip(torch.split(split.inputs, BATCH), torch.split(split.labels, BATCH), strict=True)
        return sum(self._correct(inputs, labels) for inputs, labels in batches) / len(split)

    def _correct(self, inputs: Tensor, labels: Tensor) -> int:
        scores = self.trainer.model(self.normalise(inputs.to(self.trainer.device)))
        return int((scores.argmax(1).cpu() == labels).sum())

"""How good the global model is, and how well it obeys the trigger."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from snowball.buffers import Buffers
from snowball.data import Split
from snowball.defenses import Context, Defense, PredictionDefense
from snowball.defenses.base import require
from snowball.sim.federation import Federation
from snowball.sim.training.sgd import Trainer

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

    def right(self, row: Tensor, split: Split) -> int:
        """How many samples are labelled as the split does."""
        return right(self(row, split.inputs).argmax(1), split)

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Raw samples of noise, evenly drawn over what a sample can be."""
        return self.dataset.draw_inputs(count, rng)


@runtime_checkable
class Counting(Protocol):
    """An engine whose workers share an evaluation."""

    def right(self, row: Tensor, buffers: Buffers) -> dict[str, int]:
        """How many samples of each of `measures` a global model labels right."""
        ...


def measures(federation: Federation) -> dict[str, Split]:
    """What is measured, on which samples: the backdoor only where somebody plants one."""
    splits = {"main_accuracy": federation.dataset.test, "backdoor_accuracy": federation.backdoor()}
    return {name: split for name, split in splits.items() if split}


class Evaluation:
    """Measures any global row on the test samples, plain and triggered, as the defense lets the model be used."""

    def __init__(
        self, federation: Federation, model: FederatedModel, defense: Defense, engine: object | None = None
    ) -> None:
        self.model = model
        self.defense = defense
        self.splits = measures(federation)
        self.engine = engine if isinstance(engine, Counting) else None

    def __call__(self, context: Context) -> dict[str, float | None]:
        """Both accuracies of the context's base, as fractions; None for a backdoor that nobody plants."""
        right = self.right(context)
        shares = {name: right[name] / len(split) for name, split in self.splits.items()}
        return {"main_accuracy": shares["main_accuracy"], "backdoor_accuracy": shares.get("backdoor_accuracy")}

    def right(self, context: Context) -> dict[str, int]:
        """How many samples are labelled as their split does; a rejected one is labelled wrongly."""
        if isinstance(self.defense, PredictionDefense):
            predict = self.defense.predict
            return {name: right(predict(split.inputs, context), split) for name, split in self.splits.items()}
        row = require(context.base, "base", "evaluation")
        if self.engine:
            return self.engine.right(row, self.model.buffers)
        return {name: self.model.right(row, split) for name, split in self.splits.items()}


def right(labels: Tensor, split: Split) -> int:
    """How many labels are the split's own."""
    return int((labels == split.labels).sum())

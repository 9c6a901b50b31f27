"""Accuracy of the global model on clean test samples and on samples with the backdoor's trigger."""

from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from snowball.attacks import Memory
from snowball.buffers import Buffers
from snowball.data import Split
from snowball.defenses import Context, Defense, PredictionDefense
from snowball.defenses.base import require
from snowball.sim.federation import Federation
from snowball.sim.training.features import compute_features
from snowball.sim.training.sgd import Trainer

EVALUATION_BATCH = 200
"""Samples at a time: larger batches do not fit the cache and take 1.5 times as long."""


class FederatedModel:
    """The federation's model as a function of its parameters.

    Attributes:
        buffers: the global buffers, which are used with any parameters.
    """

    def __init__(self, federation: Federation, device: str = "cpu") -> None:
        self.dataset = federation.dataset
        self.trainer = Trainer(federation.build_model(), federation.experiment.training, device)
        self.buffers: Buffers = self.trainer.copy_buffers()

    @torch.no_grad()
    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        """Return the class scores (n, classes) of raw samples, with the parameters in a row."""
        return self._run(self.trainer.model, row, inputs)

    def compute_features(self, row: Tensor, inputs: Tensor) -> Tensor:
        """Return the (n, f) inputs of the output layer for raw samples, with the parameters in a row."""
        return self._run(partial(compute_features, self.trainer.model), row, inputs)

    def _run(self, function: Callable[[Tensor], Tensor], row: Tensor, inputs: Tensor) -> Tensor:
        """Apply a function of the model to normalised samples, batch by batch."""
        self.trainer.load(row, self.buffers)
        self.trainer.model.eval()
        batches = torch.split(inputs.to(self.trainer.device), EVALUATION_BATCH)
        return torch.cat([function(self.dataset.normalise(batch)) for batch in batches]).cpu()

    def count_correct(self, row: Tensor, split: Split) -> int:
        """Return how many samples the model labels as the split does."""
        return count_matches(self(row, split.inputs).argmax(1), split)

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        """Draw raw samples of noise, uniformly over all possible samples."""
        return self.dataset.draw_inputs(count, rng)


@runtime_checkable
class EvaluatingEngine(Protocol):
    """An engine whose workers evaluate, too."""

    def count_correct(self, row: Tensor, buffers: Buffers, memory: Memory | None = None) -> dict[str, int]:
        """Return how many samples of each of `build_test_splits` a global model labels correctly."""
        ...


def build_test_splits(federation: Federation, memory: Memory | None = None) -> dict[str, Split]:
    """Return the test samples of each metric; those of the backdoor only if there is an attack with one."""
    splits = {"main_accuracy": federation.dataset.test, "backdoor_accuracy": federation.build_backdoor_test(memory)}
    return {name: split for name, split in splits.items() if split}


class Evaluation:
    """Measures global rows on clean and triggered test samples, with the defense's own predictions if it has any."""

    def __init__(
        self, federation: Federation, model: FederatedModel, defense: Defense, engine: object | None = None
    ) -> None:
        self.federation = federation
        self.model = model
        self.defense = defense
        self.memory: Memory | None = None
        self.splits = build_test_splits(federation)
        self.engine = engine if isinstance(engine, EvaluatingEngine) else None

    def __call__(self, context: Context, memory: Memory | None = None) -> dict[str, float | None]:
        """Return both accuracies of the context's base as fractions; None for the backdoor if there is none."""
        correct = self.count_correct(context, memory)
        shares = {name: correct[name] / len(split) for name, split in self.splits.items()}
        return {"main_accuracy": shares["main_accuracy"], "backdoor_accuracy": shares.get("backdoor_accuracy")}

    def count_correct(self, context: Context, memory: Memory | None = None) -> dict[str, int]:
        """Return how many samples are labelled as their split does; rejected samples count as wrong."""
        row = require(context.base, "base", "evaluation")
        if self.engine and not isinstance(self.defense, PredictionDefense):
            return self.engine.count_correct(row, self.model.buffers, memory)
        if memory is not self.memory:
            self.memory, self.splits = memory, build_test_splits(self.federation, memory)
        if isinstance(self.defense, PredictionDefense):
            predict = self.defense.predict
            return {name: count_matches(predict(split.inputs, context), split) for name, split in self.splits.items()}
        return {name: self.model.count_correct(row, split) for name, split in self.splits.items()}


def count_matches(labels: Tensor, split: Split) -> int:
    """Return how many labels equal those of the split."""
    return int((labels == split.labels).sum())

"""Trains the same clients in Apple's simulator, `pfl` (Granqvist et al., pfl-research, NeurIPS 2024).

`pip install 'pfl[pytorch]'` adds it to `snowball bench training`. It reads a client's samples in the same order in
every epoch, sums the updates as they arrive, and uses one process: more processes need a launcher.
"""

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any, Self

import torch
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.common_types import Population  # type: ignore[import-not-found]
from pfl.context import CentralContext  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.pytorch import PyTorchTensorDataset  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.baselines.plain import use_plain_forward
from benchmarks.measuring.timing import use_one_thread
from snowball.records.checkpoint import RunState
from snowball.sim.federation import Federation


class Learner(nn.Module):
    """A network that computes its own loss, as pfl requires."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss that training minimises."""
        return cross_entropy(self.network.train()(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        """Return no metrics: this benchmark measures time."""
        return {}


class Pfl:
    """Trains cohorts in pfl's simulation."""

    device = "cpu"

    def __init__(self, federation: Federation) -> None:
        settings = federation.experiment.training
        splits = [federation.select_samples(client) for client in range(federation.experiment.data.clients)]
        users = [PyTorchTensorDataset((federation.dataset.normalise(split.inputs), split.labels)) for split in splits]
        order = cycle(range(len(users)))
        data = FederatedDataset(users.__getitem__, lambda: next(order))
        self.backend = SimulatedBackend(data, data)
        learner = Learner(use_plain_forward(federation.build_model()))
        local = partial(torch.optim.SGD, momentum=settings.momentum, weight_decay=settings.weight_decay)
        self.model = PyTorchModel(learner, local, torch.optim.SGD(learner.parameters(), lr=1.0))
        self.algorithm = FederatedAveraging()
        self.training = NNTrainHyperParams(
            local_batch_size=settings.batch,
            local_num_epochs=settings.epochs,
            local_learning_rate=settings.compute_rate(1),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> None:
        """Train a cohort from the current model, and sum its updates."""
        parameters = NNAlgorithmParams(
            central_num_iterations=1, evaluation_frequency=1, train_cohort_size=len(cohort), val_cohort_size=0
        )
        context = CentralContext(round, False, len(cohort), Population.TRAIN, parameters, self.training, seed=round)
        with use_one_thread():
            self.backend.gather_results(self.model, self.algorithm, central_context=context)

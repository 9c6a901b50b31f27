"""FLIP: benign clients harden the global model against triggers that they find in it.

Zhang et al., "FLIP: A Provable Defense Framework for Backdoor Mitigation in Federated Learning", ICLR 2023. A backdoor
from malicious clients shows as a small patch that turns one class into another. Benign clients invert such patches from
the global model and train on them with true labels. The server averages all updates, and a model that is not sure of a
sample rejects it.

Deviations: if a mask is too large, we train on the batch without a trigger, while the authors' code skips the batch.
That code starts from a trained model; a federation that starts from scratch would learn more slowly. One-way triggers
lead to the target class; in the authors' code they lead to the source, which takes no trigger. Universal triggers for
which a task has no batches left are searched for in the client's next task. Among equal priorities we draw at random.
In a search both ways, each way's loss is a mean over its images, not a sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf

import torch
from torch import Tensor

from snowball.defenses.base import REJECTED, ClientTask, Context, State, Verdict, require
from snowball.defenses.flip.hardening import Hardening, check_memory
from snowball.defenses.flip.inversion import InversionSettings, check_rate
from snowball.defenses.ops import average_equally, elect_everyone
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class FLIP:
    """Average all updates of clients that train against triggers, and reject samples of low confidence.

    Attributes:
        reject_below: the confidence below which a sample gets no label (the paper's tau).
        server_rate: factor on the mean update; 0.1 in the authors' code, which starts from a trained model.
        epochs: passes of a benign client over its samples.
        batch: samples per step of its training.
        lr: learning rate of its Adam.
        portion: share of a batch's eligible images that get a trigger.
        max_batches: the most batches of a task.
        inversion: settings of the search for triggers.
    """

    reject_below: float = 0.4
    server_rate: float = 1.0
    epochs: int = 10
    batch: int = 64
    lr: float = 0.01
    portion: float = 0.5
    max_batches: int = 110
    inversion: InversionSettings = field(default_factory=InversionSettings)

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for name in ("server_rate", "epochs", "batch", "lr", "max_batches"):
            if not 0 < getattr(self, name) < inf:
                raise SettingError(f"{name} must be a positive number, got {getattr(self, name)}")
        check_rate("lr", self.lr)
        if not 0 <= self.portion <= 1:
            raise SettingError(f"portion must be a share in [0, 1], got {self.portion}")
        if not 0 <= self.reject_below < inf:
            raise SettingError(f"reject_below must be a confidence from 0, got {self.reject_below}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Elect everybody, all with equal weight."""
        elected = elect_everyone(updates)
        return Verdict(self.server_rate * average_equally(updates, elected), elected)

    def train(self, task: ClientTask) -> State:
        """Harden the task's model, and return the client's knowledge of its triggers, which it keeps."""
        if task.inputs.ndim != 4:
            shape = tuple(task.inputs.shape[1:])
            raise SettingError(f"flip finds triggers in images (channels, height, width), got samples of shape {shape}")
        hardening = Hardening(task, self.portion, self.lr, self.inversion)
        batches = min(self.epochs * ceil(len(task.labels) / self.batch), self.max_batches)
        for batch in islice(self._batches(task), batches):
            hardening.train(batch)
        return hardening.memory.state()

    def check_client_state(self, state: State, shape: Sequence[int], classes: int) -> None:
        """Refuse a state that is not a client's knowledge of triggers on such images."""
        check_memory(state, shape, classes)

    def predict(self, inputs: Tensor, context: Context) -> Tensor:
        """Return the likeliest labels of raw samples; reject samples whose label is not likely enough."""
        model, base = require(context.model, "model", "flip"), require(context.base, "base", "flip")
        confidence, labels = model(base, inputs).softmax(1).max(1)
        return labels.where(confidence >= self.reject_below, REJECTED)

    def _batches(self, task: ClientTask) -> Iterator[Tensor]:
        """Yield batches endlessly, each epoch in a new order."""
        while True:
            yield from torch.split(torch.randperm(len(task.labels), generator=task.rng), self.batch)

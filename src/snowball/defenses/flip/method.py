"""FLIP: benign clients harden the global model against triggers that they find in it.

Zhang et al., "FLIP: A Provable Defense Framework for Backdoor Mitigation in Federated Learning", ICLR 2023. A backdoor
that malicious clients have planted shows as a small patch that turns one class into another. Benign clients invert such
patches from the global model and train on them with true labels; the server averages all updates; and a model that is
not sure of a sample rejects it.

Deviations: a batch whose mask is too large is trained on without a trigger, where the authors' code leaves it out: that
code starts from a trained model, and a federation that starts from nothing would learn more slowly. One-way triggers
lead to the target class; in the authors' code they lead to the source, which takes no trigger. Universal triggers that
a task has no batches left for are sought in the client's next one. Equal priorities are drawn from at random. In a
search both ways, each way's loss is a mean over its images, not a sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf

import torch
from torch import Tensor

from snowball.defenses.base import REJECTED, ClientTask, Context, State, Verdict, require
from snowball.defenses.flip.hardening import Hardening
from snowball.defenses.flip.inversion import InversionSettings
from snowball.defenses.ops import average_equally, elect_everyone
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class FLIP:
    """Average all updates, of clients that train against triggers; reject samples of low confidence.

    Attributes:
        reject_below: the confidence under which a sample gets no label (the paper's tau).
        server_rate: what the mean update is multiplied by; 0.1 in the authors' code, which starts from a trained model.
        epochs: how often a benign client goes over its samples.
        batch: samples in its steps.
        lr: learning rate of its Adam.
        portion: share of a batch's images in question that get a trigger.
        max_batches: batches of a task, at most.
        inversion: how triggers are sought.
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
        """Refuse settings that no task or prediction can follow."""
        for name in ("server_rate", "epochs", "batch", "lr", "max_batches"):
            if not 0 < getattr(self, name) < inf:
                raise SettingError(f"{name} must be a positive number, got {getattr(self, name)}")
        if not 0 <= self.portion <= 1:
            raise SettingError(f"portion must be a share in [0, 1], got {self.portion}")
        if not 0 <= self.reject_below < inf:
            raise SettingError(f"reject_below must be a confidence from 0, got {self.reject_below}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Elect everybody, one as heavy as the other."""
        elected = elect_everyone(updates)
        return Verdict(self.server_rate * average_equally(updates, elected), elected)

    def train(self, task: ClientTask) -> State:
        """Harden the task's model; what the client keeps is what it knows of its triggers."""
        if task.inputs.ndim != 4:
            shape = tuple(task.inputs.shape[1:])
            raise SettingError(f"flip finds triggers in images (channels, height, width), got samples of shape {shape}")
        hardening = Hardening(task, self.portion, self.lr, self.inversion)
        batches = min(self.epochs * ceil(len(task.labels) / self.batch), self.max_batches)
        for batch in islice(self._batches(task), batches):
            hardening.train(batch)
        return hardening.memory.state()

    def predict(self, inputs: Tensor, context: Context) -> Tensor:
        """The likeliest labels of raw samples, where they are likely enough."""
        model, base = require(context.model, "model", "flip"), require(context.base, "base", "flip")
        confidence, labels = model(base, inputs).softmax(1).max(1)
        return labels.where(confidence >= self.reject_below, REJECTED)

    def _batches(self, task: ClientTask) -> Iterator[Tensor]:
        """Batches without end, each epoch in a new order."""
        while True:
            yield from torch.split(torch.randperm(len(task.labels), generator=task.rng), self.batch)

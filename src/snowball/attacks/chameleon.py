"""Chameleon: a backdoor whose samples look to the encoder like samples of the target class.

Dai, Li: Chameleon: Adapting to Peer Images for Planting Durable Backdoors in Federated Learning, ICML 2023.

Malicious clients first train the encoder, which is all but the last layer, with the supervised contrastive loss (Khosla
et al., NeurIPS 2020): it brings poisoned samples near honest ones of the target class, so that honest training keeps
strengthening the backdoor. Then they freeze the encoder and train the last layer on the same samples.

As in the published code, features are normalised, an anchor's loss is divided by the number of its positives before
those of the target class are weighted, and anchors without positives count as 0 in the mean.

Deviations: both stages have the common learning rate; the published code has rates of their own, which fall from epoch
to epoch. It can also project the model into a ball. Its weight of the target class differs by experiment; 2 is that of
another implementation, BackFed. In that one the encoder is not frozen in fact.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from snowball.attacks.base import LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_positive
from snowball.errors import SettingError
from snowball.layout import Layout


@dataclass(frozen=True)
class Chameleon(CBA):
    """Every malicious client moves triggered samples to the target class in the encoder, then trains the last layer.

    Attributes:
        temperature: temperature of the contrastive loss (tau).
        target_weight: weight of the positives of the target class; others have weight 1.
        encoder_epochs: epochs of the encoder.
        head_epochs: epochs of the last layer.
    """

    temperature: float = 0.07
    target_weight: float = 2.0
    encoder_epochs: int = 10
    head_epochs: int = 3

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        for name in ("temperature", "target_weight", "encoder_epochs", "head_epochs"):
            check_positive(name, getattr(self, name))

    def train(self, session: LocalSession) -> Tensor:
        """Train the encoder with the contrastive loss, then the last layer with the cross-entropy."""
        head = select_head(session.layout).to(session.start.device)

        def compute_loss(features: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
            weights = torch.where(labels == self.target, self.target_weight, 1.0)
            return compute_contrastive_loss(features, labels, weights, self.temperature)

        encoded = session.train(loss=compute_loss, after=make_freezer(head, session.start), epochs=self.encoder_epochs)
        return session.train(start=encoded, after=make_freezer(~head, encoded), epochs=self.head_epochs)


def select_head(layout: Layout) -> Tensor:
    """Return which columns belong to the last layer, (d,)."""
    head = torch.zeros(layout.width, dtype=torch.bool)
    for name in layout.head:
        head[layout.columns[name]] = True
    if head.all():
        raise SettingError("chameleon trains the layers before the last one, and the model has none")
    return head


def make_freezer(frozen: Tensor, values: Tensor) -> Callable[[Tensor], None]:
    """Make a callback that puts frozen weights back after a step, which weight decay changes, too."""

    def freeze(weights: Tensor) -> None:
        torch.where(frozen, values, weights, out=weights)

    return freeze


def compute_contrastive_loss(features: Tensor, labels: Tensor, weights: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of features (n, h), the mean over anchors of these weights (n,)."""
    directions = normalize(features, dim=1)
    similarities = directions @ directions.T / temperature  # (n, n)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    others = similarities.masked_fill(itself, torch.finfo(similarities.dtype).min)
    logs = similarities - others.logsumexp(1, keepdim=True)
    positive = (labels[:, None] == labels) & ~itself
    sums = torch.where(positive, logs, 0.0).sum(1)  # (n,)
    return -(weights * sums / positive.sum(1).clamp(min=1)).mean()

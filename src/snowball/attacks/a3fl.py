"""A3FL: a trigger that is learned against the global model, and against one that unlearns it.

Zhang, Jia, Chen, Lin, Wu: A3FL: Adversarially Adaptive Backdoor Attacks to Federated Learning, NeurIPS 2023.

Before they train, the attackers of a round change the shades of a patch so that the global model predicts the target
for stamped samples. They do the same for a copy of the model that has learned to ignore the patch, since honest clients
will move the global model that way. Its loss counts more, the more alike the two models' gradients are. Then the
attackers train as those of `cba` do, with the patch.

Deviations: shades are pixels from black to white; the published code takes any normalised values from -2 to 2. The
patch has the place and size of the named trigger, 3x3 pixels here and 5x5 there. There are far fewer steps per round:
the next round starts from the patch of this one. A model that has unlearned the patch is there from the first step on;
in the published code it is not. The similarity is that of the gradients of the unlearning loss on the same samples; the
published code compares the last of these gradients with the sum of those of the target loss.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from snowball.attacks.base import AttackSetup, Knowledge, Memory
from snowball.attacks.cba import CBA
from snowball.attacks.learned_patch import (
    LearnedPatch,
    compute_patch_gradient,
    find_patch,
    measure_target_loss,
    read_patch,
    take_sign_step,
)
from snowball.attacks.memory import AdaptationView
from snowball.attacks.poisoning import check_count, check_not_negative, check_positive
from snowball.data.triggers import Trigger

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
"""Of the SGD that unlearns the patch, as in the published code."""


@dataclass(frozen=True)
class A3FL(CBA):
    """All malicious clients plant a patch whose shades they learn together.

    Attributes:
        trigger: the square whose place and size the patch has; its shades are learned.
        steps: steps of the patch per round (the paper's K).
        step_size: change of every shade per step, where 1 is from black to white.
        samples_per_step: samples of all attackers together behind a step of the patch or of the unlearning.
        unlearned_weight: weight of the model that has unlearned the patch (lambda_0).
        unlearn_every: steps of the patch after which it is unlearned again (K_adv).
        unlearn_epochs: passes over the samples that unlearn it.
        unlearn_rate: learning rate of that.
    """

    knowledge: ClassVar[Knowledge] = "colluders"
    steps: int = 30
    step_size: float = 0.05
    samples_per_step: int = 64
    unlearned_weight: float = 0.01
    unlearn_every: int = 15
    unlearn_epochs: int = 1
    unlearn_rate: float = 0.01

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        for name in ("steps", "samples_per_step", "unlearn_every", "unlearn_epochs"):
            check_count(name, getattr(self, name))
        for name in ("step_size", "unlearn_rate"):
            check_positive(name, getattr(self, name))
        check_not_negative("unlearned_weight", self.unlearned_weight)

    def make_trigger(self, setup: AttackSetup) -> Trigger:
        """Return the patch with the shades in the memory, or in grey."""
        return read_patch(setup)

    def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
        """Return the shades after this round's steps."""
        patch, pooled = find_patch(view.setup), view.pool_samples()
        images, labels = view.setup.dataset.scale(pooled.inputs.to(view.device)), pooled.labels.to(view.device)
        shades, unlearned, weight = patch.shades.to(view.device), view.model, 0.0
        for step in range(self.steps if len(images) else 0):
            if self.unlearned_weight and step % self.unlearn_every == 0:
                stamped = patch.paint(images, shades)
                unlearned = self._unlearn(view.model, stamped, labels, rng)
                weight = self.unlearned_weight * measure_similarity(view.model, unlearned, stamped, labels)
            chosen = torch.randperm(len(images), generator=rng)[: self.samples_per_step].to(view.device)
            shades = self._improve(patch, shades, images[chosen], (view.model, unlearned), weight)
        return {"shades": shades.cpu()}

    def _improve(
        self, patch: LearnedPatch, shades: Tensor, images: Tensor, models: tuple[nn.Module, nn.Module], weight: float
    ) -> Tensor:
        """Take one step against the loss of the global model and, with a weight, of the one that has unlearned."""

        def measure_loss(shades: Tensor) -> Tensor:
            stamped = patch.paint(images, shades)
            loss = measure_target_loss(models[0], stamped, self.target)
            return loss + weight * measure_target_loss(models[1], stamped, self.target) if weight else loss

        return take_sign_step(shades, compute_patch_gradient(measure_loss, shades), self.step_size)

    def _unlearn(self, model: nn.Module, stamped: Tensor, labels: Tensor, rng: torch.Generator) -> nn.Module:
        """Return a copy of a model that has trained on stamped samples with their true labels."""
        unlearned = deepcopy(model).train()
        optimizer = torch.optim.SGD(
            unlearned.parameters(), self.unlearn_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )
        for _ in range(self.unlearn_epochs):
            for chosen in torch.split(torch.randperm(len(stamped), generator=rng), self.samples_per_step):
                optimizer.zero_grad()
                cross_entropy(unlearned(stamped[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return unlearned.eval()


def measure_similarity(model: nn.Module, other: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the mean cosine of two models' gradients over their convolutions, or over all weights without any."""
    gradients = [compute_filter_gradients(each, images, labels) for each in (model, other)]
    cosines = [cosine_similarity(one.flatten(), two.flatten(), dim=0) for one, two in zip(*gradients, strict=True)]
    return float(torch.stack(cosines).mean())


def compute_filter_gradients(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of the loss at a model's filters of convolutions, or at all weights if it has none."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    filters = [weight for weight in weights if weight.ndim > 2] or weights
    return torch.autograd.grad(cross_entropy(model(images), labels), filters)

"""CerP: colluders tune a shared trigger, stay near honest models and apart from each other.

Lyu, Han, Wang, Liu, Wang, Liu, Zhang: Poisoning with Cerberus: Stealthy and Colluded Backdoor Attack against Federated
Learning, AAAI 2023.

Before a round, the malicious clients change the shades of their trigger so that the global model predicts the target
already, within a ball around the trigger that they started from. Then less of the model has to change. Each trains a
clean model first, and the backdoored one near it, layer by layer. A penalty on the cosine between the colluders'
models keeps them apart from each other.

Deviations: shades stay between black and white. The cosines are to the models that the colluders sent in the last
attacked round; in the published code they train one after the other, and the cosines are to those trained before in the
same round. That code also pulls the model towards the global one.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, AttackSetup, Knowledge, LocalSession, Memory
from snowball.attacks.cba import CBA
from snowball.attacks.learned_patch import (
    LearnedPatch,
    compute_patch_gradient,
    find_patch,
    measure_target_loss,
    read_patch,
)
from snowball.attacks.memory import AdaptationView
from snowball.attacks.pgd import project_into_ball
from snowball.attacks.poisoning import check_count, check_not_negative, check_positive
from snowball.data.triggers import PixelPatch, find_trigger, require_images
from snowball.errors import RunError, SettingError
from snowball.layout import Layout


@dataclass(frozen=True)
class CerP(CBA):
    """All malicious clients tune their trigger together, and train models near honest ones and apart from each other.

    Attributes:
        tuning_rate: step of the trigger's shades, from 0 for black to 1 for white, per unit of gradient.
        tuning_epochs: passes over the samples of all attackers per round to tune the trigger.
        tuning_batch: samples per step of the trigger.
        tuning_radius: largest distance of the tuned shades from those of the trigger.
        closeness: weight of the distance from a clean model, summed over layers (alpha).
        diversity: weight of the cosines to the colluders' last models (beta).
    """

    knowledge: ClassVar[Knowledge] = "colluders"
    tuning_rate: float = 0.1
    tuning_epochs: int = 1
    tuning_batch: int = 64
    tuning_radius: float = 5.0
    closeness: float = 1e-4
    diversity: float = 1e-3

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        for name in ("tuning_epochs", "tuning_batch"):
            check_count(name, getattr(self, name))
        for name in ("tuning_rate", "tuning_radius"):
            check_positive(name, getattr(self, name))
        for name in ("closeness", "diversity"):
            check_not_negative(name, getattr(self, name))

    def make_trigger(self, setup: AttackSetup) -> LearnedPatch:
        """Return the trigger with the shades in the memory, or the named one."""
        start = self.make_first_trigger(setup)
        return start if setup.memory is None else replace(start, shades=read_patch(setup).shades)

    def make_first_trigger(self, setup: AttackSetup) -> LearnedPatch:
        """Return the trigger that the attack names, as a patch whose shades can be learned."""
        images, named = require_images(setup.dataset), find_trigger(self.trigger)
        patch = named.make(images) if named else None
        if not isinstance(patch, PixelPatch):
            raise SettingError(f"cerp tunes the shades of a square, and attack.trigger = {self.trigger!r} is not one")
        shade = (patch.value - images.black) / (images.white - images.black)
        shades = torch.full((images.input_shape[0], len(patch.pixels)), shade)
        return LearnedPatch(patch.pixels, shades, images.black, images.white)

    def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
        """Tune the shades with the samples of all attackers, so that the global model predicts the target."""
        patch, first = find_patch(view.setup), self.make_first_trigger(view.setup).shades.to(view.device)
        images = view.setup.dataset.scale(view.pool_samples().inputs.to(view.device))
        shades = patch.shades.to(view.device).clone()
        for _ in range(self.tuning_epochs):
            for chosen in torch.split(torch.randperm(len(images), generator=rng), self.tuning_batch):

                def measure_loss(shades: Tensor, batch: Tensor = images[chosen]) -> Tensor:
                    return measure_target_loss(view.model, patch.paint(batch, shades), self.target)

                shades -= self.tuning_rate * compute_patch_gradient(measure_loss, shades)
                project_into_ball(shades, first, self.tuning_radius)
                shades.clamp_(0, 1)
        return {**(view.setup.memory or {}), "shades": shades.cpu()}

    def train(self, session: LocalSession) -> Tensor:
        """Train on the poisoned samples, near a model trained on clean ones and away from the last models."""
        clean = session.train(clean=True)
        sums = (session.memory or {}).get("directions")
        directions = None if sums is None else session.arrange(sums)

        def bend(weights: Tensor, gradient: Tensor) -> None:
            for columns in session.layout.columns.values():
                gradient[columns] += self.closeness * scale_to_unit(weights[columns] - clean[columns])
            if directions is not None:
                gradient += self.diversity * derive_cosines(weights, directions)

        return session.train(before=bend)

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the updates unchanged."""
        return view.rows.clone()

    def remember(self, view: AttackerView, sent: Tensor) -> Memory:
        """Remember the sum of the directions of the models that were sent."""
        directions = [scale_to_unit(view.base + row) for row in sent]
        return {**(view.memory or {}), "directions": torch.stack(directions).sum(0)}

    def check_memory(self, memory: Memory, setup: AttackSetup, layout: Layout) -> None:
        """Reject shades or directions that do not fit."""
        self.make_trigger(replace(setup, memory=memory))
        directions = memory.get("directions", torch.zeros(layout.width))
        if not isinstance(directions, Tensor) or directions.shape != (layout.width,):
            raise RunError(f"the attack's memory holds no directions of {layout.width} columns")
        if not directions.isfinite().all():
            raise RunError("the attack's memory holds directions that are not finite")


def scale_to_unit(row: Tensor) -> Tensor:
    """Return a row at length 1; zeros stay zeros."""
    length: Tensor = torch.linalg.vector_norm(row).clamp(min=1e-12)
    return row / length


def derive_cosines(weights: Tensor, directions: Tensor) -> Tensor:
    """Return the gradient of the sum of a model's cosines to others; `directions` is the sum of these at length 1."""
    length: Tensor = torch.linalg.vector_norm(weights).clamp(min=1e-12)
    unit = weights / length
    return (directions - unit * (unit @ directions)) / length

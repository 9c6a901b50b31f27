"""What malicious clients do beside poisoning their samples: train in their own way, and change what they send."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snowball.attacks import AttackerView, CraftingAttack
from snowball.buffers import Buffers
from snowball.data import Split
from snowball.models import draw_from
from snowball.rng import stream
from snowball.sim.federation import Federation
from snowball.sim.training.sgd import Hooks, Trainer
from snowball.updates import sum_squares


@dataclass(eq=False)
class LocalWork:
    """A malicious client's training in one round, for a `TrainingAttack`; rows are in the trainer's order."""

    federation: Federation
    trainer: Trainer
    base: Tensor
    buffers: Buffers
    client: int
    round: int

    def __post_init__(self) -> None:
        """Load the global model."""
        self.layout = self.trainer.layout
        self._reset()
        self.start = self.trainer.weights.clone()

    def train(
        self,
        before: Callable[[Tensor, Tensor], None] | None = None,
        after: Callable[[Tensor], None] | None = None,
        clean: bool = False,
    ) -> Tensor:
        """What local training makes of the global model, on poisoned samples or on clean ones."""
        self._reset()
        inputs, labels = self._samples(clean)
        experiment = self.federation.experiment
        rng = stream(experiment.seed, "client", self.client, "round", self.round)
        self.trainer.train(inputs, labels, experiment.training.rate(self.round), rng, Hooks(before, after))
        return self.trainer.weights.clone()

    def compute_gradient(self, clean: bool = False) -> Tensor:
        """Of the loss at the global model, on poisoned samples or on clean ones."""
        self._reset()
        inputs, labels = self._samples(clean)
        rng = stream(self.federation.experiment.seed, "client", self.client, "round", self.round, "gradient")
        self.trainer.gradient.zero_()
        self.trainer.model.train()
        with draw_from(rng, self.trainer.device):
            torch.autograd.backward(cross_entropy(self.trainer.model(inputs), labels))
        return self.trainer.gradient.clone()

    @torch.no_grad()
    def measure_backdoor_success(self, weights: Tensor) -> float:
        """The share of the client's samples of other classes that, once stamped, a model takes for the target."""
        attack, setup, own = self.federation.attack, self.federation.attack_setup, self.federation.samples(self.client)
        if attack is None or attack.target is None or setup is None:
            return 0.0
        others = own[own.labels != attack.target]
        self.trainer.weights.copy_(weights)
        self.trainer.model.eval()
        stamped = setup.trigger.stamp(others.inputs).to(self.trainer.device)
        labels = self.trainer.model(self.federation.dataset.normalise(stamped)).argmax(1)
        return int((labels == attack.target).sum()) / max(len(others), 1)

    def make_stream(self, *name: str | int) -> torch.Generator:
        """A new generator for one purpose of this client, the same in every round."""
        return stream(self.federation.experiment.seed, "attacker", self.client, *name)

    def row(self, weights: Tensor) -> Tensor:
        """The update that a local model amounts to."""
        self.trainer.weights.copy_(weights)
        return self.trainer.row() - self.base

    def _reset(self) -> None:
        self.trainer.load(self.base, self.buffers)

    def _samples(self, clean: bool) -> tuple[Tensor, Tensor]:
        split: Split = self.federation.samples(self.client) if clean else self.federation.poisoned(self.client)
        inputs = self.federation.dataset.normalise(split.inputs.to(self.trainer.device))
        return inputs, split.labels.to(self.trainer.device)


def craft(federation: Federation, rows: Tensor, cohort: Sequence[int], base: Tensor, round: int) -> None:
    """Let the attackers of a round change, in place, what they send.

    Rows that are not finite are dropped by the server, so no attacker looks at them or makes anything of them.
    """
    attack = federation.attack
    places = [place for place, client in enumerate(cohort) if federation.attacks(client, round)]
    if not isinstance(attack, CraftingAttack) or not places:
        return
    examples = federation.counts(cohort)
    sound = set(sum_squares(rows).isfinite().nonzero()[:, 0].tolist())
    honest = sorted(sound.difference(places))
    others = rows[honest] if attack.knowledge == "all" else None
    groups = [[place] for place in places] if attack.knowledge == "own" else [places]
    for number, whole in enumerate(groups):
        group = [place for place in whole if place in sound]
        if not group:
            continue
        view = AttackerView(
            rows=rows[group],
            examples=examples[group],
            others=others,
            cohort_size=len(cohort),
            attacker_count=len(places),
            total_examples=float(examples.sum()),
            base=base,
            layout=federation.layout,
        )
        rows[group] = attack.craft(view, stream(federation.experiment.seed, "craft", "round", round, number))

"""Malicious clients beyond poisoned samples: their own local training, and crafted updates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snowball.attacks import AttackerView, CraftingAttack, Loss, Memory, RememberingAttack
from snowball.buffers import Buffers
from snowball.models import draw_from
from snowball.products import sum_squares
from snowball.rng import stream
from snowball.sim.federation import Federation
from snowball.sim.training.sgd import StepHooks, Trainer


@dataclass(eq=False, kw_only=True)
class SimulatedSession:
    """The simulator's `LocalSession` of a malicious client in one round; rows are in the trainer's order."""

    federation: Federation
    trainer: Trainer
    base: Tensor
    buffers: Buffers
    client: int
    round: int
    memory: Memory | None = None

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
        start: Tensor | None = None,
        loss: Loss | None = None,
        epochs: int | None = None,
    ) -> Tensor:
        """Train the global model, or other weights, on poisoned or clean samples, and return the local model."""
        self._reset()
        if start is not None:
            self.trainer.weights.copy_(start)
        inputs, labels = self._select_samples(clean)
        experiment = self.federation.experiment
        rng = stream(experiment.seed, "client", self.client, "round", self.round)
        hooks = StepHooks(before, after, loss)
        self.trainer.train(inputs, labels, experiment.training.compute_rate(self.round), rng, hooks, epochs)
        return self.trainer.weights.clone()

    def compute_gradient(self, clean: bool = False) -> Tensor:
        """Return the gradient of the loss at the global model, on poisoned or clean samples."""
        self._reset()
        inputs, labels = self._select_samples(clean)
        rng = stream(self.federation.experiment.seed, "client", self.client, "round", self.round, "gradient")
        self.trainer.gradient.zero_()
        self.trainer.model.train()
        with draw_from(rng, self.trainer.device):
            torch.autograd.backward(cross_entropy(self.trainer.model(inputs), labels))
        return self.trainer.gradient.clone()

    @torch.no_grad()
    def measure_backdoor_success(self, weights: Tensor) -> float:
        """Return the share of the client's stamped samples of other classes that a model predicts as the target."""
        attack, setup = self.federation.attack, self.federation.recall_setup(self.memory)
        if attack is None or attack.target is None or setup is None:
            return 0.0
        own = self.federation.select_samples(self.client)
        others = own[own.labels != attack.target]
        self.trainer.weights.copy_(weights)
        self.trainer.model.eval()
        stamped = setup.trigger.stamp(others.inputs).to(self.trainer.device)
        labels = self.trainer.model(self.federation.dataset.normalise(stamped)).argmax(1)
        return int((labels == attack.target).sum()) / max(len(others), 1)

    def arrange(self, row: Tensor) -> Tensor:
        """Return a row of the layout's order in the trainer's."""
        self.trainer.load(row.to(self.trainer.device), self.buffers)
        return self.trainer.weights.clone()

    def make_stream(self, *name: str | int) -> torch.Generator:
        """Return a new generator for one purpose of this client, the same in every round."""
        return stream(self.federation.experiment.seed, "attacker", self.client, *name)

    def compute_update(self, weights: Tensor) -> Tensor:
        """Return the update from the global model to a local model, in the layout's order."""
        self.trainer.weights.copy_(weights)
        return self.trainer.read_row() - self.base

    def _reset(self) -> None:
        self.trainer.load(self.base, self.buffers)

    def _select_samples(self, clean: bool) -> tuple[Tensor, Tensor]:
        federation = self.federation
        split = federation.select_samples(self.client) if clean else federation.poison_samples(self.client, self.memory)
        inputs = federation.dataset.normalise(split.inputs.to(self.trainer.device))
        return inputs, split.labels.to(self.trainer.device)


def craft_updates(
    federation: Federation, rows: Tensor, cohort: Sequence[int], base: Tensor, round: int, memory: Memory | None = None
) -> Memory | None:
    """Let the attackers of a round change their updates in place, and return their memory after that.

    The server drops rows that are not finite, so attackers neither see nor change them.
    """
    attack = federation.attack
    attacking = [slot for slot, client in enumerate(cohort) if federation.is_attacking(client, round)]
    if not isinstance(attack, CraftingAttack) or not attacking:
        return memory
    examples = federation.count_examples(cohort)
    finite = set(sum_squares(rows).isfinite().nonzero()[:, 0].tolist())
    honest = sorted(finite.difference(attacking))
    others = rows[honest] if attack.knowledge == "all" else None
    groups = [[slot] for slot in attacking] if attack.knowledge == "own" else [attacking]
    for number, group in enumerate(groups):
        slots = [slot for slot in group if slot in finite]
        if not slots:
            continue
        view = AttackerView(
            rows=rows[slots],
            examples=examples[slots],
            others=others,
            cohort_size=len(cohort),
            attacker_count=len(attacking),
            total_examples=float(examples.sum()),
            base=base,
            layout=federation.layout,
            memory=memory,
            clients=tuple(cohort[slot] for slot in slots),
        )
        sent = attack.craft(view, stream(federation.experiment.seed, "craft", "round", round, number))
        if isinstance(attack, RememberingAttack):
            memory = attack.remember(view, sent)
        rows[slots] = sent
    return memory

"""A client's task: it stamps inverted triggers on its images and learns their true labels.

A new client goes through the classes first, one batch each, against a universal trigger that turns images of all other
classes into this one. From then on it takes pairs of classes, two batches each, those first whose masks are the largest
or have grown the most.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from snowball.defenses.base import ClientTask, State
from snowball.defenses.flip.inversion import (
    BETAS,
    Effort,
    Goal,
    InversionSettings,
    draw_triggers,
    invert_triggers,
    stamp_triggers,
)

ANY = -1
"""The source of a universal trigger."""

EXPLORE = 0.3
"""How often a pair is drawn at random, whatever its priority."""

BATCHES_A_PAIR = 2

REPEAT_COST = 10
"""How much more a mask costs at first where a trigger is known already."""

BYTE = 255
"""Triggers are kept as bytes: finer than the jitter of the search that starts from them."""

Way = tuple[int, int]
"""The classes that a trigger leads from and to."""


@dataclass(eq=False)
class Memory:
    """A client's knowledge of its triggers.

    Attributes:
        warmed: how many classes, from 0, have had their universal trigger sought.
        sizes: (classes, classes) pixels of the last masks from class to class; 0 where none was found.
        priorities: (classes, classes) how urgent each pair is.
        triggers: the last trigger found of each way.
    """

    warmed: int
    sizes: Tensor
    priorities: Tensor
    triggers: dict[Way, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State | None, classes: int) -> "Memory":
        """Read the state that the last task left, if there was one, without changing it."""
        if state is None:
            return cls(0, torch.zeros(classes, classes), torch.zeros(classes, classes))
        ways = [(source, target) for source, target in state["ways"].tolist()]
        triggers = dict(zip(ways, state["triggers"] / BYTE, strict=True))
        return cls(state["warmed"], state["sizes"].clone(), state["priorities"].clone(), triggers)

    def state(self) -> State:
        """All of it, in four tensors and a number."""
        triggers = torch.stack([*self.triggers.values()]) if self.triggers else torch.zeros(0)
        return {
            "warmed": self.warmed,
            "sizes": self.sizes,
            "priorities": self.priorities,
            "ways": torch.tensor([*self.triggers], dtype=torch.int64).view(-1, 2),
            "triggers": (triggers * BYTE).round().to(torch.uint8),
        }

    def recall(self, way: Way, fresh: Tensor) -> Tensor:
        """Where to start the search for a trigger: the last one, or else the universal one, or else a fresh one."""
        return self.triggers.get(way, self.triggers.get((ANY, way[1]), fresh))

    def warm(self, sources: list[int], size: float) -> None:
        """Note the size of the next class's universal mask; after the last, priorities are shares of the largest."""
        self.sizes[sources, self.warmed] = size
        self.priorities[sources, self.warmed] = size
        self.warmed += 1
        if self.warmed == len(self.sizes):
            self.priorities /= max(float(self.priorities.max()), 1e-12)  # zero where no trigger was found at all

    def measure(self, way: Way, size: float) -> None:
        """Note the size of a pair's mask: the priority becomes the mean of itself and of the relative growth."""
        before = float(self.sizes[way])
        growth = size / before - 1 if before and size else 0.0
        self.priorities[way] = (self.priorities[way] + growth) / 2 if before else 0.0
        self.sizes[way] = size or before

    def choose(self, sources: list[int], rng: torch.Generator) -> Way:
        """A pair whose source is one of these: now and then any, else one of the highest priority."""
        allowed = torch.zeros_like(self.sizes, dtype=torch.bool)
        allowed[sources] = True
        allowed.fill_diagonal_(False)
        if torch.rand((), generator=rng) >= EXPLORE:
            allowed &= self.priorities == self.priorities[allowed].max()
        pairs = allowed.nonzero()
        source, target = pairs[torch.randint(len(pairs), (), generator=rng)].tolist()
        return source, target


@dataclass(eq=False)
class Pair:
    """The pair in work: its batches so far, and the pixels of the mask that each of them gave in each way, if any."""

    way: Way
    batches: int = 0
    sizes: dict[Way, list[float]] = field(default_factory=dict)

    def note(self, way: Way, size: float) -> None:
        """Take note of a mask; 0 stands for none."""
        self.sizes[way] = [*self.sizes.get(way, []), *([size] if size else [])]

    def mean(self, way: Way) -> float:
        """The pixels of a way's masks; 0 where there is none."""
        return sum(self.sizes[way]) / max(len(self.sizes[way]), 1)


class Hardening:
    """One client's task, batch by batch.

    Attributes:
        memory: what the client knows of its triggers, brought up to date by every batch.
    """

    def __init__(self, task: ClientTask, portion: float, lr: float, settings: InversionSettings) -> None:
        self.task, self.portion, self.settings = task, portion, settings
        self.memory = Memory.of(task.state, task.classes)
        self.optimiser = torch.optim.Adam(task.model.parameters(), lr, BETAS)
        self.pair: Pair | None = None

    def train(self, batch: Tensor) -> None:
        """Train the model on the samples of an index (n,), some of them under a trigger, all with their own labels."""
        images, labels = self.task.inputs[batch], self.task.labels[batch]
        under_trigger = self._universal if self.memory.warmed < self.task.classes else self._paired
        hardened = under_trigger(images, labels)
        self.optimiser.zero_grad()
        torch.autograd.backward(cross_entropy(self.task.model(hardened), labels))
        self.optimiser.step()

    def _universal(self, images: Tensor, labels: Tensor) -> Tensor:
        """The images, some of them under the universal trigger of the class whose turn it is."""
        target = self.memory.warmed
        held = group_by_label(self.task.labels, self.settings.samples)
        sources = {label: samples[: self.settings.samples] for label, samples in held.items() if label != target}
        if not sources:
            self.memory.warm([], 0.0)
            return images
        effort = Effort(self.settings.universal_steps, self.settings.cost)
        ways = {(ANY, target): torch.cat([*sources.values()])}
        triggers, sizes = self._search(self.task.inputs, ways, effort)
        self.memory.warm([*sources], float(sizes))
        others = (labels != target).nonzero().flatten()
        return self._stamped(images, [others], triggers, len(others))

    def _paired(self, images: Tensor, labels: Tensor) -> Tensor:
        """The images, some of them under the triggers of a pair: both ways where the batch has both classes."""
        held = group_by_label(labels, self.settings.samples)
        if not held or self.task.classes < 2:
            return images
        pair = self._next_pair(held)
        both = (pair.way, pair.way[::-1]) if pair.way[1] in held else (pair.way,)
        ways = {way: held[way[0]] for way in both}
        triggers, sizes = self._search(images, ways, self._effort(pair, both))
        if sizes.max() > self.settings.max_mask * images[0, 0].numel():
            triggers, sizes = torch.zeros_like(triggers), torch.zeros_like(sizes)  # as if there were none
        for way, size in zip(ways, sizes.tolist(), strict=True):
            pair.note(way, size)
        for way in pair.sizes if pair.batches == BATCHES_A_PAIR else ():
            self.memory.measure(way, pair.mean(way))
        return self._stamped(images, [*ways.values()], triggers, min(map(len, ways.values())))

    def _next_pair(self, held: dict[int, Tensor]) -> Pair:
        """The pair in work, or another one if that has had its batches or its source is not in this one."""
        if self.pair is None or self.pair.batches == BATCHES_A_PAIR or self.pair.way[0] not in held:
            self.pair = Pair(self.memory.choose([*held], self.task.rng))
        self.pair.batches += 1
        return self.pair

    def _effort(self, pair: Pair, ways: tuple[Way, ...]) -> Effort:
        """A short search at a high cost where the pair's last batch gave all these triggers."""
        if all(pair.sizes.get(way) for way in ways):
            return Effort(self.settings.repeat_steps, REPEAT_COST * self.settings.cost)
        return Effort(self.settings.pair_steps, self.settings.cost)

    def _search(self, images: Tensor, ways: dict[Way, Tensor], effort: Effort) -> tuple[Tensor, Tensor]:
        """The triggers of some ways and their sizes; each way has the index of the images that it is sought on."""
        counts = torch.tensor([len(samples) for samples in ways.values()])
        targets = torch.tensor([target for _, target in ways]).repeat_interleave(counts)
        owner = torch.arange(len(ways)).repeat_interleave(counts)
        goal = Goal(images[torch.cat([*ways.values()])], targets.to(images.device), owner.to(images.device))
        fresh = draw_triggers(len(ways), images.shape[1:], self.task.rng)
        start = torch.stack([self.memory.recall(*each) for each in zip(ways, fresh, strict=True)]).to(images.device)
        triggers, sizes = invert_triggers(self.task.model, goal, start, effort, self.settings, self.task.rng)
        found = {way: trigger for way, trigger, size in zip(ways, triggers.cpu(), sizes.tolist(), strict=True) if size}
        self.memory.triggers |= found
        return triggers, sizes

    def _stamped(self, images: Tensor, groups: list[Tensor], triggers: Tensor, most: int) -> Tensor:
        """The images, with each group's trigger on a portion of `most` of its images."""
        result = images.clone()
        for group, trigger in zip(groups, triggers, strict=True):
            chosen = group[torch.randperm(len(group), generator=self.task.rng)[: int(self.portion * most)]]
            result[chosen] = stamp_triggers(images[chosen], trigger[None]).clamp(0, 1)
        return result


def group_by_label(labels: Tensor, least: int) -> dict[int, Tensor]:
    """The samples of each class that has more than `least` of them."""
    frequent = (labels.bincount() > least).nonzero().flatten().tolist()
    return {label: (labels == label).nonzero().flatten() for label in frequent}

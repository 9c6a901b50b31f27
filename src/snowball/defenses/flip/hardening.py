"""A client's task: it stamps inverted triggers on its images and learns their true labels.

A new client first goes through the classes, one batch each, and hardens against a universal trigger that turns images
of all other classes into this one. After that it takes pairs of classes, two batches each, starting with those whose
masks are the largest or have grown the most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from snowball.defenses.history import check_numbers, describe_damage

ANY = -1
"""The source class of a universal trigger."""

EXPLORE = 0.3
"""Probability of drawing a pair at random, whatever its priority."""

BATCHES_A_PAIR = 2

REPEAT_COST = 10
"""Factor on the first cost of a mask if a trigger is already known."""

BYTE = 255
"""Triggers are stored as bytes, which is finer than the jitter of the search that starts from them."""

Way = tuple[int, int]
"""The classes that a trigger leads from and to."""


@dataclass(eq=False)
class Memory:
    """A client's knowledge of its triggers.

    Attributes:
        warmed: the number of classes, from class 0 on, whose universal trigger has been searched for.
        sizes: (classes, classes) pixels of the last mask from class to class; 0 if none was found.
        priorities: (classes, classes) how urgent each pair is.
        triggers: the last trigger found for each way.
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
        """Return the memory as four tensors and a number."""
        triggers = torch.stack([*self.triggers.values()]) if self.triggers else torch.zeros(0)
        return {
            "warmed": self.warmed,
            "sizes": self.sizes,
            "priorities": self.priorities,
            "ways": torch.tensor([*self.triggers], dtype=torch.int64).view(-1, 2),
            "triggers": (triggers * BYTE).round().to(torch.uint8),
        }

    def recall(self, way: Way, fresh: Tensor) -> Tensor:
        """Return the start of a search: the way's last trigger, or else the universal one, or else the fresh one."""
        return self.triggers.get(way, self.triggers.get((ANY, way[1]), fresh))

    def warm(self, sources: list[int], size: float) -> None:
        """Store the size of the next class's universal mask; after the last class, scale priorities by the largest."""
        self.sizes[sources, self.warmed] = size
        self.priorities[sources, self.warmed] = size
        self.warmed += 1
        if self.warmed == len(self.sizes):
            self.priorities /= max(float(self.priorities.max()), 1e-12)  # the maximum is zero if no trigger was found

    def measure(self, way: Way, size: float) -> None:
        """Store the size of a pair's mask; its priority becomes the mean of the former one and the relative growth."""
        before = float(self.sizes[way])
        growth = size / before - 1 if before and size else 0.0
        self.priorities[way] = (self.priorities[way] + growth) / 2 if before else 0.0
        self.sizes[way] = size or before

    def choose(self, sources: list[int], rng: torch.Generator) -> Way:
        """Draw a pair whose source is one of these: sometimes any, otherwise one of the highest priority."""
        allowed = torch.zeros_like(self.sizes, dtype=torch.bool)
        allowed[sources] = True
        allowed.fill_diagonal_(False)
        if torch.rand((), generator=rng) >= EXPLORE:
            allowed &= self.priorities == self.priorities[allowed].max()
        pairs = allowed.nonzero()
        source, target = pairs[torch.randint(len(pairs), (), generator=rng)].tolist()
        return source, target


def check_memory(state: State, shape: Sequence[int], classes: int) -> None:
    """Refuse a state that no task on images of this shape and these classes can have left."""
    found: Mapping[str, Any] = state if isinstance(state, Mapping) else {}
    warmed = found.get("warmed")
    if type(warmed) is not int or not 0 <= warmed <= classes:
        raise describe_damage(f"the universal triggers of a client are not those of up to {classes} classes")
    for name in ("sizes", "priorities"):
        if not is_tensor(found.get(name), (classes, classes), torch.float32):
            raise describe_damage(f"its {name} of a client's masks are not {classes} by {classes} numbers")
        check_numbers([found[name].flatten()])
    ways: list[Way] = found["ways"].tolist() if is_tensor(found.get("ways"), (None, 2), torch.int64) else [(ANY, ANY)]
    if any(not ANY <= source < classes or not 0 <= target < classes for source, target in ways):
        raise describe_damage("a client's triggers do not lead from class to class")
    count, (channels, *pixels) = len(ways), shape
    if not is_tensor(found.get("triggers"), (count, 1 + channels, *pixels) if count else (0,), torch.uint8):
        raise describe_damage(f"a client's triggers are not {count} bytes per pixel of such images")


def is_tensor(value: Any, shape: Sequence[int | None], dtype: torch.dtype) -> bool:
    """Return whether a value is a tensor in memory of a type and a shape, in which None stands for any length."""
    if not isinstance(value, Tensor) or value.dtype != dtype or value.ndim != len(shape):
        return False
    fits = all(wanted is None or length == wanted for length, wanted in zip(value.shape, shape, strict=True))
    return fits and value.layout == torch.strided and value.device.type == "cpu"


@dataclass(eq=False)
class Pair:
    """The current pair: its batches so far, and the pixels of the masks that they gave, by way."""

    way: Way
    batches: int = 0
    sizes: dict[Way, list[float]] = field(default_factory=dict)

    def note(self, way: Way, size: float) -> None:
        """Add the size of a mask; 0 stands for none."""
        self.sizes[way] = [*self.sizes.get(way, []), *([size] if size else [])]

    def mean(self, way: Way) -> float:
        """Return the mean pixels of a way's masks; 0 if there are none."""
        return sum(self.sizes[way]) / max(len(self.sizes[way]), 1)


class Hardening:
    """One client's task, batch by batch.

    Attributes:
        memory: the client's knowledge of its triggers; every batch updates it.
    """

    def __init__(self, task: ClientTask, portion: float, lr: float, settings: InversionSettings) -> None:
        self.task, self.portion, self.settings = task, portion, settings
        self.memory = Memory.of(task.state, task.classes)
        self.optimiser = torch.optim.Adam(task.model.parameters(), lr, BETAS)
        self.pair: Pair | None = None

    def train(self, batch: Tensor) -> None:
        """Train the model on the samples at (n,) indices, some of them with a trigger, all with their true labels."""
        images, labels = self.task.inputs[batch], self.task.labels[batch]
        under_trigger = self._universal if self.memory.warmed < self.task.classes else self._paired
        hardened = under_trigger(images, labels)
        self.optimiser.zero_grad()
        torch.autograd.backward(cross_entropy(self.task.model(hardened), labels))
        self.optimiser.step()

    def _universal(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the images, some of them with the universal trigger of the next class."""
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
        """Return the images, some of them with the triggers of a pair: both ways if the batch has both classes."""
        held = group_by_label(labels, self.settings.samples)
        if not held or self.task.classes < 2:
            return images
        pair = self._next_pair(held)
        both = (pair.way, pair.way[::-1]) if pair.way[1] in held else (pair.way,)
        ways = {way: held[way[0]] for way in both}
        triggers, sizes = self._search(images, ways, self._effort(pair, both))
        if sizes.max() > self.settings.max_mask * images[0, 0].numel():
            triggers, sizes = torch.zeros_like(triggers), torch.zeros_like(sizes)  # as if none were found
        for way, size in zip(ways, sizes.tolist(), strict=True):
            pair.note(way, size)
        for way in pair.sizes if pair.batches == BATCHES_A_PAIR else ():
            self.memory.measure(way, pair.mean(way))
        return self._stamped(images, [*ways.values()], triggers, min(map(len, ways.values())))

    def _next_pair(self, held: dict[int, Tensor]) -> Pair:
        """Return the current pair, or a new one if that has had its batches or this batch lacks its source."""
        if self.pair is None or self.pair.batches == BATCHES_A_PAIR or self.pair.way[0] not in held:
            self.pair = Pair(self.memory.choose([*held], self.task.rng))
        self.pair.batches += 1
        return self.pair

    def _effort(self, pair: Pair, ways: tuple[Way, ...]) -> Effort:
        """Return the effort of a search: short, at a high cost, if the pair's last batch gave all these triggers."""
        if all(pair.sizes.get(way) for way in ways):
            return Effort(self.settings.repeat_steps, REPEAT_COST * self.settings.cost)
        return Effort(self.settings.pair_steps, self.settings.cost)

    def _search(self, images: Tensor, ways: dict[Way, Tensor], effort: Effort) -> tuple[Tensor, Tensor]:
        """Search for the triggers of some ways; return them and their sizes. Each way has the indices of its images."""
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
        """Return the images, with each group's trigger on a portion of `most` of its images."""
        result = images.clone()
        for group, trigger in zip(groups, triggers, strict=True):
            chosen = group[torch.randperm(len(group), generator=self.task.rng)[: int(self.portion * most)]]
            result[chosen] = stamp_triggers(images[chosen], trigger[None]).clamp(0, 1)
        return result


def group_by_label(labels: Tensor, least: int) -> dict[int, Tensor]:
    """Return the indices of the samples of each class that has more than `least` of them."""
    frequent = (labels.bincount() > least).nonzero().flatten().tolist()
    return {label: (labels == label).nonzero().flatten() for label in frequent}

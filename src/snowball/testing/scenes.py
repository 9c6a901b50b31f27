"""Made-up data, training and rounds to try attacks on."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from snowball.attacks import Attack, Scene
from snowball.data import Dataset, ImageDataset, Split, TextDataset, Vocabulary
from snowball.data.text import LENGTH, NO_WORD, TRIGGER_WORD, UNKNOWN_WORD
from snowball.data.triggers import find_trigger
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing.rounds import toy_round
from snowball.updates import Layout


def toy_images(count: int = 200, seed: int = 0) -> ImageDataset:
    """A data set of made-up 28x28 images in ten classes."""
    rng = stream(seed, "toy images")

    def split() -> Split:
        inputs = torch.randint(1, 255, (count, 1, 28, 28), generator=rng, dtype=torch.uint8)
        return Split(inputs, torch.arange(count) % 10)

    return ImageDataset("toy images", 10, split(), split(), {}, mean=(0.5,), std=(0.25,))


def toy_texts(count: int = 200, seed: int = 0) -> TextDataset:
    """A data set of made-up texts of one to 25 words in two classes; some of the words have no vector."""
    rng = stream(seed, "toy texts")
    words = ("", TRIGGER_WORD, *(f"word{number}" for number in range(30)))
    vectors = torch.randn(len(words), 8, generator=rng)
    vectors[0] = 0

    def split() -> Split:
        numbers = torch.randint(1, len(words), (count, LENGTH), generator=rng, dtype=torch.int32)
        inputs = numbers.where(numbers != words.index(TRIGGER_WORD), UNKNOWN_WORD)
        lengths = torch.randint(1, LENGTH + 1, (count, 1), generator=rng)
        return Split(inputs.where(torch.arange(LENGTH) < lengths, NO_WORD), torch.arange(count) % 2)

    return TextDataset("toy texts", 2, split(), split(), {}, vocabulary=Vocabulary(words, vectors))


def toy_data(attack: Attack) -> Dataset:
    """Made-up data that the attack's trigger can be put on."""
    images = toy_images()
    try:
        if attack.trigger is not None and (named := find_trigger(attack.trigger)):
            named.make(images)
    except SettingError:
        return toy_texts()
    return images


@dataclass(eq=False)
class ToyWork:
    """Training on a parabola whose lowest point clean samples put at 0 and poisoned ones at 1."""

    layout: Layout = field(default_factory=lambda: toy_round().layout)
    round: int = 1
    steps: int = 20
    client: int = 0

    def __post_init__(self) -> None:
        """Start somewhere between."""
        self.start = torch.rand(self.layout.width, generator=stream(0, "toy work"))

    def sgd(
        self,
        before: Callable[[Tensor, Tensor], None] | None = None,
        after: Callable[[Tensor], None] | None = None,
        clean: bool = False,
    ) -> Tensor:
        """Some steps downhill."""
        weights = self.start.clone()
        for _ in range(self.steps):
            gradient = weights - (0.0 if clean else 1.0)
            if before:
                before(weights, gradient)
            weights -= 0.1 * gradient
            if after:
                after(weights)
        return weights

    def gradient(self, clean: bool = False) -> Tensor:
        """At the start."""
        return self.start - (0.0 if clean else 1.0)

    def obedience(self, weights: Tensor) -> float:
        """How near the weights are to what poisoned samples want."""
        return float((1 - (weights - 1).abs().mean()).clamp(0, 1))

    def make_stream(self, *name: str | int) -> torch.Generator:
        """A generator for one purpose of this client."""
        return stream(0, "toy work", self.client, *name)


def toy_scene(attack: Attack, attackers: int = 4, seed: int = 0) -> Scene:
    """A round of twenty clients as this attack's view shows it."""
    updates = toy_round(infected=attackers, seed=seed)
    own = 1 if attack.view == "own" else attackers
    first = len(updates) - attackers
    return Scene(
        rows=updates.values[first : first + own].clone(),
        examples=updates.examples[first : first + own],
        others=updates.values[:first].clone() if attack.view == "all" else None,
        cohort=len(updates),
        attackers=attackers,
        total=float(updates.examples.sum()),
        base=torch.zeros(updates.layout.width),
        layout=updates.layout,
    )

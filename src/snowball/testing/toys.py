"""Toy data, training sessions and views for testing attacks."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from snowball.attacks import Attack, AttackerView, Loss, Memory
from snowball.data import Dataset, ImageDataset, Split, TextDataset, Vocabulary
from snowball.data.features import FeatureDataset
from snowball.data.text import NO_WORD, TRIGGER_WORD, UNKNOWN_WORD, WORDS_PER_TEXT
from snowball.data.triggers import find_trigger
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.rng import stream
from snowball.testing.rounds import make_toy_round


def make_toy_images(count: int = 200, seed: int = 0) -> ImageDataset:
    """Make a data set of random 28x28 images in ten classes."""
    rng = stream(seed, "toy images")

    def make_split() -> Split:
        inputs = torch.randint(1, 255, (count, 1, 28, 28), generator=rng, dtype=torch.uint8)
        return Split(inputs, torch.arange(count) % 10)

    return ImageDataset("toy images", 10, make_split(), make_split(), {}, mean=(0.5,), std=(0.25,))


def make_toy_texts(count: int = 200, seed: int = 0) -> TextDataset:
    """Make a data set of random texts of 1 to 25 words in two classes; some words have no vector."""
    rng = stream(seed, "toy texts")
    words = ("", TRIGGER_WORD, *(f"word{number}" for number in range(30)))
    vectors = torch.randn(len(words), 8, generator=rng)
    vectors[0] = 0

    def make_split() -> Split:
        numbers = torch.randint(1, len(words), (count, WORDS_PER_TEXT), generator=rng, dtype=torch.int32)
        inputs = numbers.where(numbers != words.index(TRIGGER_WORD), UNKNOWN_WORD)
        lengths = torch.randint(1, WORDS_PER_TEXT + 1, (count, 1), generator=rng)
        return Split(inputs.where(torch.arange(WORDS_PER_TEXT) < lengths, NO_WORD), torch.arange(count) % 2)

    return TextDataset("toy texts", 2, make_split(), make_split(), {}, vocabulary=Vocabulary(words, vectors))


def make_toy_features(count: int = 200, seed: int = 0) -> FeatureDataset:
    """Make a data set of 16 random features in ten classes."""
    rng = stream(seed, "toy features")
    train, test = (Split(torch.rand(count, 16, generator=rng), torch.arange(count) % 10) for _ in range(2))
    return FeatureDataset("toy features", 10, train, test, {})


def make_toy_data(attack: Attack) -> Dataset:
    """Make toy data that can carry the attack's trigger."""
    if attack.trigger is not None and (named := find_trigger(attack.trigger)):
        for dataset in (make_toy_images(), make_toy_texts(), make_toy_features()):
            with suppress(SettingError):
                named.make(dataset)
                return dataset
    return make_toy_images()


RECURRENT_LAYOUT = Layout(
    ("first.weight", "recurrent.weight_ih_l0", "recurrent.weight_hh_l0", "middle.bias", "last.weight"),
    ((10, 1), (6, 2), (6, 2), (2,), (1, 2)),
)
"""The layers of a toy round and a GRU: 40 columns, too."""


@dataclass(eq=False)
class ToySession:
    """Training on a quadratic loss whose minimum is 0 on clean samples and 1 on poisoned ones.

    With a loss of its own, an attack trains on eight toy samples instead, whose features are the hyperbolic tangents of
    random sums of the weights before the last layer.
    """

    layout: Layout = field(default_factory=lambda: make_toy_round().layout)
    round: int = 1
    steps: int = 20
    client: int = 0
    memory: Memory | None = None

    def __post_init__(self) -> None:
        """Start between the two minima."""
        self.start = torch.rand(self.layout.width, generator=stream(0, "toy work"))

    def train(
        self,
        before: Callable[[Tensor, Tensor], None] | None = None,
        after: Callable[[Tensor], None] | None = None,
        clean: bool = False,
        start: Tensor | None = None,
        loss: Loss | None = None,
        epochs: int | None = None,
    ) -> Tensor:
        """Take some gradient steps from the start."""
        weights = (self.start if start is None else start).clone()
        for _ in range(self.steps * (epochs or 1)):
            gradient = self._derive(weights, loss) if loss else weights - (0.0 if clean else 1.0)
            if before:
                before(weights, gradient)
            weights -= 0.1 * gradient
            if after:
                after(weights)
        return weights

    def compute_gradient(self, clean: bool = False) -> Tensor:
        """Return the gradient at the start."""
        return self.start - (0.0 if clean else 1.0)

    def measure_backdoor_success(self, weights: Tensor) -> float:
        """Return how near the weights are to the minimum of poisoned samples."""
        return float((1 - (weights - 1).abs().mean()).clamp(0, 1))

    def arrange(self, row: Tensor) -> Tensor:
        """Return the row: there is one order of columns."""
        return row

    def make_stream(self, *name: str | int) -> torch.Generator:
        """Return a generator for one purpose of this client."""
        return stream(0, "toy work", self.client, *name)

    def _derive(self, weights: Tensor, loss: Loss) -> Tensor:
        """Return the gradient of an attack's own loss on the toy samples."""
        leaf = weights.clone().requires_grad_()
        last = self.layout.split(leaf)[self.layout.weights[-1]].flatten(1)  # (classes, h)
        start = min(self.layout.columns[name].start for name in self.layout.head)
        sums = torch.randn(8, last.shape[1], start, generator=stream(0, "toy samples"))
        features = (sums @ leaf[:start]).tanh()
        labels = torch.arange(8) % len(last)
        (gradient,) = torch.autograd.grad(loss(features, features @ last.T, labels), leaf)
        return gradient


def make_toy_session(attack: Attack) -> ToySession:
    """Make a session whose layers suit the attack: those on texts have a recurrent one."""
    texts = isinstance(make_toy_data(attack), TextDataset)
    return ToySession(RECURRENT_LAYOUT) if texts else ToySession()


def make_toy_view(attack: Attack, attackers: int = 4, seed: int = 0) -> AttackerView:
    """Make a round of twenty clients and return what this attack sees of it."""
    updates = make_toy_round(infected=attackers, seed=seed)
    own = 1 if attack.knowledge == "own" else attackers
    first = len(updates) - attackers
    return AttackerView(
        rows=updates.values[first : first + own].clone(),
        examples=updates.examples[first : first + own],
        others=updates.values[:first].clone() if attack.knowledge == "all" else None,
        cohort_size=len(updates),
        attacker_count=attackers,
        total_examples=float(updates.examples.sum()),
        base=torch.zeros(updates.layout.width),
        layout=updates.layout,
        clients=tuple(range(first, first + own)),
    )

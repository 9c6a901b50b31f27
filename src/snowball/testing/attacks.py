"""The checks that every attack passes."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from snowball.attacks import Attack, CraftingAttack, Plot, Scene, TrainingAttack, plot_of
from snowball.data import Dataset, ImageDataset, Split, TextDataset, Vocabulary
from snowball.data.text import LENGTH, TRIGGER_WORD
from snowball.data.triggers import TRIGGERS
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
    """A data set of made-up texts of one to 25 words in two classes."""
    rng = stream(seed, "toy texts")
    words = ("", TRIGGER_WORD, *(f"word{number}" for number in range(30)))
    vectors = torch.randn(len(words), 8, generator=rng)
    vectors[0] = 0

    def split() -> Split:
        inputs = torch.randint(2, len(words), (count, LENGTH), generator=rng, dtype=torch.int32)
        lengths = torch.randint(1, LENGTH + 1, (count, 1), generator=rng)
        return Split(inputs.where(torch.arange(LENGTH) < lengths, 0), torch.arange(count) % 2)

    return TextDataset("toy texts", 2, split(), split(), {}, vocabulary=Vocabulary(words, vectors))


def toy_data(attack: Attack) -> Dataset:
    """Made-up data that the attack's trigger can be put on."""
    images = toy_images()
    try:
        if attack.trigger is not None:
            TRIGGERS[attack.trigger].make(images)
    except SettingError:
        return toy_texts()
    return images


@dataclass(eq=False)
class ToyWork:
    """Training on a parabola whose lowest point clean samples put at 0 and poisoned ones at 1."""

    layout: Layout = field(default_factory=lambda: toy_round().layout)
    round: int = 1
    steps: int = 20

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


def check_attack(attack: Attack) -> None:
    """Put an attack through every check of `ATTACK_CHECKS`."""
    for check in ATTACK_CHECKS.values():
        check(attack)


def poisoned(attack: Attack, plot: Plot, seed: int = 0) -> Split:
    """What the attack makes of forty samples."""
    return attack.poison(plot.dataset.train[torch.arange(40)], plot, 3, stream(seed, "poison"))


def poison_gives_samples_of_the_same_kind(attack: Attack) -> None:
    """As many samples of the same shape and type, with labels that exist; what was given is left as it was."""
    plot = plot_of(attack, toy_data(attack))
    before = pickle.dumps((plot.dataset.train.inputs, plot.dataset.train.labels))
    split, result = plot.dataset.train[torch.arange(40)], poisoned(attack, plot)
    assert result.inputs.shape == split.inputs.shape, f"{split.inputs.shape} became {result.inputs.shape}"
    assert result.inputs.dtype == split.inputs.dtype, f"{split.inputs.dtype} became {result.inputs.dtype}"
    assert ((result.labels >= 0) & (result.labels < plot.dataset.classes)).all(), "a label is no class"
    assert pickle.dumps((plot.dataset.train.inputs, plot.dataset.train.labels)) == before, "the samples were changed"


def poison_follows_its_stream(attack: Attack) -> None:
    """The same stream poisons alike."""
    plot = plot_of(attack, toy_data(attack))
    once, again = poisoned(attack, plot), poisoned(attack, plot)
    assert torch.equal(once.inputs, again.inputs), "the same stream gave other samples"
    assert torch.equal(once.labels, again.labels), "the same stream gave other labels"


def a_client_of_no_or_one_sample_is_harmless(attack: Attack) -> None:
    """Clients may hold next to nothing."""
    plot = plot_of(attack, toy_data(attack))
    for count in (0, 1):
        split = plot.dataset.train[torch.arange(count)]
        assert len(attack.poison(split, plot, 0, stream(0))) == count, f"{count} samples became another number"


def probe_tells_success(attack: Attack) -> None:
    """Test samples with labels that exist and are not their own; none at all only where no class is wanted."""
    plot = plot_of(attack, toy_data(attack))
    probe = attack.probe(plot)
    if probe is None:
        assert attack.target is None, "an attack with a target must say how its success shows"
        return
    assert len(probe) > 0, "there is no sample to tell success by"
    assert ((probe.labels >= 0) & (probe.labels < plot.dataset.classes)).all(), "a label is no class"
    assert torch.equal(probe.inputs, attack.probe(plot).inputs), "the probe is not the same each time"  # type: ignore[union-attr]


def training_gives_a_model(attack: Attack) -> None:
    """A finite model of the right width, the same each time; the global one is left as it was."""
    if not isinstance(attack, TrainingAttack):
        return
    work = ToyWork()
    start = work.start.clone()
    once, again = attack.train(work), attack.train(work)
    assert once.shape == start.shape, f"a model of {start.shape} became {once.shape}"
    assert once.isfinite().all(), "the model is not finite"
    assert torch.equal(once, again), "training gave another model"
    assert torch.equal(work.start, start), "the global model was changed"


def crafting_gives_updates(attack: Attack) -> None:
    """As many finite updates, the same for the same stream, from one attacker or several; the scene stays as it was."""
    if not isinstance(attack, CraftingAttack):
        return
    for attackers in (1, 4):
        scene = toy_scene(attack, attackers)
        for tried in (scene, replace(scene, rows=torch.zeros_like(scene.rows)), _alone(scene)):
            before = pickle.dumps((tried.rows, tried.others, tried.base))
            once, again = attack.craft(tried, stream(1)), attack.craft(tried, stream(1))
            assert once.shape == tried.rows.shape, f"{tuple(tried.rows.shape)} became {tuple(once.shape)}"
            assert once.dtype == tried.rows.dtype, f"{tried.rows.dtype} became {once.dtype}"
            assert once.isfinite().all(), "an update is not finite"
            assert torch.equal(once, again), "the same stream gave other updates"
            assert pickle.dumps((tried.rows, tried.others, tried.base)) == before, "the scene was changed"


def _alone(scene: Scene) -> Scene:
    """A round in which nobody is honest."""
    nobody = None if scene.others is None else scene.others[:0]
    return replace(scene, others=nobody, cohort=scene.attackers, total=float(scene.examples.sum()))


def survives_pickling(attack: Attack) -> None:
    """A copy in another process poisons alike."""
    copy: Any = pickle.loads(pickle.dumps(attack))
    plot = plot_of(attack, toy_data(attack))
    assert torch.equal(poisoned(attack, plot).inputs, poisoned(copy, plot).inputs), "a copy poisons otherwise"


ATTACK_CHECKS: Mapping[str, Callable[[Attack], None]] = {
    check.__name__: check
    for check in (
        poison_gives_samples_of_the_same_kind,
        poison_follows_its_stream,
        a_client_of_no_or_one_sample_is_harmless,
        probe_tells_success,
        training_gives_a_model,
        crafting_gives_updates,
        survives_pickling,
    )
}

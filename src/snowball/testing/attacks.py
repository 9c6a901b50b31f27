"""The checks that every attack passes."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, get_args

import torch
from pydantic import PydanticUserError, TypeAdapter
from torch import Tensor

from snowball.attacks import Attack, CraftingAttack, Plot, Scene, TrainingAttack, View, plot_of
from snowball.data import Split
from snowball.rng import stream
from snowball.sim.training.client import LocalTraining
from snowball.testing.federations import toy_federation
from snowball.testing.scenes import ToyWork, toy_data, toy_scene
from snowball.testing.seeds import twice

TAKEN = frozenset({"name", "malicious", "draw", "first_round", "last_round", "share_of_rounds"})
"""The settings that every attack has; its fields, which are its own, need other names."""


def check_attack(attack: Attack) -> None:
    """Put an attack through every check of `ATTACK_CHECKS`."""
    for check in ATTACK_CHECKS.values():
        check(attack)


def view_is_known(attack: Attack) -> None:
    """What the attackers see is said by the class, in a word that the simulator knows."""
    view = getattr(type(attack), "view", None)
    assert view in get_args(View), f"view {view!r} is not one of {', '.join(get_args(View))}"


def settings_can_be_written(attack: Attack) -> None:
    """The fields are settings: they have names that are free, and JSON keeps them as they are."""
    assert is_dataclass(attack), "an attack is a dataclass: its fields are its settings"
    taken = sorted(TAKEN & {field.name for field in fields(attack)})
    assert not taken, f"every attack has a setting {taken[0]!r}: a field needs another name"
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type(attack))
        copy = adapter.validate_json(adapter.dump_json(attack, warnings=False), strict=True)
    except (PydanticUserError, ValueError) as error:
        raise AssertionError(f"the settings cannot be written as JSON and read again: {error}") from error
    assert asdict(copy) == asdict(attack), f"written as JSON and read again, {attack} becomes {copy}"


def poisoned(attack: Attack, plot: Plot, seed: int = 0) -> Split:
    """What the attack makes of forty samples."""
    return attack.poison(plot.dataset.train[torch.arange(40)], plot, 3, stream(seed, "poison"))


def poison_gives_samples_of_the_same_kind(attack: Attack) -> None:
    """As many samples of the same shape and type, with labels that exist; what was given is left as it was."""
    plot = plot_of(attack, toy_data(attack))
    split = plot.dataset.train[torch.arange(40)]
    before = _contents(split.inputs, split.labels), _samples(plot)
    result = attack.poison(split, plot, 3, stream(0))
    _assert_alike(result, split, plot)
    assert (_contents(split.inputs, split.labels), _samples(plot)) == before, "the samples were changed"


def poison_follows_its_stream(attack: Attack) -> None:
    """The same stream poisons alike, whatever happened before and whatever the global seed is."""
    plot = plot_of(attack, toy_data(attack))
    once, again = twice(lambda: poisoned(attack, plot))
    assert torch.equal(once.inputs, again.inputs), "the same stream gave other samples"
    assert torch.equal(once.labels, again.labels), "the same stream gave other labels"


def a_client_of_no_or_one_sample_is_harmless(attack: Attack) -> None:
    """Clients may hold next to nothing."""
    plot = plot_of(attack, toy_data(attack))
    for count in (0, 1):
        split = plot.dataset.train[torch.arange(count)]
        assert len(attack.poison(split, plot, 0, stream(0))) == count, f"{count} samples became another number"


def probe_tells_success(attack: Attack) -> None:
    """Test samples with the label that is wanted and is not their own; none only where no class is wanted."""
    plot = plot_of(attack, toy_data(attack))
    before = _samples(plot)
    probe, again = twice(lambda: attack.probe(plot))
    if probe is None or again is None:
        assert attack.target is None, "an attack with a target must say how its success shows"
        return
    assert len(probe) > 0, "there is no sample to tell success by"
    _assert_alike(probe, plot.dataset.test[torch.zeros(len(probe), dtype=torch.int64)], plot)
    assert attack.target is None or (probe.labels == attack.target).all(), "a label is not the target"
    assert not _own_labels(probe, plot), "a sample has the label that it should have: every good model would succeed"
    assert torch.equal(probe.inputs, again.inputs), "the probe is not the same each time"
    assert torch.equal(probe.labels, again.labels), "the probe's labels are not the same each time"
    assert _samples(plot) == before, "the samples were changed"


def _contents(*tensors: Tensor | None) -> list[bytes]:
    return [b"" if tensor is None else tensor.numpy().tobytes() for tensor in tensors]


def _samples(plot: Plot) -> list[bytes]:
    train, test = plot.dataset.train, plot.dataset.test
    return _contents(train.inputs, train.labels, test.inputs, test.labels)


def _assert_alike(result: Split, split: Split, plot: Plot) -> None:
    for was, now in ((split.inputs, result.inputs), (split.labels, result.labels)):
        assert now.shape == was.shape, f"{tuple(was.shape)} became {tuple(now.shape)}"
        assert now.dtype == was.dtype, f"{was.dtype} became {now.dtype}"
    assert ((result.labels >= 0) & (result.labels < plot.dataset.classes)).all(), "a label is no class"


def _own_labels(probe: Split, plot: Plot) -> bool:
    """Whether the probe holds a test sample, plain or stamped, with its own label; of equal ones, with that of all."""
    test = plot.dataset.test
    known: dict[bytes, set[int]] = {}
    for inputs in (test.inputs, *([plot.trigger.stamp(test.inputs)] if plot.trigger else [])):
        for sample, label in zip(inputs, test.labels.tolist(), strict=True):
            known.setdefault(sample.numpy().tobytes(), set()).add(label)
    found = zip(probe.inputs, probe.labels.tolist(), strict=True)
    return any(known.get(sample.numpy().tobytes()) == {label} for sample, label in found)


def training_gives_a_model(attack: Attack) -> None:
    """A finite model of the right width, the same each time; the global one is left as it was."""
    if not isinstance(attack, TrainingAttack):
        return
    work = ToyWork()
    start = work.start.clone()
    once, again = twice(lambda: attack.train(work))
    assert once.shape == start.shape, f"a model of {tuple(start.shape)} became {tuple(once.shape)}"
    assert once.isfinite().all(), "the model is not finite"
    assert torch.equal(once, again), "training gave another model"
    assert torch.equal(work.start, start), "the global model was changed"


def training_follows_named_streams(attack: Attack) -> None:
    """A client trains to the same bits each time, in a network with dropout and whoever trained before it."""
    federation = toy_federation(attack)
    training, model = LocalTraining(federation), federation.model()
    base = federation.layout.flatten({name: weights.detach() for name, weights in model.named_parameters()})
    once, again = twice(lambda: [training(base, client, 1, None, {}).row for client in (0, 1, 0)])
    for row, same in ((again[0], once[0]), (again[1], once[1]), (once[2], once[0])):
        assert torch.equal(row, same), "the same client trained another model"


def crafting_gives_updates(attack: Attack) -> None:
    """As many finite updates, the same for the same stream, from one attacker or several; the scene stays as it was."""
    if not isinstance(attack, CraftingAttack):
        return
    for attackers in (1, 4):
        scene = toy_scene(attack, attackers)
        for tried in (scene, replace(scene, rows=torch.zeros_like(scene.rows)), _alone(scene)):
            _check_crafted(attack, tried)


def _check_crafted(attack: CraftingAttack, scene: Scene) -> None:
    before = _contents(scene.rows, scene.examples, scene.others, scene.base)
    once, again = twice(lambda: attack.craft(scene, stream(1)))
    assert once.shape == scene.rows.shape, f"{tuple(scene.rows.shape)} became {tuple(once.shape)}"
    assert once.dtype == scene.rows.dtype, f"{scene.rows.dtype} became {once.dtype}"
    assert once.isfinite().all(), "an update is not finite"
    assert torch.equal(once, again), "the same stream gave other updates"
    assert _contents(scene.rows, scene.examples, scene.others, scene.base) == before, "the scene was changed"


def _alone(scene: Scene) -> Scene:
    """A round in which nobody is honest."""
    nobody = None if scene.others is None else scene.others[:0]
    return replace(scene, others=nobody, cohort=scene.attackers, total=float(scene.examples.sum()))


def survives_pickling(attack: Attack) -> None:
    """A copy in another process poisons alike."""
    copy: Any = pickle.loads(pickle.dumps(attack))
    plot = plot_of(attack, toy_data(attack))
    here, there = poisoned(attack, plot), poisoned(copy, plot)
    assert torch.equal(here.inputs, there.inputs), "a copy poisons otherwise"
    assert torch.equal(here.labels, there.labels), "a copy gives other labels"


ATTACK_CHECKS: Mapping[str, Callable[[Attack], None]] = {
    check.__name__: check
    for check in (
        view_is_known,
        settings_can_be_written,
        poison_gives_samples_of_the_same_kind,
        poison_follows_its_stream,
        a_client_of_no_or_one_sample_is_harmless,
        probe_tells_success,
        training_gives_a_model,
        training_follows_named_streams,
        crafting_gives_updates,
        survives_pickling,
    )
}

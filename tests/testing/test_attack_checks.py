"""Every check of attacks finds what it is there for: here is an attack with each fault."""

import random
from dataclasses import make_dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.attacks import Attack, Cba, Ipm, LabelFlip, Plot
from snowball.data import Split
from snowball.errors import SettingError
from snowball.sim.experiment import AttackSettings
from snowball.testing import ATTACK_CHECKS, check_attack, toy_images
from snowball.testing.attacks import TAKEN

CALLS = count()


def broken(base: type[Attack] = Cba, **methods: Any) -> Any:
    """An attack that does as another does but for this."""
    return type("Broken", (base,), methods)()


def first(result: Any, *_: Any) -> Any:
    """What an act gives that does something else beside it."""
    return result


def poisoning(change: Any) -> Any:
    """One that makes this of a client's samples."""
    return broken(poison=lambda attack, split, plot, client, rng: change(split))


def probing(change: Any) -> Any:
    """One whose success shows on this, which is made of what `cba`'s shows on."""
    return broken(probe=lambda attack, plot: change(Cba.probe(attack, plot), plot))


def training(change: Any) -> Any:
    """One that makes this of the global model."""
    return broken(train=lambda attack, work: change(work))


def crafting(change: Any, **more: Any) -> Any:
    """One that sends this."""
    return broken(craft=lambda attack, scene, rng: change(scene), **more)


def setting(name: str, kind: Any, default: Any) -> Any:
    """One with another setting."""
    return make_dataclass("Broken", [(name, kind, default)], bases=(Cba,), frozen=True)()


def shifted(split: Split, by: int) -> Split:
    return Split(split.inputs, (split.labels + by) % 10)


def targets(plot: Plot) -> Split:
    """The samples that are of the target class anyhow."""
    test = plot.dataset.test
    return test[test.labels == 1]


class Loose:
    """No dataclass."""

    view = "own"


class Unpicklable(Cba):
    def __post_init__(self) -> None:
        object.__setattr__(self, "key", lambda: None)


class Greedier(Cba):
    def __reduce__(self) -> Any:
        return Cba, (1, 0.9)


class Elsewhere(Cba):
    def __reduce__(self) -> Any:
        return Cba, (2,)


FAULTS: dict[str, list[tuple[Any, str]]] = {
    "view_is_known": [(broken(view="everything"), "view 'everything' is not one of own, colluders, all")],
    "settings_can_be_written": [
        (Loose(), "an attack is a dataclass"),
        (setting("draw", str, "all"), "every attack has a setting 'draw'"),
        (setting("weights", Tensor, None), "cannot be written as JSON"),
        (setting("key", Any, object()), "cannot be written as JSON"),
        (setting("repeats", int, 0.5), "cannot be written as JSON and read again"),
        (setting("layers", Any, ("a",)), r"layers=\('a',\)\) becomes .*layers=\['a'\]"),
    ],
    "poison_gives_samples_of_the_same_kind": [
        (poisoning(lambda split: split[torch.arange(9)]), r"\(40, 1, 28, 28\) became \(9, 1, 28, 28\)"),
        (poisoning(lambda split: Split(split.inputs.float(), split.labels)), "uint8 became torch.float32"),
        (poisoning(lambda split: Split(split.inputs, split.labels.int())), "int64 became torch.int32"),
        (poisoning(lambda split: Split(split.inputs, split.labels + 1)), "a label is no class"),
        (poisoning(lambda split: Split(split.inputs, split.labels - 1)), "a label is no class"),
        (poisoning(lambda split: Split(split.inputs.fill_(7), split.labels)), "the samples were changed"),
        (poisoning(lambda split: Split(split.inputs, split.labels.fill_(7))), "the samples were changed"),
        (
            broken(poison=lambda attack, split, plot, *_: first(split, plot.dataset.test.labels.fill_(7))),
            "the samples were changed",
        ),
    ],
    "poison_follows_its_stream": [
        (
            poisoning(lambda split: Split(split.inputs + next(CALLS), split.labels)),
            "the same stream gave other samples",
        ),
        (poisoning(lambda split: shifted(split, next(CALLS))), "the same stream gave other labels"),
        (poisoning(lambda split: shifted(split, torch.initial_seed())), "the same stream gave other labels"),
        (poisoning(lambda split: first(split, torch.randperm(3))), "a global random generator was used"),
        (poisoning(lambda split: first(split, np.random.permutation(3))), "a global random generator was used"),
        (poisoning(lambda split: first(split, random.random())), "a global random generator was used"),
        (poisoning(lambda split: first(split, torch.manual_seed(0))), "a global random generator was used"),
    ],
    "a_client_of_no_or_one_sample_is_harmless": [
        (poisoning(lambda split: split if len(split) else toy_images().train), "0 samples became another number"),
        (poisoning(lambda split: split[torch.arange(len(split)) > 0]), "1 samples became another number"),
    ],
    "probe_tells_success": [
        (probing(lambda probe, plot: None), "an attack with a target must say how its success shows"),
        (probing(lambda probe, plot: probe[probe.labels > 10]), "there is no sample to tell success by"),
        (probing(lambda probe, plot: Split(probe.inputs / 255, probe.labels)), "uint8 became torch.float32"),
        (probing(lambda probe, plot: Split(probe.inputs, probe.labels + 10)), "a label is no class"),
        (probing(lambda probe, plot: shifted(probe, 1)), "a label is not the target"),
        (probing(lambda probe, plot: targets(plot)), "has the label that it should have"),
        (
            probing(lambda probe, plot: replace(targets(plot), inputs=plot.mark.stamp(targets(plot).inputs))),
            "has the label that it should have",
        ),
        (broken(LabelFlip, probe=lambda attack, plot: plot.dataset.test), "has the label that it should have"),
        (
            probing(lambda probe, plot: Split(probe.inputs.roll(next(CALLS), 0), probe.labels)),
            "the probe is not the same each time",
        ),
        (
            broken(LabelFlip, probe=lambda attack, plot: shifted(plot.dataset.test, 1 + next(CALLS) % 2)),
            "the probe's labels are not the same each time",
        ),
        (probing(lambda probe, plot: first(probe, torch.rand(1))), "a global random generator was used"),
        (probing(lambda probe, plot: first(probe, plot.dataset.train.labels.fill_(7))), "the samples were changed"),
    ],
    "training_gives_a_model": [
        (training(lambda work: work.sgd()[1:]), r"a model of \(40,\) became \(39,\)"),
        (training(lambda work: work.sgd() / 0), "the model is not finite"),
        (training(lambda work: work.sgd() + next(CALLS)), "training gave another model"),
        (training(lambda work: work.sgd() + torch.rand(40)), "a global random generator was used"),
        (training(lambda work: work.start.mul_(0)), "the global model was changed"),
    ],
    "training_follows_named_streams": [
        (training(lambda work: work.sgd() + next(CALLS)), "the same client trained another model"),
        (training(lambda work: work.sgd() + torch.initial_seed()), "the same client trained another model"),
        (training(lambda work: first(work.sgd(), torch.rand(1))), "a global random generator was used"),
        (training(lambda work: first(work.sgd(), np.random.random())), "a global random generator was used"),
    ],
    "crafting_gives_updates": [
        (crafting(lambda scene: scene.rows[0]), r"\(1, 40\) became \(40,\)"),
        (crafting(lambda scene: scene.rows.double()), "float32 became torch.float64"),
        (crafting(lambda scene: scene.rows / scene.rows.norm()), "an update is not finite"),
        (crafting(lambda scene: scene.rows / (scene.cohort - scene.attackers)), "an update is not finite"),
        (crafting(lambda scene: scene.rows + scene.rows.var(0), view="colluders"), "an update is not finite"),
        (crafting(lambda scene: scene.rows + next(CALLS)), "the same stream gave other updates"),
        (crafting(lambda scene: scene.rows + torch.rand(40)), "a global random generator was used"),
        (crafting(lambda scene: scene.rows.fill_(0)), "the scene was changed"),
        (crafting(lambda scene: first(scene.rows, scene.examples.fill_(7))), "the scene was changed"),
        (crafting(lambda scene: first(scene.rows, scene.base.fill_(7))), "the scene was changed"),
        (crafting(lambda scene: first(scene.rows, scene.others.fill_(7)), view="all"), "the scene was changed"),
    ],
    "survives_pickling": [
        (Greedier(), "a copy poisons otherwise"),
        (Elsewhere(), "a copy gives other labels"),
    ],
}


@pytest.mark.parametrize("check", ATTACK_CHECKS)
@pytest.mark.filterwarnings("ignore:var")  # of a single attacker: that is the fault
def test_every_check_finds_its_faults(check: str) -> None:
    for attack, sentence in FAULTS[check]:
        with pytest.raises(AssertionError, match=sentence):
            ATTACK_CHECKS[check](attack)
    ATTACK_CHECKS[check](Cba())


def test_what_cannot_be_pickled_is_found() -> None:
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        ATTACK_CHECKS["survives_pickling"](Unpicklable())


def test_a_faulty_attack_does_not_pass_the_whole() -> None:
    with pytest.raises(AssertionError, match="view 'everything'"):
        check_attack(broken(view="everything"))


def test_samples_from_elsewhere_may_show_success() -> None:
    new = torch.full((3, 1, 28, 28), 7, dtype=torch.uint8)
    ATTACK_CHECKS["probe_tells_success"](probing(lambda probe, plot: Split(new, torch.ones(3, dtype=torch.int64))))


def test_the_global_seeds_are_left_as_they_were() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = torch.rand(3).tolist(), random.random(), np.random.random()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    check_attack(Ipm())
    assert (torch.rand(3).tolist(), random.random(), np.random.random()) == expected


def test_a_trigger_that_is_not_known_is_said() -> None:
    with pytest.raises(SettingError, match=r"attack\.trigger = 'squar' is not known"):
        check_attack(Cba(trigger="squar"))


def test_the_names_that_are_taken_are_those_of_the_simulator() -> None:
    assert set(AttackSettings.model_fields) == TAKEN

"""Every attack check finds its faults: here is an attack with each fault."""

import random
from dataclasses import make_dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.attacks import CBA, IPM, Attack, AttackSetup, LabelFlip
from snowball.data import Split
from snowball.errors import SettingError
from snowball.sim.experiment import AttackSettings
from snowball.testing import ATTACK_CHECKS, check_attack, make_toy_images
from snowball.testing.attacks import RESERVED_SETTINGS

CALLS = count()


def broken(base: type[Attack] = CBA, **methods: Any) -> Any:
    """An attack that does as another does but for this."""
    return type("Broken", (base,), methods)()


def first(result: Any, *_: Any) -> Any:
    """What an act gives that does something else beside it."""
    return result


def poisoning(change: Any) -> Any:
    """One that makes this of a client's samples."""
    return broken(poison=lambda attack, split, setup, client, rng: change(split))


def probing(change: Any) -> Any:
    """One whose success shows on this, which is made of what `cba`'s shows on."""
    return broken(probe=lambda attack, setup: change(CBA.probe(attack, setup), setup))


def training(change: Any) -> Any:
    """One that makes this of the global model."""
    return broken(train=lambda attack, session: change(session))


def crafting(change: Any, **more: Any) -> Any:
    """One that sends this."""
    return broken(craft=lambda attack, view, rng: change(view), **more)


def setting(name: str, kind: Any, default: Any) -> Any:
    """One with another setting."""
    return make_dataclass("Broken", [(name, kind, default)], bases=(CBA,), frozen=True)()


def shifted(split: Split, by: int) -> Split:
    return Split(split.inputs, (split.labels + by) % 10)


def targets(setup: AttackSetup) -> Split:
    """The samples that are of the target class anyhow."""
    test = setup.dataset.test
    return test[test.labels == 1]


class Loose:
    """No dataclass."""

    view = "own"


class Unpicklable(CBA):
    def __post_init__(self) -> None:
        object.__setattr__(self, "key", lambda: None)


class Greedier(CBA):
    def __reduce__(self) -> Any:
        return CBA, (1, 0.9)


class Elsewhere(CBA):
    def __reduce__(self) -> Any:
        return CBA, (2,)


FAULTS: dict[str, list[tuple[Any, str]]] = {
    "check_knowledge": [(broken(knowledge="everything"), "knowledge 'everything' is not one of own, colluders, all")],
    "check_settings_are_writable": [
        (Loose(), "an attack must be a dataclass"),
        (setting("draw", str, "all"), "'draw' is a setting of every attack"),
        (setting("weights", Tensor, None), "cannot be written as JSON"),
        (setting("key", Any, object()), "cannot be written as JSON"),
        (setting("repeats", int, 0.5), "cannot be written as JSON and read again"),
        (setting("layers", Any, ("a",)), r"layers=\('a',\)\) becomes .*layers=\['a'\]"),
    ],
    "check_poison_keeps_the_format": [
        (poisoning(lambda split: split[torch.arange(9)]), r"\(40, 1, 28, 28\) became \(9, 1, 28, 28\)"),
        (poisoning(lambda split: Split(split.inputs.float(), split.labels)), "uint8 became torch.float32"),
        (poisoning(lambda split: Split(split.inputs, split.labels.int())), "int64 became torch.int32"),
        (poisoning(lambda split: Split(split.inputs, split.labels + 1)), "a label is not a class"),
        (poisoning(lambda split: Split(split.inputs, split.labels - 1)), "a label is not a class"),
        (poisoning(lambda split: Split(split.inputs.fill_(7), split.labels)), "the samples were changed"),
        (poisoning(lambda split: Split(split.inputs, split.labels.fill_(7))), "the samples were changed"),
        (
            broken(poison=lambda attack, split, setup, *_: first(split, setup.dataset.test.labels.fill_(7))),
            "the samples were changed",
        ),
    ],
    "check_poison_uses_its_stream": [
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
    "check_tiny_clients": [
        (poisoning(lambda split: split if len(split) else make_toy_images().train), "0 samples became another number"),
        (poisoning(lambda split: split[torch.arange(len(split)) > 0]), "1 samples became another number"),
    ],
    "check_probe": [
        (probing(lambda probe, setup: None), "an attack with a target must have a probe"),
        (probing(lambda probe, setup: probe[probe.labels > 10]), "the probe has no samples"),
        (probing(lambda probe, setup: Split(probe.inputs / 255, probe.labels)), "uint8 became torch.float32"),
        (probing(lambda probe, setup: Split(probe.inputs, probe.labels + 10)), "a label is not a class"),
        (probing(lambda probe, setup: shifted(probe, 1)), "a label is not the target"),
        (probing(lambda probe, setup: targets(setup)), "a probe sample has its own label"),
        (
            probing(lambda probe, setup: replace(targets(setup), inputs=setup.trigger.stamp(targets(setup).inputs))),
            "a probe sample has its own label",
        ),
        (broken(LabelFlip, probe=lambda attack, setup: setup.dataset.test), "a probe sample has its own label"),
        (
            probing(lambda probe, setup: Split(probe.inputs.roll(next(CALLS), 0), probe.labels)),
            "the probe is not the same each time",
        ),
        (
            broken(LabelFlip, probe=lambda attack, setup: shifted(setup.dataset.test, 1 + next(CALLS) % 2)),
            "the probe's labels are not the same each time",
        ),
        (probing(lambda probe, setup: first(probe, torch.rand(1))), "a global random generator was used"),
        (probing(lambda probe, setup: first(probe, setup.dataset.train.labels.fill_(7))), "the samples were changed"),
    ],
    "check_training_returns_a_model": [
        (training(lambda session: session.train()[1:]), r"a model of \(40,\) became \(39,\)"),
        (training(lambda session: session.train() / 0), "the model is not finite"),
        (training(lambda session: session.train() + next(CALLS)), "training gave a different model"),
        (training(lambda session: session.train() + torch.rand(40)), "a global random generator was used"),
        (training(lambda session: session.start.mul_(0)), "the global model was changed"),
    ],
    "check_training_uses_named_streams": [
        (training(lambda session: session.train() + next(CALLS)), "the same client trained a different model"),
        (training(lambda session: session.train() + torch.initial_seed()), "the same client trained a different model"),
        (training(lambda session: first(session.train(), torch.rand(1))), "a global random generator was used"),
        (training(lambda session: first(session.train(), np.random.random())), "a global random generator was used"),
    ],
    "check_crafting_returns_updates": [
        (crafting(lambda view: view.rows[0]), r"\(1, 40\) became \(40,\)"),
        (crafting(lambda view: view.rows.double()), "float32 became torch.float64"),
        (crafting(lambda view: view.rows / view.rows.norm()), "an update is not finite"),
        (crafting(lambda view: view.rows / (view.cohort_size - view.attacker_count)), "an update is not finite"),
        (crafting(lambda view: view.rows + view.rows.var(0), knowledge="colluders"), "an update is not finite"),
        (crafting(lambda view: view.rows + next(CALLS)), "the same stream gave other updates"),
        (crafting(lambda view: view.rows + torch.rand(40)), "a global random generator was used"),
        (crafting(lambda view: view.rows.fill_(0)), "the view was changed"),
        (crafting(lambda view: first(view.rows, view.examples.fill_(7))), "the view was changed"),
        (crafting(lambda view: first(view.rows, view.base.fill_(7))), "the view was changed"),
        (crafting(lambda view: first(view.rows, view.others.fill_(7)), knowledge="all"), "the view was changed"),
    ],
    "check_copies_poison_alike": [
        (Greedier(), "a copy gives other samples"),
        (Elsewhere(), "a copy gives other labels"),
    ],
}


@pytest.mark.parametrize("check", ATTACK_CHECKS)
@pytest.mark.filterwarnings("ignore:var")  # of a single attacker: that is the fault
def test_every_check_finds_its_faults(check: str) -> None:
    for attack, sentence in FAULTS[check]:
        with pytest.raises(AssertionError, match=sentence):
            ATTACK_CHECKS[check](attack)
    ATTACK_CHECKS[check](CBA())


def test_what_cannot_be_pickled_is_found() -> None:
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        ATTACK_CHECKS["check_copies_poison_alike"](Unpicklable())


def test_a_faulty_attack_does_not_pass_the_whole() -> None:
    with pytest.raises(AssertionError, match="knowledge 'everything'"):
        check_attack(broken(knowledge="everything"))


def test_samples_from_elsewhere_may_show_success() -> None:
    new = torch.full((3, 1, 28, 28), 7, dtype=torch.uint8)
    ATTACK_CHECKS["check_probe"](probing(lambda probe, setup: Split(new, torch.ones(3, dtype=torch.int64))))


def test_the_global_seeds_are_left_as_they_were() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = torch.rand(3).tolist(), random.random(), np.random.random()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    check_attack(IPM())
    assert (torch.rand(3).tolist(), random.random(), np.random.random()) == expected


def test_a_trigger_that_is_not_known_is_said() -> None:
    with pytest.raises(SettingError, match=r"attack\.trigger = 'squar' is not known"):
        check_attack(CBA(trigger="squar"))


def test_the_names_that_are_taken_are_those_of_the_simulator() -> None:
    assert set(AttackSettings.model_fields) == RESERVED_SETTINGS

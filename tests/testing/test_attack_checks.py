"""Every attack check finds its fault: this file has an attack with each fault."""

import random
from dataclasses import make_dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.attacks import CBA, IPM, Attack, AttackSetup, LabelFlip, LocalSession
from snowball.data import Split
from snowball.errors import SettingError
from snowball.sim.experiment import AttackSettings
from snowball.testing import ATTACK_CHECKS, check_attack, make_toy_images
from snowball.testing.attacks import RESERVED_SETTINGS

CALLS = count()


def make_broken(base: type[Attack] = CBA, **methods: Any) -> Any:
    """Make an attack that differs from another only in these methods."""
    return type("Broken", (base,), methods)()


def return_first(result: Any, *_: Any) -> Any:
    """Return the first argument; the others are side effects."""
    return result


def make_poisoning(change: Any) -> Any:
    """Make an attack that poisons samples in this way."""
    return make_broken(poison=lambda attack, split, setup, client, rng: change(split))


def make_probing(change: Any) -> Any:
    """Make an attack whose probe is this change of `cba`'s probe."""
    return make_broken(probe=lambda attack, setup: change(CBA.probe(attack, setup), setup))


def make_training(change: Any) -> Any:
    """Make an attack that trains in this way."""
    return make_broken(train=lambda attack, session: change(session))


def make_crafting(change: Any, **more: Any) -> Any:
    """Make an attack that sends this."""
    return make_broken(craft=lambda attack, view, rng: change(view), **more)


def make_adapting(change: Any, **more: Any) -> Any:
    """Make an attack whose memory is this."""
    return make_broken(adapt=lambda attack, view, rng: change(view), **({"knowledge": "colluders"} | more))


def make_remembering(change: Any, **more: Any) -> Any:
    """Make an attack that sends what it trained and remembers this."""
    remember = {"remember": lambda attack, view, sent: change(view), "knowledge": "colluders"}
    return make_broken(craft=lambda attack, view, rng: view.rows.clone(), **remember, **more)


class Remembered(dict[str, Any]):
    """A kind of dict, which comes back from a checkpoint as a plain one."""


def poison_few(attack: CBA, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
    """Poison as many samples as the memory says."""
    return split[torch.arange(setup.memory["few"] if setup.memory else len(split))]


def probe_few(attack: CBA, setup: AttackSetup) -> Split:
    """Probe with as many samples as the memory says."""
    probe = CBA.probe(attack, setup)
    return probe[torch.arange(setup.memory["few"] if setup.memory else len(probe))]


def poison_at_whim(attack: CBA, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
    """Poison other samples each time."""
    return Split(split.inputs + next(CALLS), split.labels)


def probe_at_whim(attack: CBA, setup: AttackSetup) -> Split:
    """Probe with other samples each time."""
    return Split(setup.dataset.test.inputs + next(CALLS), setup.dataset.test.labels)


def train_at_whim(attack: CBA, session: LocalSession) -> Tensor:
    """Train another model each time."""
    return session.start + next(CALLS)


def train_to_infinity(attack: CBA, session: LocalSession) -> Tensor:
    """Train a model that is not finite."""
    return session.start / 0


def train_by_type(attack: CBA, session: LocalSession) -> Tensor:
    """Train in another way with a memory that was saved."""
    return session.start + (1 if isinstance(session.memory, Remembered) else 2)


def make_with_setting(name: str, kind: Any, default: Any) -> Any:
    """Make an attack with one more setting."""
    return make_dataclass("Broken", [(name, kind, default)], bases=(CBA,), frozen=True)()


def shift_labels(split: Split, by: int) -> Split:
    return Split(split.inputs, (split.labels + by) % 10)


def select_targets(setup: AttackSetup) -> Split:
    """Select the test samples of the target class."""
    test = setup.dataset.test
    return test[test.labels == 1]


class Loose:
    """Not a dataclass."""

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
    "check_knowledge": [
        (make_broken(knowledge="everything"), "knowledge 'everything' is not one of own, colluders, all")
    ],
    "check_settings_are_writable": [
        (Loose(), "an attack must be a dataclass"),
        (make_with_setting("draw", str, "all"), "'draw' is a setting of every attack"),
        (make_with_setting("weights", Tensor, None), "cannot be written as JSON"),
        (make_with_setting("key", Any, object()), "cannot be written as JSON"),
        (make_with_setting("repeats", int, 0.5), "cannot be written as JSON and read again"),
        (make_with_setting("layers", Any, ("a",)), r"layers=\('a',\)\) becomes .*layers=\['a'\]"),
    ],
    "check_poison_keeps_the_format": [
        (make_poisoning(lambda split: split[torch.arange(9)]), r"\(40, 1, 28, 28\) became \(9, 1, 28, 28\)"),
        (make_poisoning(lambda split: Split(split.inputs.float(), split.labels)), "uint8 became torch.float32"),
        (make_poisoning(lambda split: Split(split.inputs, split.labels.int())), "int64 became torch.int32"),
        (make_poisoning(lambda split: Split(split.inputs, split.labels + 1)), "a label is not a class"),
        (make_poisoning(lambda split: Split(split.inputs, split.labels - 1)), "a label is not a class"),
        (make_poisoning(lambda split: Split(split.inputs.fill_(7), split.labels)), "the samples were changed"),
        (make_poisoning(lambda split: Split(split.inputs, split.labels.fill_(7))), "the samples were changed"),
        (
            make_broken(
                poison=lambda attack, split, setup, *_: return_first(split, setup.dataset.test.labels.fill_(7))
            ),
            "the samples were changed",
        ),
    ],
    "check_poison_uses_its_stream": [
        (
            make_poisoning(lambda split: Split(split.inputs + next(CALLS), split.labels)),
            "the same stream gave other samples",
        ),
        (make_poisoning(lambda split: shift_labels(split, next(CALLS))), "the same stream gave other labels"),
        (make_poisoning(lambda split: shift_labels(split, torch.initial_seed())), "the same stream gave other labels"),
        (make_poisoning(lambda split: return_first(split, torch.randperm(3))), "a global random generator was used"),
        (
            make_poisoning(lambda split: return_first(split, np.random.permutation(3))),
            "a global random generator was used",
        ),
        (make_poisoning(lambda split: return_first(split, random.random())), "a global random generator was used"),
        (make_poisoning(lambda split: return_first(split, torch.manual_seed(0))), "a global random generator was used"),
    ],
    "check_tiny_clients": [
        (
            make_poisoning(lambda split: split if len(split) else make_toy_images().train),
            "0 samples became another number",
        ),
        (make_poisoning(lambda split: split[torch.arange(len(split)) > 0]), "1 samples became another number"),
    ],
    "check_probe": [
        (make_probing(lambda probe, setup: None), "an attack with a target must have a probe"),
        (make_probing(lambda probe, setup: probe[probe.labels > 10]), "the probe has no samples"),
        (make_probing(lambda probe, setup: Split(probe.inputs / 255, probe.labels)), "uint8 became torch.float32"),
        (make_probing(lambda probe, setup: Split(probe.inputs, probe.labels + 10)), "a label is not a class"),
        (make_probing(lambda probe, setup: shift_labels(probe, 1)), "a label is not the target"),
        (make_probing(lambda probe, setup: select_targets(setup)), "a probe sample has its own label"),
        (
            make_probing(
                lambda probe, setup: replace(
                    select_targets(setup), inputs=setup.trigger.stamp(select_targets(setup).inputs)
                )
            ),
            "a probe sample has its own label",
        ),
        (make_broken(LabelFlip, probe=lambda attack, setup: setup.dataset.test), "a probe sample has its own label"),
        (
            make_probing(lambda probe, setup: Split(probe.inputs.roll(next(CALLS), 0), probe.labels)),
            "the probe is not the same each time",
        ),
        (
            make_broken(LabelFlip, probe=lambda attack, setup: shift_labels(setup.dataset.test, 1 + next(CALLS) % 2)),
            "the probe's labels are not the same each time",
        ),
        (make_probing(lambda probe, setup: return_first(probe, torch.rand(1))), "a global random generator was used"),
        (
            make_probing(lambda probe, setup: return_first(probe, setup.dataset.train.labels.fill_(7))),
            "the samples were changed",
        ),
    ],
    "check_training_returns_a_model": [
        (make_training(lambda session: session.train()[1:]), r"a model of \(40,\) became \(39,\)"),
        (make_training(lambda session: session.train() / 0), "the model is not finite"),
        (make_training(lambda session: session.train() + next(CALLS)), "training gave a different model"),
        (make_training(lambda session: session.train() + torch.rand(40)), "a global random generator was used"),
        (make_training(lambda session: session.start.mul_(0)), "the global model was changed"),
    ],
    "check_training_uses_named_streams": [
        (make_training(lambda session: session.train() + next(CALLS)), "the same client trained a different model"),
        (
            make_training(lambda session: session.train() + torch.initial_seed()),
            "the same client trained a different model",
        ),
        (
            make_training(lambda session: return_first(session.train(), torch.rand(1))),
            "a global random generator was used",
        ),
        (
            make_training(lambda session: return_first(session.train(), np.random.random())),
            "a global random generator was used",
        ),
    ],
    "check_crafting_returns_updates": [
        (make_crafting(lambda view: view.rows[0]), r"\(1, 40\) became \(40,\)"),
        (make_crafting(lambda view: view.rows.double()), "float32 became torch.float64"),
        (make_crafting(lambda view: view.rows / view.rows.norm()), "an update is not finite"),
        (make_crafting(lambda view: view.rows / (view.cohort_size - view.attacker_count)), "an update is not finite"),
        (make_crafting(lambda view: view.rows + view.rows.var(0), knowledge="colluders"), "an update is not finite"),
        (make_crafting(lambda view: view.rows + next(CALLS)), "the same stream gave other updates"),
        (make_crafting(lambda view: view.rows + torch.rand(40)), "a global random generator was used"),
        (make_crafting(lambda view: view.rows.fill_(0)), "the view was changed"),
        (make_crafting(lambda view: return_first(view.rows, view.examples.fill_(7))), "the view was changed"),
        (make_crafting(lambda view: return_first(view.rows, view.base.fill_(7))), "the view was changed"),
        (
            make_crafting(lambda view: return_first(view.rows, view.others.fill_(7)), knowledge="all"),
            "the view was changed",
        ),
    ],
    "check_copies_poison_alike": [
        (Greedier(), "a copy gives other samples"),
        (Elsewhere(), "a copy gives other labels"),
    ],
    "check_memory_is_shared": [
        (make_adapting(lambda view: {}, knowledge="own"), "attackers share a memory, but their knowledge is 'own'"),
        (make_broken(remember=lambda attack, view, sent: {}, knowledge="all"), "remembers .*, but has no craft"),
    ],
    "check_adapting": [
        (make_adapting(lambda view: [1]), "a memory must be a dict, got list"),
        (make_adapting(lambda view: {"model": view.model}), "the memory cannot be saved: .* not StandardisingModel"),
        (make_adapting(lambda view: {"calls": next(CALLS)}), "the same round gave another memory"),
        (make_adapting(lambda view: {"draw": np.random.random()}), "a global random generator was used"),
        (
            make_adapting(lambda view: {"one": view.pool_samples().labels[0]} if len(view.pool_samples()) else []),
            "a memory must be a dict, got list",
        ),
    ],
    "check_memory_in_use": [
        (make_adapting(lambda view: {"few": 9}, poison=poison_few), "changes the format of the poisoned samples"),
        (make_adapting(lambda view: {"few": 9}, probe=probe_few), "changes the format of the probe"),
        (make_adapting(lambda view: {}, poison=poison_at_whim), "the same memory gives other samples"),
        (make_adapting(lambda view: {}, probe=probe_at_whim), "the same memory gives another probe"),
    ],
    "check_rounds_with_memory": [
        (make_remembering(lambda view: {"calls": next(CALLS)}), "the same updates gave another memory"),
        (make_remembering(lambda view: {"rows": object()}), "the memory cannot be saved"),
        (make_remembering(lambda view: {}, train=train_at_whim), "the same memory gave other updates"),
        (make_remembering(lambda view: {}, train=train_to_infinity), "an update is not finite"),
        (make_remembering(lambda view: Remembered(seen=1), train=train_by_type), "the same memory gave other updates"),
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
        check_attack(make_broken(knowledge="everything"))


def test_samples_from_elsewhere_may_show_success() -> None:
    new = torch.full((3, 1, 28, 28), 7, dtype=torch.uint8)
    ATTACK_CHECKS["check_probe"](make_probing(lambda probe, setup: Split(new, torch.ones(3, dtype=torch.int64))))


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


@pytest.mark.parametrize("trigger", ["noise", "word", "features"])
def test_the_toy_data_can_carry_the_trigger(trigger: str) -> None:
    check_attack(CBA(trigger=trigger))


def test_a_trigger_that_is_not_known_is_said() -> None:
    with pytest.raises(SettingError, match=r"attack\.trigger = 'squar' is not known"):
        check_attack(CBA(trigger="squar"))


def test_the_names_that_are_taken_are_those_of_the_simulator() -> None:
    assert set(AttackSettings.model_fields) == RESERVED_SETTINGS

"""The checks that every attack passes."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, get_args

import torch
from pydantic import PydanticUserError, TypeAdapter
from torch import Tensor

from snowball.attacks import Attack, AttackerView, AttackSetup, CraftingAttack, Knowledge, TrainingAttack, set_up_attack
from snowball.data import Split
from snowball.layout import select_parameters
from snowball.rng import stream
from snowball.sim.training.client import LocalTraining
from snowball.testing.federations import make_toy_federation
from snowball.testing.memories import (
    check_adapting,
    check_memory_in_use,
    check_memory_is_shared,
    check_rounds_with_memory,
)
from snowball.testing.seeds import run_under_two_seeds
from snowball.testing.toys import make_toy_data, make_toy_session, make_toy_view

RESERVED_SETTINGS = frozenset(
    {"name", "malicious", "draw", "first_round", "last_round", "in_rounds", "share_of_rounds"}
)
"""The settings that the simulator gives to every attack. An attack's own fields need other names."""


def check_attack(attack: Attack) -> None:
    """Run every check of `ATTACK_CHECKS` on an attack."""
    for check in ATTACK_CHECKS.values():
        check(attack)


def check_knowledge(attack: Attack) -> None:
    """Check that the class states its knowledge in a word that the simulator knows."""
    knowledge = getattr(type(attack), "knowledge", None)
    assert knowledge in get_args(Knowledge), f"knowledge {knowledge!r} is not one of {', '.join(get_args(Knowledge))}"


def check_settings_are_writable(attack: Attack) -> None:
    """Check that the fields can be settings: their names are free, and JSON keeps their values."""
    assert is_dataclass(attack), "an attack must be a dataclass: its fields are its settings"
    reserved = sorted(RESERVED_SETTINGS & {field.name for field in fields(attack)})
    assert not reserved, f"{reserved[0]!r} is a setting of every attack: the field needs another name"
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type(attack))
        copy = adapter.validate_json(adapter.dump_json(attack, warnings=False), strict=True)
    except (PydanticUserError, ValueError) as error:
        raise AssertionError(f"the settings cannot be written as JSON and read again: {error}") from error
    assert asdict(copy) == asdict(attack), f"written as JSON and read again, {attack} becomes {copy}"


def poison_samples(attack: Attack, setup: AttackSetup, seed: int = 0) -> Split:
    """Poison forty samples."""
    return attack.poison(setup.dataset.train[torch.arange(40)], setup, 3, stream(seed, "poison"))


def check_poison_keeps_the_format(attack: Attack) -> None:
    """Check that poisoning keeps the number, shape and type of the samples, and leaves its input unchanged."""
    setup = set_up_attack(attack, make_toy_data(attack))
    split = setup.dataset.train[torch.arange(40)]
    before = _dump_tensors(split.inputs, split.labels), _dump_samples(setup)
    result = attack.poison(split, setup, 3, stream(0))
    _assert_same_format(result, split, setup)
    assert (_dump_tensors(split.inputs, split.labels), _dump_samples(setup)) == before, "the samples were changed"


def check_poison_uses_its_stream(attack: Attack) -> None:
    """Check that the same stream gives the same poisoned samples, whatever ran before and whatever the global seed."""
    setup = set_up_attack(attack, make_toy_data(attack))
    once, again = run_under_two_seeds(lambda: poison_samples(attack, setup))
    assert torch.equal(once.inputs, again.inputs), "the same stream gave other samples"
    assert torch.equal(once.labels, again.labels), "the same stream gave other labels"


def check_tiny_clients(attack: Attack) -> None:
    """Check that clients with no sample or one sample can be poisoned."""
    setup = set_up_attack(attack, make_toy_data(attack))
    for count in (0, 1):
        split = setup.dataset.train[torch.arange(count)]
        assert len(attack.poison(split, setup, 0, stream(0))) == count, f"{count} samples became another number"


def check_probe(attack: Attack) -> None:
    """Check that the probe holds test samples with the wanted label, which is not their own.

    Only an attack without a target may have no probe.
    """
    setup = set_up_attack(attack, make_toy_data(attack))
    before = _dump_samples(setup)
    probe, again = run_under_two_seeds(lambda: attack.probe(setup))
    if probe is None or again is None:
        assert attack.target is None, "an attack with a target must have a probe"
        return
    assert len(probe) > 0, "the probe has no samples"
    _assert_same_format(probe, setup.dataset.test[torch.zeros(len(probe), dtype=torch.int64)], setup)
    assert attack.target is None or (probe.labels == attack.target).all(), "a label is not the target"
    assert not _has_own_labels(probe, setup), "a probe sample has its own label: good models would count as backdoored"
    assert torch.equal(probe.inputs, again.inputs), "the probe is not the same each time"
    assert torch.equal(probe.labels, again.labels), "the probe's labels are not the same each time"
    assert _dump_samples(setup) == before, "the samples were changed"


def _dump_tensors(*tensors: Tensor | None) -> list[bytes]:
    return [b"" if tensor is None else tensor.numpy().tobytes() for tensor in tensors]


def _dump_samples(setup: AttackSetup) -> list[bytes]:
    train, test = setup.dataset.train, setup.dataset.test
    return _dump_tensors(train.inputs, train.labels, test.inputs, test.labels)


def _assert_same_format(result: Split, split: Split, setup: AttackSetup) -> None:
    for was, now in ((split.inputs, result.inputs), (split.labels, result.labels)):
        assert now.shape == was.shape, f"{tuple(was.shape)} became {tuple(now.shape)}"
        assert now.dtype == was.dtype, f"{was.dtype} became {now.dtype}"
    assert ((result.labels >= 0) & (result.labels < setup.dataset.classes)).all(), "a label is not a class"


def _has_own_labels(probe: Split, setup: AttackSetup) -> bool:
    """Return whether the probe holds a test sample, plain or stamped, with its own label.

    Equal test samples count only if they all have this label.
    """
    test = setup.dataset.test
    known: dict[bytes, set[int]] = {}
    for inputs in (test.inputs, *([setup.optional_trigger.stamp(test.inputs)] if setup.optional_trigger else [])):
        for sample, label in zip(inputs, test.labels.tolist(), strict=True):
            known.setdefault(sample.numpy().tobytes(), set()).add(label)
    found = zip(probe.inputs, probe.labels.tolist(), strict=True)
    return any(known.get(sample.numpy().tobytes()) == {label} for sample, label in found)


def check_training_returns_a_model(attack: Attack) -> None:
    """Check that training gives a finite model, the same each time, and leaves the global model unchanged."""
    if not isinstance(attack, TrainingAttack):
        return
    session = make_toy_session(attack)
    start = session.start.clone()
    once, again = run_under_two_seeds(lambda: attack.train(session))
    assert once.shape == start.shape, f"a model of {tuple(start.shape)} became {tuple(once.shape)}"
    assert once.isfinite().all(), "the model is not finite"
    assert torch.equal(once, again), "training gave a different model"
    assert torch.equal(session.start, start), "the global model was changed"


def check_training_uses_named_streams(attack: Attack) -> None:
    """Check that a client's model is identical each time, with dropout and whichever client trained before it."""
    federation = make_toy_federation(attack)
    training, model = LocalTraining(federation), federation.build_model()
    base = federation.layout.flatten(select_parameters(model))
    once, again = run_under_two_seeds(lambda: [training(base, client, 1, None, {}).row for client in (0, 1, 0)])
    for row, same in ((again[0], once[0]), (again[1], once[1]), (once[2], once[0])):
        assert torch.equal(row, same), "the same client trained a different model"


def check_crafting_returns_updates(attack: Attack) -> None:
    """Check that crafting keeps the number of updates, is finite and reproducible, and leaves the view unchanged."""
    if not isinstance(attack, CraftingAttack):
        return
    for attackers in (1, 4):
        view = make_toy_view(attack, attackers)
        for tried in (view, replace(view, rows=torch.zeros_like(view.rows)), _drop_honest_clients(view)):
            _check_crafted(attack, tried)


def _check_crafted(attack: CraftingAttack, view: AttackerView) -> None:
    before = _dump_tensors(view.rows, view.examples, view.others, view.base)
    once, again = run_under_two_seeds(lambda: attack.craft(view, stream(1)))
    assert once.shape == view.rows.shape, f"{tuple(view.rows.shape)} became {tuple(once.shape)}"
    assert once.dtype == view.rows.dtype, f"{view.rows.dtype} became {once.dtype}"
    assert once.isfinite().all(), "an update is not finite"
    assert torch.equal(once, again), "the same stream gave other updates"
    assert _dump_tensors(view.rows, view.examples, view.others, view.base) == before, "the view was changed"


def _drop_honest_clients(view: AttackerView) -> AttackerView:
    """Return the view of a round without honest clients."""
    nobody = None if view.others is None else view.others[:0]
    return replace(view, others=nobody, cohort_size=view.attacker_count, total_examples=float(view.examples.sum()))


def check_copies_poison_alike(attack: Attack) -> None:
    """Check that a pickled copy, as another process gets it, poisons in the same way."""
    copy: Any = pickle.loads(pickle.dumps(attack))
    setup = set_up_attack(attack, make_toy_data(attack))
    here, there = poison_samples(attack, setup), poison_samples(copy, setup)
    assert torch.equal(here.inputs, there.inputs), "a copy gives other samples"
    assert torch.equal(here.labels, there.labels), "a copy gives other labels"


ATTACK_CHECKS: Mapping[str, Callable[[Attack], None]] = {
    check.__name__: check
    for check in (
        check_knowledge,
        check_settings_are_writable,
        check_poison_keeps_the_format,
        check_poison_uses_its_stream,
        check_tiny_clients,
        check_probe,
        check_training_returns_a_model,
        check_training_uses_named_streams,
        check_crafting_returns_updates,
        check_copies_poison_alike,
        check_memory_is_shared,
        check_adapting,
        check_memory_in_use,
        check_rounds_with_memory,
    )
}

"""The checks of attacks that keep a memory; others pass them at once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from snowball.attacks import (
    AdaptingAttack,
    Attack,
    AttackSetup,
    CraftingAttack,
    Memory,
    RememberingAttack,
    keeps_memory,
    recall_setup,
    set_up_attack,
)
from snowball.data import Split
from snowball.layout import select_parameters
from snowball.records.checkpoint import RunState
from snowball.rng import stream
from snowball.serialization import pack, unpack
from snowball.sim.training.adaptation import Adaptation
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.malicious import craft_updates
from snowball.testing.federations import CLIENT_COUNT, make_toy_federation
from snowball.testing.seeds import run_under_two_seeds
from snowball.testing.toys import make_toy_data


def make_toy_memory(attack: Attack, rounds: int = 2, parts: Sequence[Tensor] | None = None) -> Memory | None:
    """Let an attack adapt for some rounds of a toy federation in which everybody attacks; None if it does not adapt."""
    federation = make_toy_federation(attack)
    federation = federation if parts is None else replace(federation, parts=tuple(parts))
    base = federation.layout.flatten(select_parameters(federation.build_model()))
    adapt, state = Adaptation(federation), RunState(0, base)
    for round in range(1, rounds + 1):
        state.attack = adapt(state, range(CLIENT_COUNT), round)
    memory: Memory | None = state.attack
    return memory


def check_memory_is_shared(attack: Attack) -> None:
    """Check that attackers who share a memory say that they are colluders."""
    if keeps_memory(attack):
        assert attack.knowledge != "own", "attackers share a memory, but their knowledge is 'own'"
    if isinstance(attack, RememberingAttack):
        assert isinstance(attack, CraftingAttack), "an attack remembers what it crafted, but has no craft"


def check_adapting(attack: Attack) -> None:
    """Check that adapting gives the same memory each time, that it can be saved, and that tiny clients can adapt."""
    if not isinstance(attack, AdaptingAttack):
        return
    once, again = run_under_two_seeds(lambda: make_toy_memory(attack))
    _assert_can_be_saved(once)
    assert pack(once) == pack(again), "the same round gave another memory"
    for count in (0, 1):
        parts = [torch.arange(count) + count * client for client in range(CLIENT_COUNT)]
        _assert_can_be_saved(make_toy_memory(attack, 1, parts))


def check_memory_in_use(attack: Attack) -> None:
    """Check that a memory, also one that was saved, gives samples of the same format and a probe of the same size."""
    memory = make_toy_memory(attack) if keeps_memory(attack) else None
    if memory is None:
        return
    setup = set_up_attack(attack, make_toy_data(attack))
    split, fresh = setup.dataset.train[torch.arange(40)], attack.probe(recall_setup(attack, setup, None))
    results = [_use_memory(attack, setup, split, each) for each in (memory, memory, unpack_packed(memory))]
    for poisoned, probe in results:
        for name, was, now in (("probe", fresh, probe), ("poisoned samples", split, poisoned)):
            assert _describe_format(was) == _describe_format(now), f"a memory changes the format of the {name}"
        assert _dump(poisoned) == _dump(results[0][0]), "the same memory gives other samples"
        assert _dump(probe) == _dump(results[0][1]), "the same memory gives another probe"


def check_rounds_with_memory(attack: Attack) -> None:
    """Check that training, crafting and remembering with a memory can be repeated, also with one that was saved."""
    if not keeps_memory(attack):
        return
    once, again = run_under_two_seeds(lambda: _run_toy_rounds(attack))
    assert once[0].isfinite().all(), "an update is not finite"
    saved = _run_toy_rounds(attack, unpack_packed)
    for rows, memory in (again, saved):
        assert torch.equal(rows, once[0]), "the same memory gave other updates"
        assert pack(memory) == pack(once[1]), "the same updates gave another memory"


def _run_toy_rounds(attack: Attack, save: Callable[[Any], Any] = lambda memory: memory) -> tuple[Tensor, Memory | None]:
    """Run two rounds of attackers only, saving the memory in between; return the last updates and the memory."""
    federation = make_toy_federation(attack)
    adapt, training, cohort = Adaptation(federation), LocalTraining(federation), range(CLIENT_COUNT)
    state = RunState(0, federation.layout.flatten(select_parameters(federation.build_model())))
    rows = torch.empty(CLIENT_COUNT, federation.layout.width)
    for round in (1, 2):
        state.attack = adapt(state, cohort, round)
        for client in cohort:
            rows[client] = training(state.base, client, round, None, {}, state.attack).row
        state.attack = craft_updates(federation, rows, cohort, state.base, round, state.attack)
        if state.attack is not None:
            _assert_can_be_saved(state.attack)
        state.attack, state.base = save(state.attack), state.base + rows.mean(0)
    return rows, state.attack


def unpack_packed(memory: Any) -> Any:
    """Return a memory as a checkpoint restores it."""
    return unpack(pack(memory))


def _assert_can_be_saved(memory: Any) -> None:
    assert isinstance(memory, dict), f"a memory must be a dict, got {type(memory).__name__}"
    try:
        packed = pack(memory)
    except TypeError as error:
        raise AssertionError(f"the memory cannot be saved: {error}") from error
    assert pack(unpack(packed)) == packed, "the memory is another one after saving"


def _use_memory(attack: Attack, setup: AttackSetup, split: Split, memory: Memory) -> tuple[Split, Split | None]:
    recalled = recall_setup(attack, setup, memory)
    return attack.poison(split, recalled, 3, stream(0)), attack.probe(recalled)


def _describe_format(split: Split | None) -> list[Any]:
    return [] if split is None else [(each.shape, each.dtype) for each in (split.inputs, split.labels)]


def _dump(split: Split | None) -> list[bytes]:
    return [] if split is None else [each.numpy().tobytes() for each in (split.inputs, split.labels)]

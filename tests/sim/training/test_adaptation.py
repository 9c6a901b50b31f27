"""Attackers keep a memory from round to round, and everything that they do sees it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from snowball.attacks import CBA, AdaptationView, AttackerView, AttackSetup, Knowledge, Memory
from snowball.data.triggers import PixelPatch, Trigger
from snowball.errors import RunError
from snowball.records.checkpoint import RunState, load_state, save_state
from snowball.sim.engines.base import pack_message, unpack_message
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.run import check_memory
from snowball.sim.training.adaptation import Adaptation
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.evaluation import build_test_splits
from snowball.sim.training.malicious import SimulatedSession

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")


@dataclass(frozen=True)
class Walking(CBA):
    """Moves its trigger by one column per attacked round, and remembers what it sent."""

    knowledge: ClassVar[Knowledge] = "colluders"

    def adapt(self, view: AdaptationView, rng: torch.Generator) -> Memory:
        before = view.setup.memory or {"column": 0, "seen": []}
        seen = [*before["seen"], (view.round, view.clients, len(view.pool_samples()))]
        return {**before, "column": before["column"] + 1, "seen": seen, "draw": torch.rand((), generator=rng)}

    def make_trigger(self, setup: AttackSetup) -> Trigger:
        return PixelPatch(((0, setup.memory.get("column", 0) if setup.memory else 0),))

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        return 2 * view.rows

    def remember(self, view: AttackerView, sent: Tensor) -> Memory:
        assert view.memory is not None
        return {**view.memory, "ratio": float(sent.norm() / view.rows.norm())}

    def check_memory(self, memory: Memory, setup: AttackSetup, layout: Any) -> None:
        if "column" not in memory:
            raise RunError("the trigger has no column")


def replace_attack(experiment: Experiment, attack: Any) -> Federation:
    """Build the federation of an experiment with another attack."""
    return replace(Federation.build(experiment), attack=attack)


def run(federation: Federation, state: RunState, engine: Any = SerialEngine) -> list[dict[str, Any]]:
    records = simulate(federation, engine, state)
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.fixture
def walking(tiny: MakeExperiment) -> Federation:
    return replace_attack(
        tiny("rounds=3", "defense.name=fedavg", "data.examples=120", "attack.malicious=0.4", "attack.first_round=2"),
        Walking(),
    )


def test_the_memory_is_renewed_in_attacked_rounds_only(walking: Federation) -> None:
    state = build_first_state(walking)
    rounds = simulate(walking, state=state)
    assert "attack" in next(rounds)["seconds"]  # the time of an attack that adapts
    assert state.attack is None
    record = next(rounds)
    assert state.attack["column"] == 1
    assert state.attack["ratio"] == pytest.approx(2)
    ((round, clients, samples),) = state.attack["seen"]
    assert round == 2
    participants = zip(record["participants"], record["malicious"], strict=True)
    assert [str(client) for client in clients] == [client for client, bad in participants if bad]
    assert samples == sum(len(walking.parts[client]) for client in clients)
    next(rounds)
    assert state.attack["column"] == 2
    assert [seen[0] for seen in state.attack["seen"]] == [2, 3]


def test_records_of_other_attacks_have_no_time_of_the_attack(tiny: MakeExperiment) -> None:
    state = build_first_state(federation := Federation.build(tiny("rounds=1", "data.examples=120")))
    assert "attack" not in next(simulate(federation, state=state))["seconds"]
    assert state.attack is None


def test_samples_probes_and_sessions_carry_the_trigger_of_the_memory(walking: Federation) -> None:
    memory, base = {"column": 7}, build_first_state(walking).base
    client = next(client for client in range(walking.experiment.data.clients) if walking.is_attacking(client, 2))
    clean, plain = walking.select_samples(client), walking.select_training_samples(client, 1, memory)
    assert torch.equal(clean.inputs, plain.inputs)
    for samples in (walking.select_training_samples(client, 2, memory), walking.poison_samples(client, memory)):
        changed = (samples.inputs != clean.inputs).flatten(1).any(0).nonzero().flatten()
        assert changed.tolist() == [7]
    probe = build_test_splits(walking, memory)["backdoor_accuracy"]
    assert (probe.inputs[:, 0, 0, 7] == 255).all()
    assert len(probe) == len(build_test_splits(walking)["backdoor_accuracy"])
    trainer = LocalTraining(walking).trainer
    sessions = [
        SimulatedSession(
            federation=walking, trainer=trainer, base=base, buffers={}, client=client, round=2, memory=each
        )
        for each in (None, memory)
    ]
    assert sessions[1].memory == memory
    assert not torch.equal(sessions[0].train(), sessions[1].train())
    assert torch.equal(sessions[0].train(clean=True), sessions[1].train(clean=True))


def test_the_attackers_get_the_global_model_and_their_clean_samples(walking: Federation) -> None:
    state = build_first_state(walking)
    assert walking.attack_setup is not None
    view = Adaptation(walking).build_view(walking.attack_setup, state.base, state.buffers, [0, 1], 2)
    inputs = walking.dataset.test.inputs[:5]
    model = walking.build_model().eval()
    expected = model(walking.dataset.normalise(inputs))
    torch.testing.assert_close(view.model(walking.dataset.scale(inputs)), expected)
    assert not view.model.training
    pooled = view.pool_samples()
    assert torch.equal(pooled.labels, torch.cat([walking.select_samples(client).labels for client in (0, 1)]))
    view.base.zero_()
    assert state.base.norm() > 0  # a copy


def test_a_run_that_was_stopped_continues_with_the_memory(walking: Federation, tmp_path: Path) -> None:
    whole = run(walking, build_first_state(walking))
    state = build_first_state(walking)
    rounds = simulate(walking, state=state)
    for _ in range(2):
        next(rounds)
        save_state(state, tmp_path / "checkpoint")
    rounds.close()
    loaded = load_state(tmp_path / "checkpoint", 3, walking.layout)
    assert loaded is not None
    assert loaded.attack["column"] == 1
    check_memory(tmp_path, loaded, walking)
    assert run(walking, loaded) == whole[2:]
    forgetful = replace(loaded, round=2, attack=None)
    assert run(walking, forgetful) != whole[2:]


def test_a_memory_that_does_not_fit_is_refused(walking: Federation, tmp_path: Path) -> None:
    state = build_first_state(walking)
    state.attack = {"column": 2}
    check_memory(tmp_path, state, walking)
    with pytest.raises(RunError, match="cannot be used: the trigger has no column"):
        check_memory(tmp_path, replace(state, attack={"row": 1}), walking)
    state.attack = [1]
    save_state(state, tmp_path / "checkpoint")
    with pytest.raises(RunError, match="the attack's memory cannot be a list"):
        load_state(tmp_path / "checkpoint", 3, walking.layout)


def test_clients_trained_together_see_the_memory(walking: Federation) -> None:
    expected, seen = build_first_state(walking), build_first_state(walking)
    run(walking, expected)
    run(walking, seen, VmapEngine)
    assert seen.attack["column"] == expected.attack["column"] == 2
    torch.testing.assert_close(seen.base, expected.base, rtol=1e-3, atol=1e-5)


def test_messages_without_a_memory_are_as_they_were() -> None:
    assert pack_message(None, {}) == b""
    assert unpack_message(b"") == (None, {}, None)
    assert unpack_message(pack_message({"a": 1}, {})) == ({"a": 1}, {}, None)
    assert unpack_message(pack_message(None, {}, {"column": 3})) == (None, {}, {"column": 3})

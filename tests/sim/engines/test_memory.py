"""Engines hand the memory of an attack to the clients and to the backdoor test."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snowball.records.checkpoint import RunState, load_state, save_state
from snowball.serialization import pack
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.run import check_memory

MakeExperiment = Callable[..., Experiment]


def drop_seconds(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def run(federation: Federation, state: RunState, engine: Any = SerialEngine) -> list[dict[str, Any]]:
    return [drop_seconds(record) for record in simulate(federation, engine, state)]


@pytest.mark.parametrize("name", ["a3fl", "iba"])
def test_a_learned_trigger_is_the_same_in_worker_processes_and_after_a_stop(
    tiny: MakeExperiment, name: str, tmp_path: Path
) -> None:
    fast = {"a3fl": ["attack.steps=3", "attack.unlearn_every=2"], "iba": ["attack.epochs=1", "attack.enough=1.0"]}
    common = ("rounds=2", "defense.name=fedavg", "data.examples=200", "training.epochs=1", "attack.malicious=0.4")
    federation = Federation.build(tiny(*common, f"attack.name={name}", "attack.poison_ratio=0.5", *fast[name]))
    whole, engine = run(federation, state := build_first_state(federation)), partial(ProcessEngine, workers=2)
    with closing(simulate(federation, engine, resumed := build_first_state(federation))) as rounds:
        first = drop_seconds(next(rounds))
    save_state(resumed, tmp_path / "checkpoint")
    loaded = load_state(tmp_path / "checkpoint", 2, federation.layout)
    assert loaded is not None
    check_memory(tmp_path, loaded, federation)
    assert [first, *run(federation, loaded, engine)] == whole
    assert pack(loaded.attack) == pack(state.attack)

"""Defenses that act beyond the server: in local training, at prediction, and with a trusted update."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses import DEFENSES, REJECTED, ClientTask, Context, FedAvg, State, Verdict
from snowball.errors import SettingError
from snowball.serialization import pack, unpack
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import rehearse_round, simulate
from snowball.sim.run import run_experiment
from snowball.updates import Updates

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")


@dataclass(frozen=True)
class Lazy(FedAvg):
    """Benign clients move the first weight by the number of rounds they trained in, and learn nothing."""

    def train(self, task: ClientTask) -> State:
        lessons = (task.state or {"lessons": torch.zeros(1)})["lessons"] + 1
        with torch.no_grad():
            next(task.model.parameters()).view(-1)[0] += lessons[0]
        assert 0 <= task.inputs.min() <= task.inputs.max() <= 1
        assert (len(task.inputs), task.classes) == (len(task.labels), 10)
        assert task.model(task.inputs).shape == (len(task.labels), 10)
        return {"lessons": lessons}


@dataclass(frozen=True)
class Mute(FedAvg):
    """Rejects every sample."""

    def predict(self, inputs: Tensor, context: Context) -> Tensor:
        assert context.model is not None
        assert context.base is not None
        assert context.model(context.base, inputs[:3]).shape == (3, 10)
        return torch.full((len(inputs),), REJECTED)


@dataclass(frozen=True)
class Selfish:
    """Takes the server's own update and no other."""

    trusted_examples: int = 30

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        assert context.trusted is not None
        facts = {"trusted": float(context.trusted.norm()), "clients": float(updates.squared_norms.mean())}
        return Verdict(context.trusted, updates.examples > 0, facts)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    for defense in (Lazy, Mute, Selfish):
        monkeypatch.setitem(DEFENSES, defense.__name__.lower(), defense)


def record_updates(experiment: Experiment) -> tuple[list[dict[str, Any]], list[dict[str, Tensor]]]:
    """Return the records, and each round's rows by client."""
    rows: list[dict[str, Tensor]] = []

    def observe(updates: Updates, malicious: Any, round: int) -> None:
        rows.append(dict(zip(updates.clients, updates.values.clone(), strict=True)))

    return list(simulate(Federation.build(experiment), observe=observe)), rows


def test_benign_clients_train_as_the_defense_says_and_attackers_as_they_like(tiny: MakeExperiment) -> None:
    records, rows = record_updates(tiny("defense.name=lazy", "rounds=4"))
    lessons: dict[str, int] = {}
    for record, round_rows in zip(records, rows, strict=True):
        for client, bad in zip(record["participants"], record["malicious"], strict=True):
            moved = round_rows[client].nonzero()[:, 0].tolist()
            if bad:
                assert len(moved) > 1000
            else:
                lessons[client] = lessons.get(client, 0) + 1
                assert moved == [0]
                assert round_rows[client][0].item() == pytest.approx(lessons[client], abs=1e-5)
    assert max(lessons.values()) > 1


def test_what_clients_keep_survives_a_stop(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("defense.name=lazy", "rounds=3")
    whole = list(run_experiment(experiment, tmp_path / "whole"))
    for count in (1, 2):
        stopped = run_experiment(experiment, tmp_path / "stopped", resume=True)
        assert [next(stopped)["round"]] == [count]
        stopped.close()  # type: ignore[attr-defined]
    rest = list(run_experiment(experiment, tmp_path / "stopped", resume=True))
    assert [record["map"] for record in rest] == [record["map"] for record in whole[2:]]


def test_a_sample_without_a_label_is_wrong_and_obeys_no_trigger(tiny: MakeExperiment) -> None:
    record = record_updates(tiny("defense.name=mute", "rounds=1"))[0][0]
    assert (record["main_accuracy"], record["backdoor_accuracy"]) == (0, 0)


def test_the_server_trains_an_update_of_its_own_where_it_is_wanted(tiny: MakeExperiment) -> None:
    records, _ = record_updates(tiny("defense.name=selfish"))
    norms = [record["facts"]["trusted"] for record in records]
    assert norms[0] != norms[1]
    for record in records:
        assert 0.2 < record["facts"]["trusted"] / record["facts"]["clients"] ** 0.5 < 5
    assert record_updates(tiny("defense.name=selfish"))[0][0]["facts"] == records[0]["facts"]


def test_a_server_cannot_trust_more_samples_than_there_are(tiny: MakeExperiment) -> None:
    with pytest.raises(SettingError, match=r"defense\.trusted_examples = 100000 is more than"):
        rehearse_round(Federation.build(tiny("defense.name=selfish", "defense.trusted_examples=100000")))


def test_what_a_client_keeps_travels_as_bytes() -> None:
    kept = {"a": torch.arange(3), "b": [1, "two", None]}
    again = unpack(pack(kept))
    assert torch.equal(again["a"], kept["a"])
    assert again["b"] == kept["b"]
    assert pack(None) == b""
    assert unpack(b"") is None


def test_workers_get_and_give_what_clients_keep(tiny: MakeExperiment) -> None:
    quick = ("universal_steps", "pair_steps", "repeat_steps")
    steps = [f"defense.inversion.{name}=2" for name in quick]
    experiment = tiny("defense.name=flip", "defense.epochs=1", "defense.max_batches=11", *steps)
    once, again = (
        list(simulate(Federation.build(experiment), engine))
        for engine in (SerialEngine, partial(ProcessEngine, workers=2))
    )
    assert [record["map"] for record in once] == [record["map"] for record in again]
    assert [record["main_accuracy"] for record in once] == [record["main_accuracy"] for record in again]

"""Runs in which the training of some clients diverges: they are dropped, and the run continues."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snowball.defenses import DEFENSES, ClientTask, FedAvg
from snowball.defenses import State as LessonState
from snowball.errors import UpdateError
from snowball.guard import Guard, Reply
from snowball.models import MODELS, ModelInfo
from snowball.records.checkpoint import RunState
from snowball.records.run import RunFolder
from snowball.report import build_rows, find_runs, write_html, write_prose
from snowball.server import Dropped
from snowball.sim.engines.base import Engine, train_cohort
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, restore_client_states, simulate
from snowball.sim.run import is_finished, run_experiment
from snowball.sim.training.client import LocalTraining
from snowball.sim.training.client import Reply as ClientReply
from snowball.updates import Updates

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")
Record = dict[str, Any]


class Diverging(SerialEngine):
    """Trains like `SerialEngine`, except that the rows of some slots are not finite."""

    def __init__(self, federation: Federation, slots: Mapping[int, Sequence[int]]) -> None:
        super().__init__(federation)
        self.slots = slots

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, ClientReply]]:
        for slot, reply in super().train(state, cohort, round):
            if slot in self.slots.get(round, ()):
                reply.row[5:] = torch.nan
            yield slot, reply


def make_diverging(**slots: Sequence[int]) -> Callable[[Federation], Engine]:
    """Return an engine in which these slots of rounds diverge, such as `r2=[0, 3]`."""
    return partial(Diverging, slots={int(name[1:]): chosen for name, chosen in slots.items()})


def drop_seconds(records: Sequence[Record]) -> list[Record]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def record_updates(experiment: Experiment, engine: Any) -> tuple[list[Record], list[Updates]]:
    """Return the records of a run, and the updates that its defense judged."""
    seen: list[Updates] = []

    def observe(updates: Updates, malicious: Sequence[bool], round: int) -> None:
        assert len(malicious) == len(updates)
        seen.append(Updates(updates.values.clone(), updates.examples, updates.clients, updates.layout))

    return list(simulate(Federation.build(experiment), engine, observe=observe)), seen


def test_a_round_says_who_was_dropped_and_the_run_goes_on(tiny: MakeExperiment) -> None:
    experiment = tiny("rounds=3", "defense.name=krum")
    records, seen = record_updates(experiment, make_diverging(r2=[1, 3]))
    first, second, third = records
    assert not {"dropped", "kept"} & (first.keys() | third.keys())
    clients = second["participants"]
    assert second["dropped"] == {clients[1]: "not-finite", clients[3]: "not-finite"}
    assert "kept" not in second
    assert seen[1].clients == tuple(sorted(clients[slot] for slot in (0, 2, 4)))
    assert not second["elected"][1]
    assert not second["elected"][3]
    assert len(second["elected"]) == len(second["malicious"]) == 5
    for column in (second["map"], second["facts"]["scores"]):
        assert [slot for slot, value in enumerate(column) if value is None] == [1, 3]
    assert second["facts"]["tolerated"] == 0
    assert drop_seconds(records[:1]) == drop_seconds(
        record_updates(tiny("rounds=1", "defense.name=krum"), SerialEngine)[0]
    )


def test_who_is_dropped_counts_as_not_elected(tiny: MakeExperiment) -> None:
    (whole,), _ = record_updates(tiny("rounds=1", "defense.name=fedavg"), SerialEngine)
    (attacker,) = (slot for slot, bad in enumerate(whole["malicious"]) if bad)
    others = [slot for slot in range(5) if slot != attacker]
    (record,), _ = record_updates(tiny("rounds=1", "defense.name=fedavg"), make_diverging(r1=[attacker, others[0]]))
    assert (whole["false_positive_rate"], whole["false_negative_rate"]) == (1, 0)
    assert (record["false_positive_rate"], record["false_negative_rate"]) == (0, 1 / 4)
    assert record["distances"]["between"] is None  # of the infected there is no update
    assert record["distances"]["benign"] > 0


@pytest.mark.parametrize("engine", [partial(ProcessEngine, workers=2), VmapEngine])
def test_engines_drop_the_same_clients(tiny: MakeExperiment, engine: Any) -> None:
    experiment = tiny("rounds=1", "training.lr=1e6", "defense.name=fedavg")  # clients of one batch take one step
    (serial,), _ = record_updates(experiment, SerialEngine)
    (other,), _ = record_updates(experiment, engine)
    assert 0 < len(serial["dropped"]) < 5
    assert other["dropped"] == serial["dropped"]
    assert (
        other["elected"] == serial["elected"] == [client not in serial["dropped"] for client in serial["participants"]]
    )


@pytest.mark.parametrize("defense", ["crfl", "fldetector", "foolsgold", "fltrust", "deepsight", "intersection"])
def test_defenses_that_remember_trust_probe_or_predict_go_on(tiny: MakeExperiment, defense: str) -> None:
    small = {"crfl": ["defense.copies=2"], "deepsight": ["defense.probes=20"]}
    experiment = tiny("rounds=3", f"defense.name={defense}", "cohort=8", *small.get(defense, []))
    records, seen = record_updates(experiment, make_diverging(r1=[0], r2=[1, 2]))
    assert [len(record.get("dropped", {})) for record in records] == [1, 2, 0]
    assert [len(updates) for updates in seen] == [7, 6, 8]
    assert not any("kept" in record for record in records)


def test_too_few_for_the_defense_leave_the_model_as_it_was(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("rounds=3", "defense.name=krum", "defense.tolerate=2"))
    state, bases = build_first_state(federation), []
    with closing(simulate(federation, make_diverging(r2=[0]), state)) as running:
        records = [(record, bases.append(state.base))[0] for record in running]
    assert records[1]["kept"] == "tolerating 2 needs over 4 updates, got 4"
    assert records[1]["elected"] == [False] * 5
    assert records[1]["false_negative_rate"] == 1
    assert (records[1]["facts"], len(records[1]["dropped"])) == ({}, 1)
    assert torch.equal(bases[0], bases[1])
    assert records[0]["main_accuracy"] == records[1]["main_accuracy"]
    assert not torch.equal(bases[1], bases[2])


def test_a_run_ends_where_nobody_is_left(tiny: MakeExperiment) -> None:
    words = r"^training diverged in round 2: nobody is left to judge: .*; try a training\.lr below 0\.\d+$"
    with pytest.raises(UpdateError, match=words):
        record_updates(tiny("defense.name=fedavg"), make_diverging(r2=range(5)))


def test_a_run_ends_where_the_server_itself_diverges(tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalTraining, "train_trusted", lambda self, split, base, *_: torch.full_like(base, torch.inf))
    words = r"^training diverged in round 1: the server's own update holds NaN or infinite numbers; try"
    with pytest.raises(UpdateError, match=words):
        record_updates(tiny("defense.name=fltrust"), SerialEngine)


@pytest.mark.parametrize("attack", ["ipm", "alie", "min-max", "min-sum", "adaptive", "evasive", "model-replacement"])
def test_attackers_do_not_look_at_what_is_not_finite(tiny: MakeExperiment, attack: str) -> None:
    experiment = tiny("rounds=1", "defense.name=fedavg", f"attack.name={attack}", "attack.malicious=0.5", "cohort=6")
    (record,), _ = record_updates(experiment, SerialEngine)
    attackers = [slot for slot, bad in enumerate(record["malicious"]) if bad]
    benign = [slot for slot in range(6) if slot not in attackers]
    broken = sorted([attackers[0], benign[0]])
    (record,), (updates,) = record_updates(experiment, make_diverging(r1=broken))
    assert list(record["dropped"]) == [record["participants"][slot] for slot in broken]
    assert updates.values.isfinite().all()
    assert len(updates) == 4


def test_an_attack_that_overflows_takes_out_its_own_clients_alone(tiny: MakeExperiment) -> None:
    attack = ("attack.name=model-replacement", "attack.scale=1e300", "defense.name=fedavg")
    records, _ = record_updates(tiny(*attack), SerialEngine)
    for record in records:
        bad = [client for client, infected in zip(record["participants"], record["malicious"], strict=True) if infected]
        assert list(record["dropped"]) == bad
        assert (record["false_positive_rate"], record["false_negative_rate"]) == (0, 0)


def test_a_resumed_run_has_the_same_records(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment, engine = tiny("rounds=4", "defense.name=foolsgold"), make_diverging(r2=[0], r4=[1, 2])
    whole = list(run_experiment(experiment, tmp_path / "whole", engine))
    with closing(run_experiment(experiment, tmp_path / "parts", engine)) as running:
        parts = [next(running) for _ in range(2)]
    parts += run_experiment(experiment, tmp_path / "parts", engine, resume=True)
    assert drop_seconds(parts) == drop_seconds(whole)
    assert RunFolder.open(tmp_path / "whole").read_rounds() == whole
    assert is_finished(tmp_path / "whole", experiment)


def test_a_report_says_who_was_dropped_and_why(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("rounds=3", "defense.name=krum", "defense.tolerate=2")
    records = list(run_experiment(experiment, tmp_path / "run", make_diverging(r1=[0], r3=[2])))
    who = [next(iter(records[round]["dropped"])) for round in (0, 2)]
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert summary is not None
    assert summary.kept == [1, 3]
    assert sum(counts["not-finite"] for counts in summary.dropped.values()) == 2
    assert summary.dropped.keys() == set(who)
    words = write_prose(build_rows(find_runs([tmp_path / "run"])))
    assert "The model stayed as it was in rounds 1 and 3." in words
    assert re.search(rf"Dropped: {who[0]} \([12] × not-finite\)", words)  # noqa: RUF001
    write_html(find_runs([tmp_path / "run"]), tmp_path / "report.html")


def test_a_run_in_which_nothing_is_dropped_has_no_word_of_it(tiny: MakeExperiment, tmp_path: Path) -> None:
    list(run_experiment(tiny("rounds=1"), tmp_path / "run"))
    folder = RunFolder.open(tmp_path / "run")
    text = (tmp_path / "run" / "rounds.jsonl").read_text() + (tmp_path / "run" / "summary.json").read_text()
    assert '"dropped"' not in text
    assert '"kept"' not in text
    assert "Dropped" not in write_prose(build_rows([folder]))


@dataclass(frozen=True)
class Teaching(FedAvg):
    """Lets clients train nothing and count their rounds."""

    def train(self, task: ClientTask) -> LessonState:
        return {"lessons": (task.state or {"lessons": 0})["lessons"] + 1}


def test_dropped_clients_keep_nothing_of_a_round(tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFENSES, "teaching", Teaching)
    federation = Federation.build(tiny("rounds=2", "cohort=8", "attack.name=none", "defense.name=teaching"))
    state = build_first_state(federation)
    first, second = simulate(federation, make_diverging(r1=[0], r2=[1]), state)
    lessons = {client: kept["lessons"] for client, kept in state.clients.items()}
    assert lessons[first["participants"][0]] == lessons[second["participants"][1]] == 1
    assert sorted(lessons.values()) == [1, 1, 2, 2, 2, 2, 2, 2]


def test_what_dropped_clients_knew_before_stays() -> None:
    memory = {"1": {"new": 1}, "2": {"new": 2}, "3": {"new": 3}}
    restore_client_states(
        memory, {"1": {"old": 1}, "4": {"old": 4}}, [Dropped(each, "not-finite", "") for each in "1247"]
    )
    assert memory == {"1": {"old": 1}, "3": {"new": 3}}


class Normed(nn.Module):
    """A dense layer with batch normalisation."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, classes), nn.BatchNorm1d(classes))

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(inputs)
        return scores


def test_a_guard_makes_the_same_model_of_what_a_cohort_sends(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "normed", ModelInfo("", "", Normed))
    federation = Federation.build(tiny("rounds=1", "model.name=normed", "defense.name=fedavg"))
    state, before = build_first_state(federation), build_first_state(federation)
    (record,) = simulate(federation, make_diverging(r1=[2]), state)
    cohort = [int(client) for client in record["participants"]]
    sent = train_cohort(Diverging(federation, {1: [2]}), before, cohort, 1)
    counts = federation.count_examples(cohort).tolist()
    replies = [
        Reply(str(client), examples, {**federation.layout.split(before.base + row), **buffers})
        for client, examples, row, buffers in zip(cohort, counts, sent.rows, sent.buffers, strict=True)
    ]
    judgement = Guard(FedAvg())({**federation.layout.split(before.base), **before.buffers}, replies)
    assert [fault["client"] for fault in judgement.entry["dropped"]] == list(record["dropped"])
    for name, tensor in {**federation.layout.split(state.base), **state.buffers}.items():
        torch.testing.assert_close(judgement.tensors[name], tensor, rtol=0, atol=1e-6)

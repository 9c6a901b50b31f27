"""Faults drawn by the seed: the same records with every engine and after a resume."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from snowball.errors import RunError, SettingError, UpdateError
from snowball.records.run import RunFolder
from snowball.records.run_names import hash_settings
from snowball.rng import stream
from snowball.sim.cohort import draw_cohort
from snowball.sim.engines import pool
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment
from snowball.sim.faults import corrupt_rows, flip_bits, is_duplicated, is_killed, is_lost, is_slow
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.run import run_experiment

MakeExperiment = Callable[..., Experiment]

ALL_FAULTS = ("faults.dropped=0.1", "faults.duplicated=0.3", "faults.corrupted=0.2", "faults.killed=0.3")


def drop_seconds(records: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def run(experiment: Experiment, engine: Any = SerialEngine) -> list[dict[str, Any]]:
    return drop_seconds(simulate(Federation.build(experiment), engine))


def test_faults_strike_their_share_of_the_clients(tiny: MakeExperiment) -> None:
    experiment = tiny("faults.dropped=0.1", "faults.slow=0.05", "faults.duplicated=0.5", "faults.killed=0.4")
    turns = [(client, round) for client in range(8) for round in range(1, 501)]
    shares = {
        "slow": sum(is_slow(experiment, *turn) for turn in turns) / len(turns),
        "killed": sum(is_killed(experiment, *turn, again=False) for turn in turns) / len(turns),
        "killed again": sum(is_killed(experiment, *turn, again=True) for turn in turns) / len(turns),
        "duplicated": sum(is_duplicated(experiment, *turn) for turn in turns) / len(turns),
        "lost": sum(is_lost(experiment, *turn) for turn in turns) / len(turns),
    }
    expected = {"slow": 0.05, "killed": 0.4, "killed again": 0.16, "duplicated": 0.5, "lost": 1 - 0.9 * 0.95 * 0.84}
    assert shares == pytest.approx(expected, abs=0.03)
    assert all(is_killed(experiment, *turn, again=False) for turn in turns if is_killed(experiment, *turn, again=True))


def test_nobody_is_struck_by_default_and_everybody_by_a_share_of_one(tiny: MakeExperiment) -> None:
    for kind in ("dropped", "slow", "killed"):
        sure = tiny(f"faults.{kind}=1")
        assert all(is_lost(sure, client, round) for client in range(8) for round in range(1, 50))
    assert not any(is_lost(tiny(), client, round) for client in range(8) for round in range(1, 50))


def test_clients_without_a_reply_are_left_out_and_on_record(tiny: MakeExperiment) -> None:
    experiment = tiny("defense.name=fedavg", "faults.dropped=0.3", "faults.killed=0.5", "faults.slow=0.1")
    for record in run(experiment):
        lost = [client for client in record["participants"] if is_lost(experiment, int(client), record["round"])]
        assert record["dropped"] == dict.fromkeys(lost, "error")
        assert [client for client, row in zip(record["participants"], record["map"], strict=True) if not row] == lost
        assert record["elected"] == [client not in lost for client in record["participants"]]
    assert [record["kept"] for record in run(tiny("faults.dropped=1"))] == ["no client replied"] * 2


def test_replies_that_arrive_twice_change_nothing(tiny: MakeExperiment) -> None:
    assert run(tiny("faults.duplicated=1")) == run(tiny())


def test_corrupted_replies_are_judged_or_dropped_as_not_finite(tiny: MakeExperiment) -> None:
    experiment = tiny("rounds=4", "cohort=8", "attack.name=ipm", "defense.name=median", "faults.corrupted=0.4")
    records, healthy = run(experiment), run(tiny("rounds=4", "cohort=8", "attack.name=ipm", "defense.name=median"))
    assert {reason for record in records for reason in record.get("dropped", {}).values()} == {"not-finite"}
    untouched = torch.ones(8, 29640)
    corrupt_rows(experiment, rows := untouched.clone(), cohort := draw_cohort(experiment, 1), 1)
    struck = {str(client) for client, row in zip(cohort, rows, strict=True) if not row.equal(untouched[0])}
    dropped = set(records[0].get("dropped", {}))
    assert dropped < struck, "some corrupted replies are finite"
    moved = {
        client
        for client, here, there in zip(records[0]["participants"], records[0]["map"], healthy[0]["map"], strict=True)
        if here != there
    }
    assert struck <= moved


def test_bits_are_flipped_in_neighbouring_numbers_and_about_a_third_of_rows_is_not_finite() -> None:
    counts = Counter[bool]()
    for seed in range(400):
        flip_bits(row := torch.full((5000,), 0.01), stream(seed, "test"))
        places = (row != 0.01).nonzero()[:, 0]
        assert 0 < len(places) <= 2048
        assert places[-1] - places[0] < 2048
        counts[bool(row.isfinite().all())] += 1
    assert 90 < counts[False] < 190


def test_a_run_in_which_every_reply_is_broken_ends_with_advice(tiny: MakeExperiment) -> None:
    with pytest.raises(UpdateError, match=r"nobody is left to judge: .*try a training.lr below 0.01 or a smaller fau"):
        run(tiny("rounds=30", "cohort=1", "defense.name=fedavg", "faults.corrupted=1", "attack.name=none"))


def test_worker_processes_hang_and_are_killed_and_the_records_are_those_of_serial(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = tiny("rounds=1", "seed=3", "cohort=8", "timeout=2", *ALL_FAULTS, "faults.slow=0.1")
    monkeypatch.setattr(pool, "FIRST_FACTOR", 5)
    monkeypatch.setattr(pool, "LIMIT_FACTOR", 5)
    cohort = range(8)
    slow = [client for client in cohort if is_slow(experiment, client, 1)]
    killed = [[client for client in cohort if is_killed(experiment, client, 1, again)] for again in (False, True)]
    assert (len(slow), list(map(len, killed))) == (1, [2, 1])
    assert not set(slow) & set(killed[0])
    assert run(experiment, partial(ProcessEngine, workers=2)) == run(experiment)
    ends = Counter(line.partition("ing client ")[2] for line in caplog.messages)
    again, never = "tried again in a fresh worker", "given up"
    expected = [f"{client}: {end}" for client in [*slow, *killed[1]] for end in (again, never)]
    assert ends == Counter([*expected, *(f"{client}: {again}" for client in set(killed[0]) - set(killed[1]))])


def test_a_run_with_faults_is_resumed_to_the_same_records(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("rounds=3", "defense.name=snowball-plus", *ALL_FAULTS)
    list(run_experiment(experiment, tmp_path / "whole"))
    running = run_experiment(experiment, tmp_path / "stopped")
    next(running)
    running.close()
    list(run_experiment(experiment, tmp_path / "stopped", resume=True))
    records = [drop_seconds(RunFolder.open(tmp_path / name).read_rounds()) for name in ("whole", "stopped")]
    assert records[0] == records[1]
    with pytest.raises(RunError, match=r"was started with faults\.dropped = 0\.1, not 0.0: resume it with the same"):
        list(
            run_experiment(
                tiny("rounds=3", "defense.name=snowball-plus", *ALL_FAULTS[1:]), tmp_path / "whole", resume=True
            )
        )


def test_runs_without_faults_keep_their_names_and_can_be_resumed(tiny: MakeExperiment, tmp_path: Path) -> None:
    settings = tiny().dump_settings()
    former = {name: value for name, value in settings.items() if name != "faults"}
    assert hash_settings(settings) == hash_settings(former) != hash_settings(tiny("faults.slow=0.1").dump_settings())
    folder = RunFolder.create(tmp_path, {"settings": former})
    with pytest.raises(RunError, match=r"was started with faults\.slow = 0, not 0\.1: "):
        list(run_experiment(tiny("faults.slow=0.1"), folder.path, resume=True))
    assert len(list(run_experiment(tiny(), folder.path, resume=True))) == 2


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("faults.dropped=1.5", "faults.dropped = 1.5 should be less than or equal to 1"),
        ("faults.droped=0.5", "faults.droped is not a setting of faults; did you mean 'dropped'?"),
        ("faults=0.5", "faults is a section: did you mean faults.dropped=0.5?"),
    ],
)
def test_impossible_faults_are_refused(tiny: MakeExperiment, assignment: str, sentence: str) -> None:
    with pytest.raises(SettingError) as refused:
        tiny(assignment)
    assert str(refused.value) == sentence

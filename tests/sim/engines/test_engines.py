import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from snowball.errors import RunError
from snowball.sim.cohort import draw
from snowball.sim.engines.processes import SHARE, Processes, reserve
from snowball.sim.engines.serial import Serial, one_thread
from snowball.sim.engines.worker import shared_rows
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import first_state
from snowball.sim.training.evaluation import FederatedModel, measures

MakeExperiment = Callable[..., Experiment]


@pytest.mark.parametrize("model", ["cnn-quarter", "cifar-cnn-quarter"])  # the second has dropout
def test_processes_train_as_serial_does_whatever_their_number(tiny: MakeExperiment, model: str) -> None:
    federation = Federation.of(tiny(f"model.name={model}"))
    state, cohorts = first_state(federation), [draw(federation.experiment, round) for round in (1, 2)]
    with Serial(federation) as serial:
        expected = [serial.train(state, cohort, round).rows.clone() for round, cohort in enumerate(cohorts, 1)]
    for workers in (1, 2):
        with Processes(federation, workers) as processes:
            trained = [processes.train(state, cohort, round).rows.clone() for round, cohort in enumerate(cohorts, 1)]
        assert all(map(torch.equal, trained, expected))


def test_a_row_follows_its_client_and_round_and_not_its_place(tiny: MakeExperiment) -> None:
    federation = Federation.of(tiny("training.decay=1.0"))
    state = first_state(federation)
    with Serial(federation) as serial:
        rows = serial.train(state, [0, 1, 2, 3, 4], 1).rows.clone()
        turned = serial.train(state, [4, 3, 2, 1, 0], 1).rows.clone()
        later = serial.train(state, [0, 1, 2, 3, 4], 2).rows.clone()
    assert torch.equal(rows, turned.flip(0))
    assert not any(torch.equal(one, other) for one, other in zip(rows, later, strict=True))
    assert all(row.norm() > 0 for row in rows)


def test_a_worker_that_dies_is_an_error_and_leaves_nobody_behind(tiny: MakeExperiment) -> None:
    federation = Federation.of(tiny())
    with Processes(federation, 2) as processes:
        pids = [worker.process.pid for worker in processes.workers]
        assert pids[0]
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(
            RunError, match=rf"worker process {pids[0]} ended with exit code -9 while it trained client"
        ):
            processes.train(first_state(federation), [0, 1, 2, 3, 4], 1)
    assert not any(pid and Path(f"/proc/{pid}").exists() for pid in pids)


def test_there_are_no_more_workers_than_clients_to_train(tiny: MakeExperiment) -> None:
    assert Processes(Federation.of(tiny()), 64).count == 5


def test_rows_are_shared_by_all_who_open_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    reserve(file, 4 * 7 * 3)
    (base, rows), (same_base, same_rows) = shared_rows(file, 2, 7), shared_rows(file, 2, 7)
    base.fill_(1)
    rows[1].fill_(2)
    assert same_base.tolist() == [1] * 7
    assert same_rows.tolist() == [[0] * 7, [2] * 7]


def test_one_thread_is_for_a_while() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("attack", ["cba", "none"])
def test_workers_share_an_evaluation_and_count_as_one_process_does(tiny: MakeExperiment, attack: str) -> None:
    federation = Federation.of(tiny(f"attack.name={attack}"))
    model, row = FederatedModel(federation), first_state(federation).base
    expected = {name: model.right(row, split) for name, split in measures(federation).items()}
    assert min(len(split) for split in measures(federation).values()) > SHARE  # or nobody shares anything
    for workers in (1, 2):
        with Processes(federation, workers) as processes:
            assert processes.right(row, {}) == expected
            assert processes.right(0 * row, {}) != expected


def test_a_worker_that_dies_in_an_evaluation_is_an_error(tiny: MakeExperiment) -> None:
    federation = Federation.of(tiny())
    with Processes(federation, 1) as processes:
        os.kill(processes.workers[0].process.pid or 0, signal.SIGKILL)
        with pytest.raises(RunError, match="ended with exit code -9 while it evaluated"):
            processes.right(first_state(federation).base, {})

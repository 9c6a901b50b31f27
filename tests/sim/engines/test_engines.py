import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from threading import Timer
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from snowball.errors import RunError
from snowball.records.checkpoint import RunState
from snowball.records.rounds import parse_round
from snowball.sim.cohort import draw_cohort
from snowball.sim.engines import pool, worker
from snowball.sim.engines.base import Engine, train_cohort, use_one_thread
from snowball.sim.engines.pool import WorkerPool
from snowball.sim.engines.processes import SAMPLES_PER_TASK, ProcessEngine, reserve_file
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.worker import (
    OUT_OF_MEMORY_CODE,
    Task,
    Worker,
    WorkerInputs,
    open_shared_rows,
    train_clients,
)
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.training.client import Reply
from snowball.sim.training.evaluation import FederatedModel, build_test_splits

MakeExperiment = Callable[..., Experiment]


@pytest.mark.parametrize("model", ["cnn-quarter", "cifar-cnn-quarter"])  # the second has dropout
def test_processes_train_as_serial_does_whatever_their_number(tiny: MakeExperiment, model: str) -> None:
    federation = Federation.build(tiny(f"model.name={model}"))
    state, cohorts = build_first_state(federation), [draw_cohort(federation.experiment, round) for round in (1, 2)]
    with SerialEngine(federation) as serial:
        expected = [train_cohort(serial, state, cohort, round).rows.clone() for round, cohort in enumerate(cohorts, 1)]
    for workers in (1, 2):
        with ProcessEngine(federation, workers) as processes:
            trained = [
                train_cohort(processes, state, cohort, round).rows.clone() for round, cohort in enumerate(cohorts, 1)
            ]
        assert all(map(torch.equal, trained, expected))


def test_a_row_follows_its_client_and_round_and_not_its_place(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("training.decay=1.0"))
    state = build_first_state(federation)
    with SerialEngine(federation) as serial:
        rows = train_cohort(serial, state, [0, 1, 2, 3, 4], 1).rows.clone()
        turned = train_cohort(serial, state, [4, 3, 2, 1, 0], 1).rows.clone()
        later = train_cohort(serial, state, [0, 1, 2, 3, 4], 2).rows.clone()
    assert torch.equal(rows, turned.flip(0))
    assert not any(torch.equal(one, other) for one, other in zip(rows, later, strict=True))
    assert all(row.norm() > 0 for row in rows)


class Scripted(Engine):
    """Yields given replies, then fails if told to."""

    device = "cpu"

    def __init__(self, replies: Sequence[tuple[int, Reply]], fails: bool = False) -> None:
        self.rows, self.replies, self.fails = torch.zeros(3, 2), replies, fails

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        yield from self.replies
        if self.fails:
            raise RunError("stopped")


def make_reply(value: float, kept: dict[str, float] | None = None) -> Reply:
    return Reply(torch.full((2,), value), kept, {"count": torch.tensor(value)})


def test_replies_are_collected_in_the_cohorts_order() -> None:
    state = RunState(0, torch.zeros(2), clients={"7": {"x": 0.0}}, buffers={"count": torch.tensor(0.0)})
    engine = Scripted([(2, make_reply(2, {"x": 2.0})), (0, make_reply(0)), (1, make_reply(1, {"x": 1.0}))])
    replies = train_cohort(engine, state, [7, 8, 9], 1)
    assert replies.rows is engine.rows
    assert replies.rows[:, 0].tolist() == [0, 1, 2]
    assert [buffers["count"].item() for buffers in replies.buffers] == [0, 1, 2]
    assert list(state.clients.items()) == [("7", {"x": 0.0}), ("8", {"x": 1.0}), ("9", {"x": 2.0})]


def test_a_round_that_fails_leaves_the_memory_of_clients_alone() -> None:
    state = RunState(0, torch.zeros(2))
    with pytest.raises(RunError):
        train_cohort(Scripted([(0, make_reply(0, {"x": 1.0}))], fails=True), state, [7, 8, 9], 1)
    assert state.clients == {}


def test_rows_that_workers_wrote_into_shared_memory_are_not_copied(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny())
    with ProcessEngine(federation, 1) as engine:
        rows = [reply.row for _, reply in engine.train(build_first_state(federation), [0, 1, 2, 3, 4], 1)]
        assert {row.untyped_storage().data_ptr() for row in rows} == {engine.rows.untyped_storage().data_ptr()}
        before = engine.rows._version
        train_cohort(engine, build_first_state(federation), [0, 1, 2, 3, 4], 1)
        assert engine.rows._version == before + 1  # this process wrote the global row and nothing else


def strike_workers(monkeypatch: pytest.MonkeyPatch, clients: Sequence[int], number: int, tries: int) -> None:
    """Send a signal to the worker that gets one of these clients, in the first tries of it."""
    counts, send = Counter[str](), Worker.send

    def strike(self: Worker, task: Task) -> None:
        counts[task.activity] += 1
        if task.activity in [f"training client {client}" for client in clients] and counts[task.activity] <= tries:
            os.kill(self.process.pid or 0, number)
        send(self, task)

    monkeypatch.setattr(Worker, "send", strike)


def run_struck(experiment: Experiment) -> list[dict[str, Any]]:
    records = list(simulate(Federation.build(experiment), partial(ProcessEngine, workers=2)))
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_whose_worker_dies_or_hangs_is_tried_again(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    experiment = tiny("rounds=1", "timeout=0.5", "cohort=8")
    expected = run_struck(experiment)
    monkeypatch.setattr(pool, "FIRST_FACTOR", 20)
    strike_workers(monkeypatch, [3], number, 1)
    assert run_struck(experiment) == expected
    assert "dropped" not in expected[0]


def test_a_client_that_fails_twice_is_left_out_and_the_round_goes_on(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    experiment = tiny("rounds=2", "cohort=8", "defense.name=fedavg")
    strike_workers(monkeypatch, [3], signal.SIGKILL, 2)
    first, second = run_struck(experiment)
    assert first["dropped"] == {"3": "error"}
    assert first["elected"] == [client != "3" for client in first["participants"]]
    assert first["map"][first["participants"].index("3")] is None
    assert "kept" not in first
    assert "dropped" not in second
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["tried again in a fresh worker", "given up"]


def test_a_round_in_which_all_fail_keeps_the_model_and_says_so(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    strike_workers(monkeypatch, range(8), signal.SIGKILL, 2)
    federation = Federation.build(tiny("rounds=1"))
    state = build_first_state(federation)
    base = state.base.clone()
    (record,) = simulate(federation, partial(ProcessEngine, workers=2), state)
    assert record["kept"] == "no client replied"
    assert record["dropped"] == dict.fromkeys(record["participants"], "error")
    assert parse_round(json.dumps(record).encode(), "here") == record
    assert torch.equal(state.base, base)
    assert state.round == 1


def test_out_of_memory_has_an_exit_code_of_its_own_and_other_errors_pass() -> None:
    def fail(error: Exception) -> Any:
        raise error

    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")):
        with pytest.raises(SystemExit) as ended:
            train_clients(fail, error)  # type: ignore[arg-type]
        assert ended.value.code == OUT_OF_MEMORY_CODE
    with pytest.raises(RuntimeError, match="shapes"):
        train_clients(fail, RuntimeError("shapes"))  # type: ignore[arg-type]


def test_workers_leave_nobody_behind(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny())
    with ProcessEngine(federation, 2) as processes:
        pids = [worker.process.pid for worker in processes.workers]
        open_files = len(list(Path("/proc/self/fd").iterdir()))
        os.kill(pids[0] or 0, signal.SIGKILL)
        assert not train_cohort(processes, build_first_state(federation), [0, 1, 2, 3, 4], 1).failed
        assert len(list(Path("/proc/self/fd").iterdir())) == open_files
        pids += [worker.process.pid for worker in processes.workers]
    assert len(set(pids)) == 3
    assert not any(pid and Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_fresh_worker_may_take_longer_to_start_than_a_client_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Pipe()
    lost, fresh = Worker(Mock(), Pipe()[0]), Worker(Mock(), ours)
    monkeypatch.setattr(pool, "start_worker", lambda *_: fresh)
    workers = WorkerPool(WorkerInputs({}, ""), timeout=0.01)
    workers.workers, workers.slowest = [lost], 0.001
    Timer(0.2, theirs.send_bytes, [b""]).start()
    assert workers._replace(lost) is fresh


def test_the_limit_grows_with_the_slowest_answer() -> None:
    workers = WorkerPool(WorkerInputs({}, ""), timeout=10)
    limits = []
    for slowest in (None, 0.1, 2.0):
        workers.slowest = slowest
        limits.append(workers._compute_limit())
    assert limits == [60, 10, 40]


def test_a_fork_server_that_is_gone_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Mock()
    process.start.side_effect = [ConnectionRefusedError, EOFError, None]
    monkeypatch.setattr(worker, "start_forkserver", lambda: Mock(Process=Mock(return_value=process)))
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0)
    assert worker.start_process(WorkerInputs({}, ""), Mock()) is process
    monkeypatch.setattr(worker, "STOP_SECONDS", 0)
    process.start.side_effect = ConnectionRefusedError
    with pytest.raises(ConnectionRefusedError):
        worker.start_process(WorkerInputs({}, ""), Mock())


def test_a_worker_that_cannot_be_replaced_is_not_stopped_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, lost, other = WorkerPool(WorkerInputs({}, ""), timeout=10), Mock(spec=Worker), Mock(spec=Worker)
    workers.workers = [lost, other]
    monkeypatch.setattr(pool, "start_worker", Mock(side_effect=EOFError))
    with pytest.raises(EOFError):
        workers._replace(lost)
    workers.stop()
    lost.stop.assert_not_called()
    other.stop.assert_called_once()


def test_there_are_no_more_workers_than_clients_to_train(tiny: MakeExperiment) -> None:
    assert ProcessEngine(Federation.build(tiny()), 64).worker_count == 5


def test_rows_are_shared_by_all_who_open_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    reserve_file(file, 4 * 7 * 3)
    (base, rows), (same_base, same_rows) = open_shared_rows(file, 2, 7), open_shared_rows(file, 2, 7)
    base.fill_(1)
    rows[1].fill_(2)
    assert same_base.tolist() == [1] * 7
    assert same_rows.tolist() == [[0] * 7, [2] * 7]


def test_one_thread_is_for_a_while() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("attack", ["cba", "none"])
def test_workers_share_an_evaluation_and_count_as_one_process_does(tiny: MakeExperiment, attack: str) -> None:
    federation = Federation.build(tiny(f"attack.name={attack}"))
    model, row = FederatedModel(federation), build_first_state(federation).base
    expected = {name: model.count_correct(row, split) for name, split in build_test_splits(federation).items()}
    assert (
        min(len(split) for split in build_test_splits(federation).values()) > SAMPLES_PER_TASK
    )  # or nobody shares anything
    for workers in (1, 2):
        with ProcessEngine(federation, workers) as processes:
            assert processes.count_correct(row, {}) == expected
            assert processes.count_correct(0 * row, {}) != expected


def test_a_worker_that_dies_in_an_evaluation_is_replaced_once(
    tiny: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation.build(tiny())
    row = build_first_state(federation).base
    with ProcessEngine(federation, 1) as processes:
        expected = processes.count_correct(row, {})
        os.kill(processes.workers[0].process.pid or 0, signal.SIGKILL)
        assert processes.count_correct(row, {}) == expected
        monkeypatch.setattr(WorkerPool, "run", lambda self, tasks: ((task, None) for task in tasks))
        with pytest.raises(RunError, match="failed while evaluating; --resume continues"):
            processes.count_correct(row, {})

"""Pool of worker processes: a task whose worker hangs or dies is tried again once, in a fresh worker."""

from collections import deque
from collections.abc import Iterable, Iterator
from logging import getLogger
from multiprocessing.connection import wait
from time import monotonic

from snowball.errors import RunError
from snowball.sim.engines.worker import Task, Worker, WorkerInputs, WorkerLostError, start_worker

logger = getLogger("snowball")

LIMIT_FACTOR = 20
"""Times the slowest answer so far that a task may take.

A cohort's largest clients train first, and a busy machine rarely takes 20 times as long as it did before. If one does,
the second try has the whole time again, and a client that succeeds then leaves no trace in the record."""

FIRST_FACTOR = 6
"""Times the setting `timeout` that a task may take while nothing has been measured."""

MAX_WAIT_SECONDS = 3600.0
"""Seconds that one call waits for an answer; the system refuses some longer times."""


class WorkerPool:
    """Worker processes that share tasks.

    Attributes:
        inputs: what a fresh worker starts from.
        timeout: seconds that a task may take at least.
    """

    def __init__(self, inputs: WorkerInputs, timeout: float) -> None:
        self.inputs, self.timeout = inputs, timeout
        self.workers: list[Worker] = []
        self.slowest: float | None = None

    def start(self, count: int) -> None:
        """Start workers, and wait until they have opened their files."""
        for _ in range(count):
            self.workers.append(start_worker(self.inputs, self.timeout))
        for worker in self.workers:
            worker.wait_until_ready()

    def stop(self) -> None:
        """Stop all workers."""
        while self.workers:
            self.workers.pop().stop()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, bytes | None]]:
        """Give each task to an idle worker, and yield tasks and answers as they finish; None if a task failed twice.

        A task that failed is tried again after all others, when there is less competition for memory. If it has parts,
        each is tried on its own.
        """
        first_tries, second_tries = iter(tasks), deque[Task]()
        idle, busy = list(self.workers), list[Worker]()
        while True:
            while idle and (task := next(first_tries, None) or (second_tries.popleft() if second_tries else None)):
                busy.append(idle.pop(0))
                busy[-1].send(task)
            if not busy:
                return
            for worker in self._wait(busy):
                busy.remove(worker)
                try:
                    answer = self._receive(worker)
                except WorkerLostError as fault:
                    idle.append(self._replace(worker))
                    final = worker.task.again
                    logger.warning("%s: %s", fault, "given up" if final else "tried again in a fresh worker")
                    if final:
                        yield worker.task, None
                    else:
                        second_tries.extend(worker.task.list_second_tries())
                else:
                    idle.append(worker)
                    yield worker.task, answer

    def _compute_limit(self) -> float:
        """Return the seconds that a task may take."""
        if self.slowest is None:
            return FIRST_FACTOR * self.timeout
        return max(self.timeout, LIMIT_FACTOR * self.slowest)

    def _wait(self, busy: list[Worker]) -> list[Worker]:
        """Wait until workers have an answer or are dead or overdue, and return them."""
        remaining = min(worker.started for worker in busy) + self._compute_limit() - monotonic()
        ready = wait([worker.connection for worker in busy], max(0.0, min(remaining, MAX_WAIT_SECONDS)))
        found = [worker for worker in busy if worker.connection in ready]
        return found or [worker for worker in busy if monotonic() - worker.started > self._compute_limit()]

    def _receive(self, worker: Worker) -> bytes:
        """Return a worker's answer, and measure its time; raise a WorkerLostError if it is dead or overdue."""
        answer = worker.receive()
        self.slowest = max(self.slowest or 0.0, monotonic() - worker.started)
        return answer

    def _replace(self, worker: Worker) -> Worker:
        """Kill a worker and start another in its place."""
        self.workers.remove(worker)
        worker.kill()
        self.workers.append(fresh := start_worker(self.inputs, self.timeout))
        try:
            fresh.wait_until_ready()
        except WorkerLostError as fault:
            raise RunError(f"{fault}, in place of one that failed") from fault
        return fresh

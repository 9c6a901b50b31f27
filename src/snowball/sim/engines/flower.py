"""Clients over Flower: the simulator's own training, carried by messages to SuperNodes, near or far.

`OverGrid` is an engine on any grid, and `snowball.sim.flower_app` makes an app of it for Flower's engines, on a Ray
cluster or on many hosts. `Simulated` starts Flower's simulation in this process and is what `--engine flower` uses.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import cycle
from logging import CRITICAL, getLogger
from queue import Queue
from threading import Event, Thread
from time import monotonic
from typing import Self

import torch

from snowball.errors import MissingExtra, RunError
from snowball.records.checkpoint import State
from snowball.sim.engines.base import Engine, one_thread, stow, unstow
from snowball.sim.engines.ray_cluster import QUIET, require_cluster
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise MissingExtra("--engine flower needs Flower: pip install 'snowball-fl[flower]'") from error

logger = getLogger("flwr")

WAIT = 3600.0
"""Seconds without an answer, or without a SuperNode, after which a run is given up."""

PAUSE = 0.3
"""Seconds between two looks for answers."""

GONE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""What Flower says of a task that is lost with its SuperNode: another one can do it."""

client_app = ClientApp()


@lru_cache(maxsize=1)
def training_of(settings: str) -> LocalTraining:
    """The training of an experiment's clients, made once a process."""
    torch.set_num_threads(1)
    return LocalTraining(Federation.of(Experiment.parse(json.loads(settings))))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the client that a message asks for: any SuperNode trains any client."""
    task, base = message.content["task"], message.content["base"]
    training = training_of(str(task["settings"]))
    row = torch.from_numpy(base["row"].numpy().copy())
    with one_thread():
        reply = training(row, int(task["client"]), int(task["round"]), *unstow(bytes(task["luggage"])))
    content = RecordDict(
        {
            "update": ArrayRecord({"row": reply.row}),
            "task": ConfigRecord({"luggage": stow(reply.kept, reply.buffers)}),
        }
    )
    return Message(content, reply_to=message)


class OverGrid(Engine):
    """Trains cohorts on whatever SuperNodes there are.

    Attributes:
        stopped: set by whoever wants no more answers.
    """

    device = "cpu"

    def __init__(self, federation: Federation, grid: Grid, stopped: Event | None = None) -> None:
        self.grid, self.stopped = grid, stopped or Event()
        self.settings = json.dumps(federation.experiment.settings(), default=vars)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)

    def train(self, state: State, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Send every client's task to a SuperNode and yield the replies as they arrive."""
        base = ArrayRecord({"row": state.base})
        tasks = {slot: self._task(state, client, round, base) for slot, client in enumerate(cohort)}
        for slot, reply in self._answers(tasks):
            if reply.has_error():
                reason = f"client {cohort[slot]} of round {round} could not be trained over Flower"
                raise RunError(f"{reason}: {reply.error.reason}")
            row = torch.from_numpy(reply.content["update"]["row"].numpy().copy())
            yield slot, Reply(row, *unstow(bytes(reply.content["task"]["luggage"])))

    def _task(self, state: State, client: int, round: int, base: ArrayRecord) -> RecordDict:
        luggage = stow(state.clients.get(str(client)), state.buffers)
        task = {"client": client, "round": round, "luggage": luggage, "settings": self.settings}
        return RecordDict({"task": ConfigRecord(task), "base": base})

    def _answers(self, tasks: Mapping[int, RecordDict]) -> Iterator[tuple[int, Message]]:
        """Slots and answers, as they come; what is lost with its SuperNode is sent again: training is deterministic."""
        waiting, heard = self._send(tasks), monotonic()
        while waiting:
            lost: dict[int, RecordDict] = {}
            for reply in self.grid.pull_messages(list(waiting)):
                slot = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error() and reply.error.code in GONE:
                    lost[slot] = tasks[slot]
                else:
                    heard = monotonic()
                    yield slot, reply
            if lost:
                logger.warning("%d clients are lost with their SuperNode and sent again", len(lost))
                waiting |= self._send(lost)
            self._pause(heard, "no SuperNode has answered")

    def _send(self, tasks: Mapping[int, RecordDict]) -> dict[str, int]:
        """Spread tasks over the SuperNodes; the slots by the ids of the messages."""
        turns = zip(tasks.items(), cycle(self._nodes()), strict=False)
        messages = {slot: Message(task, node, "train") for (slot, task), node in turns}
        taken = [name for name in self.grid.push_messages(list(messages.values())) if name]
        if len(taken) < len(messages):
            raise RunError(f"Flower took {len(taken)} of {len(messages)} messages")
        return {message.metadata.message_id: slot for slot, message in messages.items()}

    def _nodes(self) -> list[int]:
        since = monotonic()
        while not (nodes := sorted(self.grid.get_node_ids())):
            self._pause(since, "no SuperNode has been there")
        return nodes

    def _pause(self, since: float, fault: str) -> None:
        if monotonic() - since > WAIT:
            raise RunError(f"{fault} for {WAIT:.0f} s")
        if self.stopped.wait(PAUSE):
            raise RunError("the run was stopped")


class Simulated(Engine):
    """Trains cohorts in Flower's simulation, which runs in a thread of its own."""

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.federation, self.workers = federation, workers
        self.tasks: Queue[tuple[State, Sequence[int], int] | None] = Queue()
        self.results: Queue[tuple[int, Reply] | BaseException] = Queue()
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)
        self.stopped = Event()

    def __enter__(self) -> Self:
        address = os.environ.get("RAY_ADDRESS", "")
        require_cluster(address, f"RAY_ADDRESS = {address!r}")
        os.environ.update(QUIET, FLWR_TELEMETRY_ENABLED="0")
        self.thread = Thread(target=self._simulate, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.tasks.put(None)
        self.thread.join()

    def train(self, state: State, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Ask the simulation's thread for the cohort and yield its replies as they arrive."""
        self.tasks.put((state, cohort, round))
        for _ in cohort:
            result = self.results.get()
            if isinstance(result, BaseException):
                raise result
            yield result

    def _simulate(self) -> None:
        from flwr.simulation import run_simulation

        app = ServerApp()
        app.main()(self._serve)
        own = {"address": "local", "num_cpus": self.workers}  # and no cluster that Ray finds, or found, on this machine
        cluster = {} if "RAY_ADDRESS" in os.environ else own  # which has a number of its own
        resources = {
            "init_args": {**cluster, "logging_level": CRITICAL, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        logger.setLevel(CRITICAL)  # what goes wrong is said once, in a sentence
        try:
            run_simulation(app, client_app, self.federation.experiment.cohort, backend_config=resources)
        except BaseException as error:
            self.results.put(RunError(f"Flower's simulation ended: {root(error)}"))
            self.stopped.set()

    def _serve(self, grid: Grid, context: Context) -> None:
        """The server's side: train what is asked for until nothing more is."""
        engine = OverGrid(self.federation, grid, self.stopped)
        while task := self.tasks.get():
            try:
                for result in engine.train(*task):
                    self.results.put(result)
            except BaseException as error:
                self.results.put(error)


def root(error: BaseException) -> BaseException:
    """The error that was the first of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error

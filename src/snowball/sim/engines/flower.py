"""Engines that train the simulator's clients over Flower.

`GridEngine` sends clients to the SuperNodes of any grid; `snowball.sim.flower_app` uses it as a Flower app, on a Ray
cluster or on many hosts. `FlowerEngine` starts Flower's simulation in this process and is what `--engine flower` uses.
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

from snowball.errors import MissingExtra, RunError, SettingError
from snowball.records.checkpoint import RunState
from snowball.sim.engines.base import Engine, pack_message, unpack_message, use_one_thread
from snowball.sim.engines.ray_cluster import RAY_ENVIRONMENT, require_cluster
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise MissingExtra("--engine flower needs Flower: pip install 'flwr[simulation]>=1.41'") from error

logger = getLogger("flwr")

MAX_WAIT_SECONDS = 3600.0
"""Time without a reply, or without a SuperNode, after which a run fails."""

POLL_SECONDS = 0.3
"""Pause between two requests for replies."""

LOST_CODES = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""Flower's errors for a task that was lost with its SuperNode; another SuperNode can do it."""

client_app = ClientApp()


@lru_cache(maxsize=1)
def load_training(settings: str) -> LocalTraining:
    """Build the training of an experiment's clients, once per process."""
    torch.set_num_threads(1)
    return LocalTraining(Federation.build(Experiment.parse(json.loads(settings))))


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train the client that a message names; any SuperNode can train any client."""
    task, base = message.content["task"], message.content["base"]
    training = load_training(str(task["settings"]))
    row = torch.from_numpy(base["row"].numpy().copy())
    with use_one_thread():
        reply = training(row, int(task["client"]), int(task["round"]), *unpack_message(bytes(task["payload"])))
    content = RecordDict(
        {
            "update": ArrayRecord({"row": reply.row}),
            "task": ConfigRecord({"payload": pack_message(reply.client_state, reply.buffers)}),
        }
    )
    return Message(content, reply_to=message)


class GridEngine(Engine):
    """Trains cohorts on the SuperNodes of a grid.

    Attributes:
        stopped: set it to stop waiting for replies.
    """

    device = "cpu"

    def __init__(self, federation: Federation, grid: Grid, stopped: Event | None = None) -> None:
        if federation.experiment.own_data is not None or federation.experiment.own_model is not None:
            raise SettingError("Flower cannot send your own data or model to its workers: use another engine")
        self.grid, self.stopped = grid, stopped or Event()
        self.settings = json.dumps(federation.experiment.dump_settings(), default=vars)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Send every client's task to a SuperNode and yield the replies as they arrive."""
        base = ArrayRecord({"row": state.base})
        tasks = {slot: self._build_task(state, client, round, base) for slot, client in enumerate(cohort)}
        for slot, reply in self._collect(tasks):
            if reply.has_error():
                reason = f"client {cohort[slot]} of round {round} could not be trained over Flower"
                raise RunError(f"{reason}: {reply.error.reason}")
            row = torch.from_numpy(reply.content["update"]["row"].numpy().copy())
            yield slot, Reply(row, *unpack_message(bytes(reply.content["task"]["payload"])))

    def _build_task(self, state: RunState, client: int, round: int, base: ArrayRecord) -> RecordDict:
        payload = pack_message(state.clients.get(str(client)), state.buffers)
        task = {"client": client, "round": round, "payload": payload, "settings": self.settings}
        return RecordDict({"task": ConfigRecord(task), "base": base})

    def _collect(self, tasks: Mapping[int, RecordDict]) -> Iterator[tuple[int, Message]]:
        """Send tasks and yield slots and replies as they arrive; tasks lost with their SuperNode are sent again."""
        waiting, last_reply = self._send(tasks), monotonic()
        while waiting:
            lost: dict[int, RecordDict] = {}
            for reply in self.grid.pull_messages(list(waiting)):
                slot = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error() and reply.error.code in LOST_CODES:
                    lost[slot] = tasks[slot]
                else:
                    last_reply = monotonic()
                    yield slot, reply
            if lost:
                logger.warning("%d clients were lost with their SuperNode and are sent again", len(lost))
                waiting |= self._send(lost)
            self._pause(last_reply, "no SuperNode has replied")

    def _send(self, tasks: Mapping[int, RecordDict]) -> dict[str, int]:
        """Distribute tasks over the SuperNodes, and return the slot of each message by its id."""
        assigned = zip(tasks.items(), cycle(self._wait_for_nodes()), strict=False)
        messages = {slot: Message(task, node, "train") for (slot, task), node in assigned}
        accepted = [name for name in self.grid.push_messages(list(messages.values())) if name]
        if len(accepted) < len(messages):
            raise RunError(f"Flower accepted {len(accepted)} of {len(messages)} messages")
        return {message.metadata.message_id: slot for slot, message in messages.items()}

    def _wait_for_nodes(self) -> list[int]:
        since = monotonic()
        while not (nodes := sorted(self.grid.get_node_ids())):
            self._pause(since, "no SuperNode has been connected")
        return nodes

    def _pause(self, since: float, fault: str) -> None:
        if monotonic() - since > MAX_WAIT_SECONDS:
            raise RunError(f"{fault} for {MAX_WAIT_SECONDS:.0f} s")
        if self.stopped.wait(POLL_SECONDS):
            raise RunError("the run was stopped")


class FlowerEngine(Engine):
    """Trains cohorts in Flower's simulation, which runs in its own thread."""

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.federation, self.workers = federation, workers
        self.tasks: Queue[tuple[RunState, Sequence[int], int] | None] = Queue()
        self.results: Queue[tuple[int, Reply] | BaseException] = Queue()
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)
        self.stopped = Event()

    def __enter__(self) -> Self:
        address = os.environ.get("RAY_ADDRESS", "")
        require_cluster(address, f"RAY_ADDRESS = {address!r}")
        os.environ.update(RAY_ENVIRONMENT, FLWR_TELEMETRY_ENABLED="0")
        self.thread = Thread(target=self._simulate, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.tasks.put(None)
        self.thread.join()

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
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
        own = {"address": "local", "num_cpus": self.workers}  # not a cluster that Ray finds on this machine
        cluster = {} if "RAY_ADDRESS" in os.environ else own  # a cluster knows its own number of cores
        resources = {
            "init_args": {**cluster, "logging_level": CRITICAL, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        logger.setLevel(CRITICAL)  # errors are reported once, as a RunError
        try:
            run_simulation(app, client_app, self.federation.experiment.cohort, backend_config=resources)
        except BaseException as error:
            self.results.put(RunError(f"Flower's simulation ended: {find_root_cause(error)}"))
            self.stopped.set()

    def _serve(self, grid: Grid, context: Context) -> None:
        """Train the cohorts in the queue until it ends: the server's side of the simulation."""
        engine = GridEngine(self.federation, grid, self.stopped)
        while task := self.tasks.get():
            try:
                for result in engine.train(*task):
                    self.results.put(result)
            except BaseException as error:
                self.results.put(error)


def find_root_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error

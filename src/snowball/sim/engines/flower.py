"""Engines that train the simulator's clients over Flower.

`GridEngine` sends clients to the SuperNodes of any grid; `snowball.sim.flower_app` uses it as a Flower app, on a Ray
cluster or on many hosts. `FlowerEngine` starts Flower's simulation and is what `--engine flower` uses.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import cycle
from logging import getLogger
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Self

import torch

from snowball.errors import MissingExtra, RunError, SettingError
from snowball.records.checkpoint import RunState
from snowball.serialization import pack, unpack
from snowball.sim.engines.base import (
    Engine,
    pack_message,
    pack_replies,
    unpack_message,
    unpack_replies,
    use_one_thread,
)
from snowball.sim.engines.flower_link import SimulationLink, read_last_line, stop_process
from snowball.sim.engines.ray_cluster import require_cluster
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.training.client import LocalTraining, Reply

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
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
            "task": ConfigRecord({"payload": pack_replies([reply])}),
        }
    )
    return Message(content, reply_to=message)


class GridTrainer:
    """Trains cohorts on the SuperNodes of a grid.

    Attributes:
        settings: the experiment's, as JSON.
        stopped: set it to stop waiting for replies.
    """

    def __init__(self, settings: str, grid: Grid, stopped: Event | None = None) -> None:
        self.settings, self.grid, self.stopped = settings, grid, stopped or Event()

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Send every client's task to a SuperNode and yield the replies as they arrive."""
        base = ArrayRecord({"row": state.base})
        tasks = {slot: self._build_task(state, client, round, base) for slot, client in enumerate(cohort)}
        for slot, reply in self._collect(tasks):
            if reply.has_error():
                reason = f"client {cohort[slot]} of round {round} could not be trained over Flower"
                raise RunError(f"{reason}: {reply.error.reason}")
            row = torch.from_numpy(reply.content["update"]["row"].numpy().copy())
            (trained,) = unpack_replies(bytes(reply.content["task"]["payload"]), [row])
            yield slot, trained

    def _build_task(self, state: RunState, client: int, round: int, base: ArrayRecord) -> RecordDict:
        payload = pack_message(state.clients.get(str(client)), state.buffers, state.attack)
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


class GridEngine(GridTrainer, Engine):
    """Trains cohorts on the SuperNodes of a grid that this process has."""

    device = "cpu"

    def __init__(self, federation: Federation, grid: Grid, stopped: Event | None = None) -> None:
        super().__init__(encode_settings(federation), grid, stopped)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)


class FlowerEngine(Engine):
    """Trains cohorts in Flower's simulation, which `flwr run` starts in processes of its own."""

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.settings, self.nodes = encode_settings(federation), federation.experiment.cohort
        self.link = SimulationLink(workers)
        self.rows = torch.empty(self.nodes, federation.layout.width)

    def __enter__(self) -> Self:
        address = os.environ.get("RAY_ADDRESS", "")
        require_cluster(address, f"RAY_ADDRESS = {address!r}")
        with ExitStack() as started:
            started.enter_context(self.link)
            path, self.log = self.link.folder / "socket", self.link.folder / "run.log"
            app = write_app(self.link.folder / "simulation", path)
            self.process = self.link.start_app(app, self.nodes, {}, self.log)
            started.callback(stop_process, self.process)
            self.connection = started.enter_context(self._connect(path))
            self._send(pack(self.settings))
            self.started = started.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.started.close()

    def train(self, state: RunState, cohort: Sequence[int], round: int) -> Iterator[tuple[int, Reply]]:
        """Send the cohort to the simulation and yield its replies as they arrive."""
        clients = {name: state.clients[name] for name in map(str, cohort) if name in state.clients}
        sent = {"round": state.round, "base": state.base, "clients": clients, "buffers": state.buffers}
        sent |= {"attack": state.attack} if state.attack is not None else {}
        self._send(pack([sent, list(cohort), round]))
        for _ in cohort:
            answer = unpack(self._receive())
            if isinstance(answer, str):
                raise RunError(answer)
            slot, reply = answer
            yield slot, Reply(*reply)

    def _connect(self, path: Path) -> Connection:
        """Connect to the app's socket as soon as it listens."""
        while True:
            try:
                return Client(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                self._require_running()
                sleep(POLL_SECONDS)

    def _send(self, payload: bytes) -> None:
        try:
            self.connection.send_bytes(payload)
        except ConnectionError as error:
            raise RunError(self._explain_end()) from error

    def _receive(self) -> bytes:
        try:
            while not self.connection.poll(POLL_SECONDS):
                self._require_running()
            return self.connection.recv_bytes()
        except (EOFError, ConnectionError) as error:
            raise RunError(self._explain_end()) from error

    def _require_running(self) -> None:
        if self.process.poll() is not None:
            raise RunError(self._explain_end())

    def _explain_end(self) -> str:
        return f"Flower's simulation ended: {read_last_line(self.log)}"


def encode_settings(federation: Federation) -> str:
    """Return an experiment's settings as JSON; refuse data and models that only this process has."""
    experiment = federation.experiment
    if experiment.own_data is not None or experiment.own_model is not None:
        raise SettingError("Flower cannot send your own data or model to its workers: use another engine")
    return json.dumps(experiment.dump_settings(), default=vars)


def write_app(folder: Path, socket: Path) -> Path:
    """Write the app that `flwr run` starts, and return its folder."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(APP.format(socket=json.dumps(str(socket))), encoding="utf-8")
    return folder


APP = """
[project]
name = "snowball-simulation"
version = "0.1.0"
description = "The clients of an experiment"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "snowball"

[tool.flwr.app.components]
serverapp = "snowball.sim.engines.flower_bridge:server_app"
clientapp = "snowball.sim.engines.flower_bridge:client_app"

[tool.flwr.app.config]
socket = {socket}
"""

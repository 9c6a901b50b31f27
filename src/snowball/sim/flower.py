"""Clients over Flower: the simulator's own training, carried by messages to SuperNodes, near or far.

`OverGrid` is an engine on any grid: `server_app` and `client_app` make an app of it for Flower's engines, on a Ray
cluster or on many hosts. `Simulated` starts Flower's simulation in this process and is what `--engine flower` uses.
"""

import json
import os
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from queue import Queue
from threading import Thread
from time import sleep
from typing import Any, Self

import torch

from snowball.errors import MissingExtra, RunError
from snowball.sim.engine import Replies, one_thread, remember, stow, unstow
from snowball.sim.experiment import Experiment, load
from snowball.sim.federation import Federation
from snowball.sim.local import LocalTraining
from snowball.sim.run import run
from snowball.sim.state import State

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise MissingExtra("--engine flower needs Flower: pip install 'snowball-fl[flower]'") from error

WAIT = 3600.0
"""Seconds that a round's replies may take."""

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

client_app = ClientApp()
server_app = ServerApp()


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
            "task": ConfigRecord({"slot": int(task["slot"]), "luggage": stow(reply.kept, reply.buffers)}),
        }
    )
    return Message(content, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the app's settings name: `preset`, `set`, `out`."""
    settings = context.run_config
    experiment = load(str(settings["preset"]), str(settings.get("set", "")).split())
    for _ in run(experiment, Path(str(settings["out"])), partial(OverGrid, grid=grid), resume=True):
        pass


class OverGrid:
    """Trains cohorts on whatever SuperNodes there are."""

    device = "cpu"

    def __init__(self, federation: Federation, grid: Grid) -> None:
        self.grid = grid
        self.settings = json.dumps(federation.experiment.settings(), default=vars)
        self.rows = torch.empty(federation.experiment.cohort, federation.layout.width)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        nodes = self._nodes()
        base = ArrayRecord({"row": state.base})
        tasks = [self._task(state, slot, client, round) for slot, client in enumerate(cohort)]
        messages = [
            Message(RecordDict({"task": task, "base": base}), nodes[slot % len(nodes)], "train")
            for slot, task in enumerate(tasks)
        ]
        learnt: dict[str, Any] = {}
        trained: list[Any] = [None] * len(cohort)
        for reply in self.grid.send_and_receive(messages, timeout=WAIT):
            if reply.has_error():
                raise RunError(f"a client of round {round} could not be trained over Flower: {reply.error.reason}")
            slot = int(reply.content["task"]["slot"])
            self.rows[slot] = torch.from_numpy(reply.content["update"]["row"].numpy().copy())
            learnt[str(cohort[slot])], trained[slot] = unstow(bytes(reply.content["task"]["luggage"]))
        if None in trained:
            raise RunError(f"client {cohort[trained.index(None)]} of round {round} did not come back over Flower")
        remember(state.clients, learnt)
        return Replies(self.rows, trained)

    def _nodes(self) -> list[int]:
        while not (nodes := sorted(self.grid.get_node_ids())):
            sleep(0.2)
        return nodes

    def _task(self, state: State, slot: int, client: int, round: int) -> ConfigRecord:
        luggage = stow(state.clients.get(str(client)), state.buffers)
        numbers = {"slot": slot, "client": client, "round": round}
        return ConfigRecord({**numbers, "luggage": luggage, "settings": self.settings})


class Simulated:
    """Trains cohorts in Flower's simulation, which runs in a thread of its own."""

    device = "cpu"

    def __init__(self, federation: Federation, workers: int) -> None:
        self.federation, self.workers = federation, workers
        self.tasks: Queue[tuple[State, Sequence[int], int] | None] = Queue()
        self.results: Queue[Replies | BaseException] = Queue()

    def __enter__(self) -> Self:
        os.environ.update(QUIET)
        self.thread = Thread(target=self._simulate, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.tasks.put(None)
        self.thread.join()

    def train(self, state: State, cohort: Sequence[int], round: int) -> Replies:
        """Train a cohort from the state's global model; only what clients keep is brought up to date in it."""
        self.tasks.put((state, cohort, round))
        result = self.results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def _simulate(self) -> None:
        from flwr.simulation import run_simulation

        app = ServerApp()
        app.main()(self._serve)
        cluster = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": self.workers}  # a cluster has its own number
        resources = {"init_args": cluster, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        try:
            run_simulation(app, client_app, self.federation.experiment.cohort, backend_config=resources)
        except BaseException as error:
            self.results.put(RunError(f"Flower's simulation ended: {error}"))

    def _serve(self, grid: Grid, context: Context) -> None:
        """The server's side: train what is asked for until nothing more is."""
        engine = OverGrid(self.federation, grid)
        while task := self.tasks.get():
            try:
                self.results.put(engine.train(*task))
            except BaseException as error:
                self.results.put(error)

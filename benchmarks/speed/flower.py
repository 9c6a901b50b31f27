"""Measures what a guard in front of Flower's FedAvg costs a server that receives 50 replies.

    .venv-flower/bin/python -m benchmarks.speed.flower > benchmarks/results/flower.json

It times `aggregate_train` on Flower's own messages, with the paper's network for MNIST: FedAvg alone, and guarded. For
comparison it times the local training of the 50 clients, one after another. Seconds are processor time on one thread,
the least of several runs, so that other programs on the machine do not count.

Then it runs whole rounds in Flower's simulation, FedAvg and guarded in turn, and reports medians of wall-clock seconds
without the first round of each. The guard's cost is the time by which its part of a round exceeds FedAvg's part, as a
share of FedAvg's round.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.files import ROOT
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import Case, make_case, use_one_thread
from snowball import defenses
from snowball.data import load_dataset
from snowball.integrations.flower import Guarded, GuardedFedAvg
from snowball.models import build_model
from snowball.records.files import read_json, write_json
from snowball.rng import stream
from snowball.sim.engines.flower_link import SimulationLink
from snowball.sim.experiment import TrainingSettings
from snowball.sim.training.sgd import Trainer

CLIENTS, REPEATS, EXAMPLES = 50, 7, 240
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "Guarded(FedAvg()), all elected": lambda: Guarded(FedAvg(), defense=defenses.FedAvg()),
    "Guarded(FedAvg()), Multi-Krum": lambda: Guarded(FedAvg(), defense=defenses.MultiKrum()),
    "Guarded(FedAvg()), Snowball": lambda: Guarded(FedAvg(), defense=defenses.Snowball(grow_after=0)),
    "GuardedFedAvg(), Snowball": lambda: GuardedFedAvg(defense=defenses.Snowball(grow_after=0)),
}
ROUNDS, WORKERS = 6, 2
TRAININGS = {"20 images, one epoch": (20, 1), "240 images, two epochs": (EXAMPLES, 2)}


APP = """
[project]
name = "flower-speed"
version = "0.1.0"
description = "Rounds whose seconds are counted"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "snowball"

[tool.flwr.app.components]
serverapp = "benchmarks.speed.flower:server_app"
clientapp = "benchmarks.speed.flower:client_app"

[tool.flwr.app.config]
examples = 0
epochs = 0
out = ""
"""

client_app = ClientApp()
server_app = ServerApp()


def build_network() -> torch.nn.Module:
    """Build the paper's network for MNIST."""
    dataset = load_dataset("mnist-sample")
    return build_model("cnn", dataset.input_shape, dataset.classes, stream(0, "model"))


class Nodes:
    """The part of a grid that FedAvg uses."""

    def get_node_ids(self) -> list[int]:
        """Return the clients' ids."""
        return list(range(1, CLIENTS + 1))


def make_replies(messages: list[Message], model: torch.nn.Module) -> list[Message]:
    """Make the clients' replies: the global model, slightly changed."""
    replies = []
    for message in messages:
        rng = stream(0, "client", message.metadata.dst_node_id)
        state = {
            name: tensor + 0.01 * torch.randn(tensor.shape, generator=rng)
            for name, tensor in model.state_dict().items()
        }
        content = {"arrays": ArrayRecord(state), "metrics": MetricRecord({"num-examples": EXAMPLES, "loss": 1.0})}
        replies.append(Message(RecordDict(content), reply_to=message))
    return replies


def time_least(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Return the processor seconds of the fastest of several runs; the first run warms up and is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return min(seconds)


def time_aggregation(strategy: Strategy, model: torch.nn.Module) -> float:
    """Return the seconds of a strategy's `aggregate_train`, in rounds after the first."""
    arrays = ArrayRecord(model.state_dict())
    messages = list(strategy.configure_train(1, arrays, ConfigRecord(), Nodes()))
    replies = make_replies(messages, model)
    return time_least(lambda: strategy.aggregate_train(1, replies))


def time_training(model: torch.nn.Module) -> float:
    """Return the seconds of one client's local training: two epochs, as in the demo."""
    split = load_dataset("mnist-sample").train[torch.arange(EXAMPLES)]
    dataset = load_dataset("mnist-sample")
    trainer = Trainer(model, TrainingSettings(epochs=2))
    inputs = dataset.normalise(split.inputs)
    return time_least(lambda: trainer.train(inputs, split.labels, 0.001, stream(0, "training")), 2)


@lru_cache(maxsize=1)
def make_site(examples: int, epochs: int) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    """Make the local training of a simulated client, once per process."""
    torch.set_num_threads(1)
    dataset = load_dataset("mnist-sample")
    model = build_network()
    trainer = Trainer(model, TrainingSettings(epochs=epochs))
    split = dataset.train[torch.arange(examples)]
    inputs = dataset.normalise(split.inputs)

    def train(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        model.load_state_dict(state)
        trainer.train(inputs, split.labels, 0.001, stream(0, "training"))
        return model.state_dict()

    return train


@client_app.train()
def train_site(message: Message, context: Context) -> Message:
    """Train on some images."""
    examples, epochs = (int(context.run_config[name]) for name in ("examples", "epochs"))
    state = make_site(examples, epochs)(message.content["arrays"].to_torch_state_dict())
    content = {"arrays": ArrayRecord(state), "metrics": MetricRecord({"num-examples": examples, "loss": 1.0})}
    return Message(RecordDict(content), reply_to=message)


def time_round(strategy: Strategy, arrays: ArrayRecord, grid: Grid) -> tuple[float, float]:
    """Return the wall-clock seconds of a round, and those that the strategy takes."""
    start = perf_counter()
    messages = list(strategy.configure_train(1, arrays, ConfigRecord(), grid))
    asked = perf_counter()
    replies = list(grid.send_and_receive(messages, timeout=600))
    answered = perf_counter()
    result, _ = strategy.aggregate_train(1, replies)
    if result is None or len(replies) < CLIENTS or any(reply.has_error() for reply in replies):
        raise RuntimeError(f"{len(replies)} of {CLIENTS} clients answered, and no model came of it")
    end = perf_counter()
    return end - start, end - answered + asked - start


@server_app.main()
def time_rounds(grid: Grid, context: Context) -> None:
    """Run rounds, FedAvg's and guarded ones in turn, and write their seconds to a file."""
    everybody = {"min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}  # nodes join one by one
    guarded = Guarded(FedAvg(**everybody), defense=defenses.Snowball(grow_after=0))
    strategies = {"plain": FedAvg(**everybody), "guarded": guarded}
    arrays, seconds = ArrayRecord(build_network().state_dict()), {name: [] for name in strategies}
    for _ in range(ROUNDS):
        for name, strategy in strategies.items():
            seconds[name].append(time_round(strategy, arrays, grid))
    write_json(str(context.run_config["out"]), seconds)


def simulate_rounds(examples: int, epochs: int) -> dict[str, float]:
    """Run rounds in Flower's simulation, and return the medians of their seconds."""
    python_path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # its processes import this module
    with SimulationLink(WORKERS, {"PYTHONPATH": python_path}) as link:
        app, out, log = (link.folder / name for name in ("app", "seconds.json", "run.log"))
        app.mkdir()
        (app / "pyproject.toml").write_text(APP, encoding="utf-8")
        link.run_app(app, CLIENTS, {"examples": examples, "epochs": epochs, "out": str(out)}, log)
        seconds = read_json(out)
    (plain, own), (guarded, added) = (
        [median(column) for column in zip(*seconds[name][1:], strict=True)] for name in ("plain", "guarded")
    )
    return {"round_seconds": plain, "guarded_round_seconds": guarded, "guard_adds": (added - own) / plain}


def run() -> dict[str, Any]:
    """Measure every strategy."""
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # messages can only be made inside a task
    model = build_network()
    facts = {"clients": CLIENTS, "parameters": sum(parameter.numel() for parameter in model.parameters())}
    with use_one_thread():
        plain = time_aggregation(FedAvg(), model)
        cases: list[Case] = [make_case("FedAvg()", plain, plain, **facts)]
        for name, make in STRATEGIES.items():
            cases.append(make_case(name, time_aggregation(make(), model), plain, **facts))
            print(f"{name}: {cases[-1]['seconds'] / plain:.1f} times FedAvg", file=sys.stderr, flush=True)
        round_seconds = CLIENTS * time_training(model)
    for case in cases:
        case["share_of_round"] = case["seconds"] / (case["seconds"] + round_seconds)
    rounds = [{"name": name, **simulate_rounds(*training)} for name, training in TRAININGS.items()]
    machine = {**describe_machine(), "flwr": version("flwr")}
    return {"machine": machine, "training_seconds": round_seconds, "cases": cases, "simulated": rounds}


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

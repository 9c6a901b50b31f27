"""What a guard in front of Flower's FedAvg costs a server that gets 50 replies.

    .venv-flower/bin/python benchmarks/flower.py > benchmarks/results/flower.json

Timed is `aggregate_train` on Flower's own messages, with the paper's network for MNIST: FedAvg alone, and guarded. Next
to it stands the local training of the 50 clients, in a row. Seconds are the processor's, on one thread, the least of
several: other programs on the machine do not count.
"""

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from time import process_time
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.supercore.task_identity import TaskIdentity

from machine import describe
from snowball import defenses
from snowball.data import load
from snowball.integrations.flower import Guarded, GuardedFedAvg
from snowball.models import build
from snowball.rng import stream
from snowball.sim.client import Trainer
from snowball.sim.experiment import TrainingSettings
from timing import Case, make_case, one_thread

CLIENTS, REPEATS, EXAMPLES = 50, 7, 240
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "Guarded(FedAvg()), all elected": lambda: Guarded(FedAvg(), defense=defenses.FedAvg()),
    "Guarded(FedAvg()), Multi-Krum": lambda: Guarded(FedAvg(), defense=defenses.MultiKrum()),
    "Guarded(FedAvg()), Snowball": lambda: Guarded(FedAvg(), defense=defenses.Snowball(grow_after=0)),
    "GuardedFedAvg(), Snowball": lambda: GuardedFedAvg(defense=defenses.Snowball(grow_after=0)),
}


class Nodes:
    """As much of a grid as FedAvg asks for."""

    def get_node_ids(self) -> list[int]:
        """The clients."""
        return list(range(1, CLIENTS + 1))


def replies_to(messages: list[Message], model: torch.nn.Module) -> list[Message]:
    """What clients answer: the global model, a little moved."""
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


def least(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the processor, the least of several runs; the first, which warms up, is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return min(seconds)


def aggregation(strategy: Strategy, model: torch.nn.Module) -> float:
    """Seconds of a strategy's `aggregate_train`, rounds after the first."""
    arrays = ArrayRecord(model.state_dict())
    messages = list(strategy.configure_train(1, arrays, ConfigRecord(), Nodes()))
    replies = replies_to(messages, model)
    return least(lambda: strategy.aggregate_train(1, replies))


def training(model: torch.nn.Module) -> float:
    """Seconds of one client's local training: two epochs, as in the demo."""
    split = load("mnist-sample").train[torch.arange(EXAMPLES)]
    dataset = load("mnist-sample")
    trainer = Trainer(model, TrainingSettings(epochs=2))
    inputs = dataset.normalise(split.inputs)
    return least(lambda: trainer.train(inputs, split.labels, 0.001, stream(0, "training")), 2)


def run() -> dict[str, Any]:
    """Measure every strategy."""
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # messages can only be made inside a task
    dataset = load("mnist-sample")
    model = build("cnn", dataset.input_shape, dataset.classes, stream(0, "model"))
    facts = {"clients": CLIENTS, "parameters": sum(parameter.numel() for parameter in model.parameters())}
    with one_thread():
        plain = aggregation(FedAvg(), model)
        cases: list[Case] = [make_case("FedAvg()", plain, plain, **facts)]
        for name, make in STRATEGIES.items():
            cases.append(make_case(name, aggregation(make(), model), plain, **facts))
            print(f"{name}: {cases[-1]['seconds'] / plain:.1f} times FedAvg", file=sys.stderr, flush=True)
        round_seconds = CLIENTS * training(model)
    for case in cases:
        case["share_of_round"] = case["seconds"] / (case["seconds"] + round_seconds)
    return {"machine": {**describe(), "flwr": version("flwr")}, "training_seconds": round_seconds, "cases": cases}


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

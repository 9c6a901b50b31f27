"""A client, which trains on its share of the digits; the settings `backdoor` and `nan` make some malicious."""

import time

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from guarded.task import SEED, build_network, load_digits, take_share, train_model
from snowball.attacks import CBA, set_up_attack
from snowball.rng import stream

app = ClientApp()
State = dict[str, Tensor]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model and reply with the result."""
    config, client = context.run_config, int(context.node_config["partition-id"])
    dataset = load_digits()
    model, before = build_network(dataset), message.content["arrays"].to_torch_state_dict()
    model.load_state_dict(before)
    split = take_share(dataset, client, int(context.node_config["num-partitions"]), int(config["examples"]))
    if client in parse_numbers(config["backdoor"]):
        attack = CBA(poison_ratio=0.5)
        split = attack.poison(split, set_up_attack(attack, dataset), client, stream(SEED, "poison", client))
    rng = stream(SEED, "client", client, "round", int(message.content["config"]["server-round"]))
    loss = train_model(model, dataset, split, int(config["epochs"]), rng)
    sent = apply_behaviour(client, config, before, model.state_dict())
    metrics = MetricRecord({"num-examples": len(split), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(sent), "metrics": metrics}), reply_to=message)


def apply_behaviour(client: int, config: dict, before: State, after: State) -> State:
    """Return what a client sends instead of its trained model; an honest one sends the model."""
    if client in parse_numbers(config["slow"]):
        time.sleep(float(config["timeout"]))
    if client in parse_numbers(config["backdoor"]):
        return {name: before[name] + float(config["scale"]) * (after[name] - before[name]) for name in after}
    if client in parse_numbers(config["nan"]):
        return {name: tensor * float("nan") for name, tensor in after.items()}
    return after


def parse_numbers(numbers: object) -> set[int]:
    """Parse the numbers of a setting such as "0,3"."""
    return {int(number) for number in str(numbers).split(",") if number.strip()}

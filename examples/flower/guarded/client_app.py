"""A client: it trains on its part of the digits; by the settings `backdoor` and `nan` it is a malicious one."""

import time

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from guarded.task import SEED, digits, fit, network, part
from snowball.attacks import CBA, set_up_attack
from snowball.rng import stream

app = ClientApp()
State = dict[str, Tensor]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the global model, and answer with what came of it."""
    config, client = context.run_config, int(context.node_config["partition-id"])
    dataset = digits()
    model, before = network(dataset), message.content["arrays"].to_torch_state_dict()
    model.load_state_dict(before)
    split = part(dataset, client, int(context.node_config["num-partitions"]), int(config["examples"]))
    if client in listed(config["backdoor"]):
        attack = CBA(poison_ratio=0.5)
        split = attack.poison(split, set_up_attack(attack, dataset), client, stream(SEED, "poison", client))
    rng = stream(SEED, "client", client, "round", int(message.content["config"]["server-round"]))
    loss = fit(model, dataset, split, int(config["epochs"]), rng)
    sent = behave(client, config, before, model.state_dict())
    metrics = MetricRecord({"num-examples": len(split), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(sent), "metrics": metrics}), reply_to=message)


def behave(client: int, config: dict, before: State, after: State) -> State:
    """What a client sends of the model that it has trained."""
    if client in listed(config["slow"]):
        time.sleep(float(config["timeout"]))
    if client in listed(config["backdoor"]):
        return {name: before[name] + float(config["scale"]) * (after[name] - before[name]) for name in after}
    if client in listed(config["nan"]):
        return {name: tensor * float("nan") for name, tensor in after.items()}
    return after


def listed(numbers: object) -> set[int]:
    """The numbers of a setting such as "0,3"."""
    return {int(number) for number in str(numbers).split(",") if number.strip()}

"""The server: guarded FedAvg; a restarted server continues with the saved model and the guard's state."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import load_file, save_file

from guarded.task import build_network, load_digits, measure_accuracy
from snowball import defenses
from snowball.attacks import CBA, set_up_attack
from snowball.integrations.flower import Guarded
from snowball.records.files import append_line

app = ServerApp()

DEFENSES = {
    "snowball": defenses.Snowball(),  # needs about fifteen clients
    "multi-krum": defenses.MultiKrum(tolerate=1, elect=3),  # for five or more
    "none": defenses.FedAvg(),  # elects every valid reply
}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    out, nodes = Path(str(config["out"])).expanduser(), int(config["nodes"])
    out.mkdir(parents=True, exist_ok=True)
    strategy = Guarded(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes),
        defense=DEFENSES[str(config["defense"])],
        audit=out / "audit.jsonl",
        state=out / "guard.safetensors",
    )
    model = out / "model.safetensors"
    start = load_file(model) if model.exists() else build_network(load_digits()).state_dict()
    arrays = ArrayRecord(dict(start))
    rounds, timeout = int(config["rounds"]), float(config["timeout"])
    strategy.start(grid, arrays, rounds, timeout, evaluate_fn=lambda server_round, new: evaluate(new, out))


def evaluate(arrays: ArrayRecord, out: Path) -> MetricRecord:
    """Save the global model, and measure its accuracy and that of the backdoor."""
    dataset, attack = load_digits(), CBA()
    model, state = build_network(dataset), arrays.to_torch_state_dict()
    model.load_state_dict(state)
    save_file({name: torch.clone(tensor) for name, tensor in state.items()}, out / "model.safetensors")
    result = {
        "main_accuracy": measure_accuracy(model, dataset, dataset.test),
        "backdoor_accuracy": measure_accuracy(model, dataset, attack.probe(set_up_attack(attack, dataset))),
    }
    append_line(out / "accuracy.jsonl", result)
    return MetricRecord(result)

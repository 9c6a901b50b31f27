# Copyright (c) 2026, the Snowball contributors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The server: guarded FedAvg; a restarted server continues with the saved model and the guard's state."""

import json
import time
from collections import Counter
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from safetensors.torch import load_file, save_file

from guarded.client_app import read_consortium
from guarded.task import Network, measure_model
from snowball.defenses import DEFENSES
from snowball.integrations.flower import GuardedFedAvg
from snowball.records.files import append_line

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config, consortium = context.run_config, read_consortium(context)
    out, sites = Path(str(config["out"])).expanduser(), len(consortium.sizes)
    out.mkdir(parents=True, exist_ok=True)
    rounds, timeout = int(config["rounds"]), float(config["timeout"])
    write_names(out / "names.toml", ask_names(grid, sites, timeout))
    strategy = GuardedFedAvg(
        fraction_evaluate=0.0,
        min_train_nodes=sites,
        min_available_nodes=sites,
        defense=DEFENSES[str(config["defense"])](),
        max_examples=float(config["max-examples"]),
        audit=out / "audit.jsonl",
        names=out / "names.toml",
        state=out / "guard.safetensors",
    )
    model = out / "model.safetensors"
    start = load_file(model) if model.exists() else Network(consortium.seed).state_dict()
    strategy.start(grid, ArrayRecord(dict(start)), rounds, timeout, evaluate_fn=lambda _, new: evaluate(new, out))


def ask_names(grid: Grid, sites: int, timeout: float) -> dict[str, str]:
    """Wait for the sites and ask for their names, by id; in a real federation the operator writes this file."""
    end = time.monotonic() + timeout
    while len(nodes := sorted(grid.get_node_ids())) < sites and time.monotonic() < end:
        time.sleep(0.5)
    replies = grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes], timeout=timeout)
    known = [reply for reply in replies if reply.has_content()]
    names = {str(reply.metadata.src_node_id): str(reply.content["site"]["name"]) for reply in known}
    claims = Counter(names.values())
    return {node: name for node, name in names.items() if claims[name] == 1}  # a site may claim another's name


def write_names(path: Path, names: dict[str, str]) -> None:
    """Write the sites' names as a TOML file."""
    lines = [f"{json.dumps(node)} = {json.dumps(name)}\n" for node, name in sorted(names.items())]
    path.write_text("".join(["[sites]\n", *lines]), encoding="utf-8")


def evaluate(arrays: ArrayRecord, out: Path) -> MetricRecord:
    """Save the global model, and measure its accuracy and that of the backdoor."""
    state = arrays.to_torch_state_dict()
    save_file({name: torch.clone(tensor) for name, tensor in state.items()}, out / "model.safetensors")
    result = measure_model(state)
    append_line(out / "accuracy.jsonl", result)
    return MetricRecord(result)

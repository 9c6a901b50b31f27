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
"""Eight sites of unequal size, one of them hostile, and a guarded average: in NVFlare's simulator, or as a job."""

import argparse
from pathlib import Path
from typing import Any

import torch
from nvflare.app_opt.pt.job_config.model import PTModel
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.recipe import SimEnv
from task import BEHAVIOURS, measure_model, parse_numbers

from snowball.integrations.nvflare import GuardedAggregator, GuardedFedAvg

FOLDER = Path(__file__).parent
CLIENT, TASK = str(FOLDER / "client.py"), str(FOLDER / "task.py")


def parse_arguments() -> argparse.Namespace:
    """Parse the run's settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sizes", default="40,160,320,460,610,820,1100,3760", help="training images of each site")
    parser.add_argument("--hostile", default="6", help="numbers of the hostile sites, from 1")
    parser.add_argument("--behaviour", choices=BEHAVIOURS, default="scaled-backdoor", help="what they do")
    parser.add_argument("--seed", type=int, default=1, help="of the first model, the sites' images and the training")
    parser.add_argument("--defense", default="snowball-plus", help="a name from `snowball list defenses`")
    parser.add_argument("--max-examples", type=int, default=4000, help="a site that claims more is dropped")
    parser.add_argument("--controller", action="store_true", help="GuardedFedAvg instead of the recipe")
    parser.add_argument("--timeout", type=int, default=0, help="seconds per round; only with --controller")
    parser.add_argument("--workspace", default="runs/nvflare", help="each job has its own folder inside")
    parser.add_argument("--name", help="the job's name; by default the settings that differ between jobs")
    parser.add_argument("--write", help="write the job to this folder instead of running it")
    settings = parser.parse_args()
    settings.name = settings.name or "-".join(
        ["controller" if settings.controller else "recipe", settings.defense, settings.behaviour]
    )
    return settings


def describe_guard(settings: argparse.Namespace) -> dict[str, Any]:
    """Return the guard's settings."""
    files = {"audit": "audit.jsonl", "state": "guard.safetensors"}
    return {"defense": settings.defense, "max_examples": settings.max_examples, **files}


def describe_client(settings: argparse.Namespace) -> str:
    """Return the arguments of client.py."""
    hostile = f"--hostile {settings.hostile} " if settings.hostile else ""
    return f"--sizes {settings.sizes} {hostile}--behaviour {settings.behaviour} --seed {settings.seed}"


def build_recipe(settings: argparse.Namespace) -> FedAvgRecipe:
    """Build NVFlare's FedAvg recipe with a guarded aggregator."""
    recipe = FedAvgRecipe(
        name=settings.name,
        model={"class_path": "task.Network", "args": {"seed": settings.seed}},
        min_clients=len(parse_numbers(settings.sizes)),
        num_rounds=settings.rounds,
        train_script=CLIENT,
        train_args=describe_client(settings),
        aggregator=GuardedAggregator(**describe_guard(settings), rounds=settings.rounds),
    )
    recipe.add_server_file(TASK)
    recipe.add_client_file(TASK)
    return recipe


def build_job(settings: argparse.Namespace) -> FedJob:
    """Build a job with a guarded controller, which continues when a site fails."""
    sites = len(parse_numbers(settings.sizes))
    job = FedJob(settings.name, min_clients=sites // 2)  # with fewer alive, NVFlare ends the run
    job.to_server(PTModel({"path": "task.Network", "args": {"seed": settings.seed}}), id="persistor")
    job.to_server(GuardedFedAvg(sites, settings.rounds, timeout=settings.timeout, **describe_guard(settings)))
    job.add_file_to_server(TASK)
    job.to_clients(ScriptRunner(CLIENT, describe_client(settings)))
    job.add_file_to_clients(TASK)
    return job


def main() -> None:
    """Run the rounds and print the last model's accuracy, or write the job to a folder."""
    settings = parse_arguments()
    sites, workspace = len(parse_numbers(settings.sizes)), Path(settings.workspace).resolve()
    run = build_job(settings) if settings.controller else build_recipe(settings)
    if settings.write:
        (run.export_job if settings.controller else run.export)(settings.write)
        return
    if settings.controller:
        run.simulator_run(str(workspace / settings.name), n_clients=sites, threads=sites)
    else:
        run.execute(SimEnv(num_clients=sites, workspace_root=str(workspace)))
    server = workspace / settings.name / "server" / "simulate_job"
    saved = torch.load(server / "app_server" / "FL_global_model.pt", weights_only=True)
    print(f"{server}: {measure_model(saved['model'])}")  # noqa: T201


if __name__ == "__main__":
    main()

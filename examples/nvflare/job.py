"""Three sites, one of them hostile, and a guarded average: in NVFlare's simulator, or as a job to submit."""

import argparse
from pathlib import Path

from nvflare.app_opt.pt.job_config.model import PTModel
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner
from nvflare.recipe import SimEnv

from snowball.integrations.nvflare import GuardedAggregator, GuardedFedAvg

NETWORK = {"widths": [8, 16, 64], "input_shape": [1, 28, 28], "classes": 10}
GUARD = {
    "defense": "median",
    "audit": "audit.jsonl",
    "state": "guard.safetensors",
    "low_turnout": "aggregate",  # of three sites, two are left, and neither can outvote the other: have more
}
CLIENT = str(Path(__file__).with_name("client.py"))


def parse_arguments() -> argparse.Namespace:
    """Parse the run's settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--hostile", default="site-3")
    parser.add_argument("--behaviour", choices=("nan", "fail", "hang"), default="nan")
    parser.add_argument("--workspace", default="runs/nvflare")
    parser.add_argument("--controller", action="store_true", help="GuardedFedAvg instead of the recipe")
    parser.add_argument("--timeout", type=int, default=0, help="seconds per round; only with --controller")
    parser.add_argument("--write", help="write the job to this folder instead of running it")
    return parser.parse_args()


def build_recipe(settings: argparse.Namespace, client_settings: str) -> FedAvgRecipe:
    """Build NVFlare's FedAvg recipe with a guarded aggregator."""
    return FedAvgRecipe(
        name="guarded",
        model={"class_path": "snowball.models.cnn.CNN", "args": NETWORK},
        min_clients=settings.sites,
        num_rounds=settings.rounds,
        train_script=CLIENT,
        train_args=client_settings,
        aggregator=GuardedAggregator(**GUARD, rounds=settings.rounds),
    )


def build_job(settings: argparse.Namespace, client_settings: str) -> FedJob:
    """Build a job with a guarded controller, which continues when a site fails."""
    guarded = FedJob("guarded", min_clients=settings.sites - 1)  # with fewer alive, NVFlare ends the run
    guarded.to_server(PTModel({"path": "snowball.models.cnn.CNN", "args": NETWORK}), id="persistor")
    guarded.to_server(GuardedFedAvg(settings.sites, settings.rounds, timeout=settings.timeout, **GUARD))
    guarded.to_clients(ScriptRunner(CLIENT, client_settings))
    return guarded


def main() -> None:
    """Run the rounds, or write the job to a folder."""
    settings = parse_arguments()
    workspace = Path(settings.workspace).resolve()
    given = f"--sites {settings.sites} --hostile {settings.hostile} --behaviour {settings.behaviour}"
    run = build_job(settings, given) if settings.controller else build_recipe(settings, given)
    if settings.write:
        (run.export_job if settings.controller else run.export)(settings.write)
    elif settings.controller:
        run.simulator_run(str(workspace / run.name), n_clients=settings.sites, threads=settings.sites)
    else:
        run.execute(SimEnv(num_clients=settings.sites, workspace_root=str(workspace)))


if __name__ == "__main__":
    main()

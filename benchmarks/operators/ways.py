"""The ways to run a case: through Flower, through NVFlare, or in a plain loop."""

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.operators.cases import EXAMPLES, MAX_EXAMPLES, Case, task
from benchmarks.operators.record import Result, Run, name_site
from snowball.defenses import DEFENSES
from snowball.errors import RunError
from snowball.guard import Guard, Reply
from snowball.sim.engines.flower_link import SimulationLink


@contextmanager
def run_directly() -> Iterator[Run]:
    """Drive a guard in a plain loop."""
    torch.set_num_threads(1)
    yield run_loop


def run_loop(case: Case, folder: Path) -> Result:
    """Train the sites in turn, and let a guard judge what they send."""
    consortium, audit, sites = case.build_consortium(), folder / "audit.jsonl", range(1, len(case.sizes) + 1)
    guard = Guard(DEFENSES[case.defense](), max_examples=MAX_EXAMPLES, rounds=case.rounds, audit=audit)
    model = {name: tensor.clone() for name, tensor in task.Network(case.seed).state_dict().items()}
    for round in range(1, case.rounds + 1):
        sent = {site: consortium.train_site(site, round, model) for site in sites}
        replies = [Reply(name_site(site), case.sizes[site - 1], state) for site, state in sent.items() if state]
        model = guard(model, replies, asked=map(name_site, sites)).tensors
    return Result(model, audit)


@contextmanager
def run_through_flower() -> Iterator[Run]:
    """Run the app of examples/flower in Flower's simulation; all runs share a SuperLink."""
    with SimulationLink() as link:
        yield lambda case, folder: run_app(link, case, folder.resolve())


def run_app(link: SimulationLink, case: Case, folder: Path) -> Result:
    """Run the app with `flwr run`."""
    config = {
        "rounds": case.rounds,
        "sizes": join_numbers(case.sizes),
        "hostile": join_numbers(case.draw_hostile()),
        "behaviour": case.behaviour,
        "seed": case.seed,
        "defense": case.defense,
        "max-examples": MAX_EXAMPLES,
        "out": str(folder),
    }
    link.run_app(EXAMPLES / "flower", len(case.sizes), config, folder / "log")
    names = tomllib.loads((folder / "names.toml").read_text(encoding="utf-8"))["sites"]
    return Result(load_file(folder / "model.safetensors"), folder / "audit.jsonl", names)


@contextmanager
def run_through_nvflare() -> Iterator[Run]:
    """Run the job of examples/nvflare in NVFlare's simulator, which starts one process per site."""
    yield run_job


def run_job(case: Case, folder: Path) -> Result:
    """Run the job with the guarded controller, in a workspace that is removed afterwards."""
    options: dict[str, Any] = {
        "rounds": case.rounds,
        "sizes": join_numbers(case.sizes),
        "hostile": join_numbers(case.draw_hostile()),
        "behaviour": case.behaviour,
        "seed": case.seed,
        "defense": case.defense,
        "max-examples": MAX_EXAMPLES,
        "name": "job",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with TemporaryDirectory(ignore_cleanup_errors=True) as workspace, (folder / "log").open("wb") as log:
        command = [sys.executable, EXAMPLES / "nvflare" / "job.py", "--controller", *words, "--workspace", workspace]
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=workspace, check=False)
        if done.returncode:
            raise RunError(f"{case.name} failed in NVFlare: see {folder / 'log'}")
        server = Path(workspace) / "job" / "server" / "simulate_job"
        copy(server / "audit.jsonl", folder)
        saved = torch.load(server / "app_server" / "FL_global_model.pt", weights_only=True)
    return Result(saved["model"], folder / "audit.jsonl")


def join_numbers(numbers: tuple[int, ...]) -> str:
    """Return numbers as the examples' settings list them."""
    return ",".join(map(str, numbers))


WAYS: dict[str, Callable[[], AbstractContextManager[Run]]] = {
    "direct": run_directly,
    "flower": run_through_flower,
    "nvflare": run_through_nvflare,
}

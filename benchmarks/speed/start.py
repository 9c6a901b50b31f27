"""Times what users wait for before the first result, and weighs the report's page of one run.

    python -m benchmarks.speed.start > benchmarks/results/bench-start.json

The reference of every time is a process that only imports torch. The modules of all processes are compiled before, as
those of an installed package are. The page is that of the kept run with the most rounds; its reference is the most
bytes that it may have.
"""

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.timing import Case, make_case
from benchmarks.tables.packed import unpack_sweeps
from snowball.data import locate_dataset
from snowball.records.run import ROUNDS, RunFolder
from snowball.report import write_html
from snowball.sim.engines.processes import count_cores

PRESET = "paper/mnist"
REPEATS = 5
MAX_PAGE_BYTES = 2_000_000
"""The most bytes that the page of one run may have."""

TORCH = "import torch; print('started', flush=True)"
PROGRAMS = {
    "import snowball": "import snowball; print('started', flush=True)",
    "snowball --help": "from snowball.cli import main; print('started'); main()",
    "snowball list": "from snowball.cli import main; print('started'); main()",
}
"""Programs that are timed until they end."""

ARGUMENTS = {"snowball --help": ("--help",), "snowball list": ("list", "presets")}

STARTED = """
import os
from snowball.sim.engines import choice as engines

def train(*_):
    print("started", flush=True)
    os._exit(0)

def make(*given, made=engines.ENGINE_MAKERS["processes"]):
    engine = made(*given)
    from snowball.sim.engines.processes import ProcessEngine  # torch, which the fork server imports first
    ProcessEngine.train = train
    return engine

engines.ENGINE_MAKERS["processes"] = make
from snowball.cli import main
main()
"""
"""The command, but it ends before it trains the first cohort, when all workers wait for clients."""


def time_commands(quick: bool) -> list[Case]:
    """Time the import of the package and commands that compute nothing."""
    with TemporaryDirectory() as folder:
        measure = partial(time_fastest_start, Path(folder), 2 if quick else REPEATS)
        reference = measure(TORCH)
        return [
            make_case(name, measure(program, *ARGUMENTS.get(name, ()), to_end=True), reference)
            for name, program in PROGRAMS.items()
        ]


def time_first_step(quick: bool) -> Case:
    """Time `snowball run` until it trains its first client."""
    data = "mnist-sample" if locate_dataset("mnist") is None else "mnist"
    with TemporaryDirectory() as folder:
        measure = partial(time_fastest_start, Path(folder), 2 if quick else REPEATS)
        command = ["run", PRESET, "--set", f"data.name={data}", "--out", str(Path(folder) / "run"), "--overwrite"]
        return make_case("start-up", measure(STARTED, *command), measure(TORCH), data=data, workers=count_cores())


def time_fastest_start(folder: Path, repeats: int, program: str, *arguments: str, to_end: bool = False) -> float:
    """Return the seconds of the fastest of several starts, after one that compiles the modules into a folder."""
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)
    starts = [time_until_ready(program, *arguments, environment=compiled, to_end=to_end) for _ in range(repeats + 1)]
    return min(starts[1:])


def time_until_ready(
    program: str, *arguments: str, environment: dict[str, str] | None = None, to_end: bool = False
) -> float:
    """Return the seconds from the start of a program in a new process until it says that it has started, or ends."""
    start = perf_counter()
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        said = any(line.strip() == "started" for line in process.stdout)
        if to_end:
            process.communicate()
        seconds = perf_counter() - start
    if not said:
        raise RuntimeError(f"{' '.join(arguments) or program} ended with exit code {process.returncode} too early")
    return seconds


def weigh_page() -> Case:
    """Weigh the page of the kept run with the most rounds."""
    with TemporaryDirectory() as folder:
        runs = unpack_sweeps(Path(folder) / "runs")
        longest = max(runs.glob(f"*/{ROUNDS}"), key=lambda file: (file.read_bytes().count(b"\n"), file.parent.name))
        page, run = Path(folder) / "page.html", RunFolder.open(longest.parent)
        write_html([run], page)
        size = page.stat().st_size
        return {"name": "page", "bytes": size, "ratio": MAX_PAGE_BYTES / size, "rounds": len(run.read_rounds())}


def run(quick: bool) -> dict[str, Any]:
    """Run every case."""
    return {"machine": describe_machine(), "cases": [*time_commands(quick), time_first_step(quick), weigh_page()]}


def main() -> None:
    """Print the cases as JSON."""
    parser = argparse.ArgumentParser(description="Time what comes before the first result.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    print(json.dumps(run(parser.parse_args().quick), indent=1))


if __name__ == "__main__":
    main()

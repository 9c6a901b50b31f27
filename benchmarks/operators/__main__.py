"""Runs the consortium of the examples with every hostile behaviour, and prints whether the guard holds.

    python -m benchmarks.operators direct --out runs/operators --seeds 1 2 3 4 5
    .venv-flower/bin/python -m benchmarks.operators flower --out runs/operators --seeds 1 2 3 4 5
    .venv-nvflare/bin/python -m benchmarks.operators nvflare --out runs/operators --seeds 1 2 3 4 5
    python -m benchmarks.operators report --out runs/operators
    python -m benchmarks.operators report --out runs/operators --json > benchmarks/results/operators.json

Each run writes one record, `OUT/WAY/BEHAVIOUR-HOSTILE-sSEED.json`; a call that is stopped continues with the next run
that has none. `flower` runs the app in examples/flower with `flwr run`, `nvflare` the job in examples/nvflare in
NVFlare's simulator, and `direct` drives a guard in a plain loop. The sites train alike in all three.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.operators.cases import BEHAVIOURS, list_cases
from benchmarks.operators.record import is_recorded, record_run
from benchmarks.operators.report import print_report
from benchmarks.operators.ways import WAYS
from snowball.errors import RunError


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__.partition("\n")[0])
    parser.add_argument("way", choices=(*WAYS, "report"))
    parser.add_argument("--out", type=Path, default=Path("runs/operators"), help="folder for the records")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--behaviours", nargs="+", choices=BEHAVIOURS, default=list(BEHAVIOURS))
    parser.add_argument(
        "--hostile", type=int, nargs="+", choices=(1, 2), default=[1, 2], help="numbers of hostile sites"
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--defense", default="snowball-plus", help="a name from `snowball list defenses`")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args()


def main() -> int:
    """Make the runs that have no record, or print the report."""
    settings = parse_arguments()
    if settings.way == "report":
        return print_report(settings.out, settings.json)
    cases = list_cases(settings.seeds, settings.behaviours, settings.hostile, settings.rounds, settings.defense)
    missing = [case for case in cases if not is_recorded(settings.out / settings.way, case)]
    print(f"{len(missing)} of {len(cases)} runs to make", file=sys.stderr, flush=True)
    with WAYS[settings.way]() as run:
        for case in missing:
            record = record_run(run, case, settings.way, settings.out / settings.way)
            measured = " ".join(f"{name}={record[name]:.3f}" for name in ("main_accuracy", "backdoor_accuracy"))
            print(f"{case.name}: {measured}, {record['seconds']:.0f} s", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunError as error:
        print(error, file=sys.stderr)
        sys.exit(2)

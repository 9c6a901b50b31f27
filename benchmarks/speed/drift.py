"""Checks whether a newer measurement is slower than an older one, by the ratios of cases with the same name.

    python -m benchmarks.speed.drift OLD.json NEW.json

It compares ratios, not seconds, because ratios carry over from one machine to another. Exit code 1 means that a ratio
fell by more than a fifth, 2 that the files cannot be compared.
"""

import json
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from snowball.errors import DataError

TOLERATED = 0.2
"""The share of its ratio that a case may lose."""


class Drift(NamedTuple):
    """A case's ratio, before and now."""

    name: str
    old: float
    new: float

    @property
    def change(self) -> float:
        """The gain, as a share of the old ratio."""
        return self.new / self.old - 1

    @property
    def is_slower(self) -> bool:
        """Whether the case lost more than is tolerated."""
        return self.change < -TOLERATED


def read_ratios(path: Path) -> dict[str, float]:
    """Read the ratio of each case that has one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        ratios = {case["name"]: case["ratio"] for case in content["cases"] if case["ratio"] is not None}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is not a result of `snowball bench`: {type(error).__name__}, {error}") from error
    for name, ratio in ratios.items():
        if type(ratio) not in (int, float) or not isfinite(ratio) or ratio <= 0:
            raise DataError(f"{path} has the ratio {str(ratio)[:40]!r} for {name!r}, which is no positive number")
    return ratios


def compare_ratios(old: Path, new: Path) -> list[Drift]:
    """Return the cases that both files have, in the order of the newer one."""
    before, now = read_ratios(old), read_ratios(new)
    common = [Drift(name, before[name], ratio) for name, ratio in now.items() if name in before]
    if not common:
        counts = f"{len(before)} and {len(now)}"
        raise DataError(f"{old} and {new} have {counts} cases with a ratio, and none of the same name")
    return common


def format_drifts(drifts: Sequence[Drift]) -> str:
    """Format the comparison for people, and mark the cases that lost too much."""
    width = max(len("case"), *(len(drift.name) for drift in drifts)) + 2
    lines = [f"{'case':<{width}}{'old':>10}{'new':>10}{'change':>9}"]
    for drift in drifts:
        flag = "  SLOWER" if drift.is_slower else ""
        lines.append(f"{drift.name:<{width}}{drift.old:>10.4g}{drift.new:>10.4g}{drift.change:>+9.1%}{flag}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Compare two files, and return the exit code."""
    try:
        if len(arguments) != 2:
            raise DataError(f"two files are compared, OLD.json and NEW.json, and {len(arguments)} were named")
        drifts = compare_ratios(*map(Path, arguments))
    except DataError as error:
        print(f"drift: {error}", file=sys.stderr)
        return 2
    print(format_drifts(drifts))
    return int(any(drift.is_slower for drift in drifts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

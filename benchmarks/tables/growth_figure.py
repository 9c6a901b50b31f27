"""Draws docs/growth.svg from benchmarks/results/growth.json: measured points, and the slope between the last two.

python -m benchmarks.tables.growth_figure
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from benchmarks.files import ROOT, read_result
from snowball.report.export.matplotlib import render_figure
from snowball.report.figures import Figure, Panel, Point, Series

PANELS = {
    "clients of a round": {"training": "clients {} train", "elections": "clients {} defense"},
    "parameters": {"elections and mean of 20 rows": "parameters {}"},
}
"""The contents of each panel, by the names of the cases."""


def make_figure(cases: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot seconds by size, in logarithms."""
    panels = tuple(
        Panel(title, tuple(make_series(name, cases, pattern) for name, pattern in lines.items()))
        for title, lines in PANELS.items()
    )
    return Figure("lines", "How time grows", "", "seconds", "seconds", "s", panels, logarithmic=("x", "y"))


def make_series(name: str, cases: Sequence[Mapping[str, Any]], pattern: str) -> Series:
    """Make a series of the cases that match a pattern, with the exponent between the last two."""
    points = [(case["size"], case["seconds"]) for case in cases if case["name"] == pattern.format(int(case["size"]))]
    (x0, y0), (x1, y1) = points[-2:]
    exponent = log(y1 / y0) / log(x1 / x0)
    return Series(f"{name}, exponent {exponent:.2f}", tuple(Point(x, y) for x, y in points))


def main() -> None:
    """Write the figure."""
    measured = read_result("growth")
    (ROOT / "docs" / "growth.svg").write_bytes(render_figure(make_figure(measured["cases"])))


if __name__ == "__main__":
    main()

"""Draws docs/growth.svg from benchmarks/results/growth.json: measured points, and the slope between the last two.

python benchmarks/growth_figure.py
"""

import json
from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT, MARGIN = 380, 300, 56
COLOURS = ("#2a6fb0", "#c8553d", "#3c8d5a")

Point = tuple[float, float]
Lines = Mapping[str, Sequence[Point]]

PANELS = {
    "clients of a round": {"training, s": "clients {} train", "elections, s": "clients {} defense"},
    "parameters": {"elections and mean of 20 rows, s": "parameters {}"},
}
"""What is drawn in each panel, by the names of the cases."""


class Axes:
    """A panel with logarithmic axes, from one power of ten to another."""

    def __init__(self, lines: Lines, left: float) -> None:
        points = [point for line in lines.values() for point in line]
        self.low = [floor(log10(min(point[axis] for point in points))) for axis in (0, 1)]
        self.high = [max(ceil(log10(max(point[axis] for point in points))), self.low[axis] + 1) for axis in (0, 1)]
        self.left = left

    def place(self, point: Point) -> Point:
        """Where a point is drawn."""
        share = [(log10(point[axis]) - self.low[axis]) / (self.high[axis] - self.low[axis]) for axis in (0, 1)]
        return self.left + MARGIN + share[0] * (WIDTH - MARGIN - 20), HEIGHT - MARGIN - share[1] * (HEIGHT - 2 * MARGIN)

    def grid(self) -> str:
        """A line and a label for every power of ten."""
        parts = []
        for power in range(self.low[0], self.high[0] + 1):
            (x, low), (_, high) = self.place((10.0**power, 10.0 ** self.low[1])), self.place((1, 10.0 ** self.high[1]))
            parts.append(f'<path class="grid" d="M{x:.1f} {low:.1f}V{high:.1f}"/>{text(x, low + 18, power_of(power))}')
        for power in range(self.low[1], self.high[1] + 1):
            (left, y), (right, _) = (
                self.place((10.0 ** self.low[0], 10.0**power)),
                self.place((10.0 ** self.high[0], 1)),
            )
            parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
            parts.append(text(left - 8, y + 4, power_of(power), "end"))
        return "".join(parts)


def power_of(power: int) -> str:
    """A power of ten for people."""
    return f"{10**power:,}" if 0 <= power < 4 else f"10<tspan dy='-5' font-size='9'>{power}</tspan>"


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "") -> str:
    """Words at a place."""
    style = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{words}</text>'


def slope(line: Sequence[Point]) -> float:
    """The exponent between the last two points."""
    (x0, y0), (x1, y1) = line[-2:]
    return log10(y1 / y0) / log10(x1 / x0)


def panel(title: str, lines: Lines, left: float) -> str:
    """Some lines, their points and exponents."""
    axes = Axes(lines, left)
    parts = [axes.grid(), text(left + (WIDTH + MARGIN) / 2, HEIGHT - 12, title)]
    for number, ((name, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
        places = [axes.place(point) for point in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
        parts.append(text(left + MARGIN, 18 + 18 * number, f"{name}: exponent {slope(line):.2f}", "start", colour))
    return "".join(parts)


def series(cases: Sequence[Mapping[str, float]], pattern: str) -> list[Point]:
    """The points of a line."""
    return [(case["size"], case["seconds"]) for case in cases if case["name"] == pattern.format(int(case["size"]))]


def main() -> None:
    """Write the figure."""
    cases = json.loads((ROOT / "benchmarks" / "results" / "growth.json").read_text(encoding="utf-8"))["cases"]
    drawn = {
        title: {name: series(cases, pattern) for name, pattern in lines.items()} for title, lines in PANELS.items()
    }
    panels = "".join(panel(title, lines, number * WIDTH) for number, (title, lines) in enumerate(drawn.items()))
    style = "text{font:12px sans-serif;fill:#444}.grid{stroke:#ddd}"
    size = f'viewBox="0 0 {WIDTH * len(drawn)} {HEIGHT}"'
    paper = '<rect width="100%" height="100%" fill="white"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{paper}{panels}</svg>\n'
    (ROOT / "docs" / "growth.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()

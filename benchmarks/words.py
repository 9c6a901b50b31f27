"""What the tables of the documentation are made with: results by name, numbers in words, Markdown."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def result(name: str) -> Any:
    """What a benchmark measured."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def number(value: float | None) -> str:
    """Three digits, and all digits of large numbers."""
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(value: float) -> str:
    """A fraction for people."""
    return f"{100 * value:.1f}"

"""Locates the files that benchmarks read and write: results by name, and the rounds stored for the tests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
GOLDEN = ROOT / "tests" / "golden" / "rounds.safetensors"


def read_result(name: str) -> Any:
    """Read a benchmark's result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def shorten_numbers(value: Any) -> Any:
    """Return plain JSON with six digits per number."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: shorten_numbers(each) for name, each in value.items()}
    return [shorten_numbers(each) for each in value] if isinstance(value, list) else value

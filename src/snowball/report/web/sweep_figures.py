"""Figures of sweeps for the page's script: columns of numbers, and the indices of the runs behind each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowball.report.figures import Figure, Series, find_heat_top
from snowball.report.palette import choose_look
from snowball.report.sweeps import Sweep
from snowball.report.web.html import round_numbers


def build_figure_payload(figure: Figure, sweep: Sweep, indices: Mapping[Path, int]) -> dict[str, Any]:
    """Build the data of a sweep's figure; `indices` are those of the runs' folders on the page."""
    found = {run.name: indices[run.folder.resolve()] for run in sweep.runs if run.folder.resolve() in indices}
    return _encode_figure(figure, found)


def _encode_figure(figure: Figure, indices: Mapping[str, int]) -> dict[str, Any]:
    return {
        "kind": figure.kind,
        "title": figure.title,
        "x": figure.x,
        "y": figure.y,
        "value": figure.value,
        "unit": figure.unit,
        "unfinished": figure.unfinished,
        "logarithmic": figure.logarithmic,
        "top": round_numbers(find_heat_top(figure)),
        "tones": _choose_bar_tones(figure),
        "spread": any(point.spread for panel in figure.panels for series in panel.series for point in series.points),
        "panels": [
            {"title": panel.title, "series": [_encode_series(series, indices) for series in panel.series]}
            for panel in figure.panels
        ],
    }


def _choose_bar_tones(figure: Figure) -> dict[str, str]:
    """Return the colours of bars that stand for defenses, by their names."""
    if not figure.defenses:
        return {}
    points = (point for panel in figure.panels for series in panel.series for point in series.points)
    return {str(point.x): choose_look(str(point.x)).tone for point in points}


def _encode_series(series: Series, indices: Mapping[str, int]) -> dict[str, Any]:
    look = choose_look(series.name)
    return {
        "name": series.name,
        "tone": look.tone,
        "dash": look.dash,
        "x": [round_numbers(point.x) for point in series.points],
        "y": [round_numbers(point.y) for point in series.points],
        "spread": [round_numbers(point.spread) for point in series.points],
        "runs": [[indices[name] for name in point.runs if name in indices] for point in series.points],
        "missing": [point.missing for point in series.points],
    }

"""Figures of sweeps as the page's script takes them: columns of numbers, and the runs behind each by their places."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snowball.report.figures import Figure, Series
from snowball.report.sweeps import Sweep
from snowball.report.web.html import round_numbers


def build_figure_payload(figure: Figure, sweep: Sweep, places: Mapping[Path, int]) -> dict[str, Any]:
    """The figure of a sweep; `places` are where runs' folders are in the page's catalogue."""
    found = {run.name: places[run.folder.resolve()] for run in sweep.runs if run.folder.resolve() in places}
    return _encode_figure(figure, found)


def _encode_figure(figure: Figure, places: Mapping[str, int]) -> dict[str, Any]:
    return {
        "kind": figure.kind,
        "title": figure.title,
        "x": figure.x,
        "y": figure.y,
        "value": figure.value,
        "unit": figure.unit,
        "unfinished": figure.unfinished,
        "logarithmic": figure.logarithmic,
        "panels": [
            {"title": panel.title, "series": [_encode_series(series, places) for series in panel.series]}
            for panel in figure.panels
        ],
    }


def _encode_series(series: Series, places: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": series.name,
        "x": [round_numbers(point.x) for point in series.points],
        "y": [round_numbers(point.y) for point in series.points],
        "spread": [round_numbers(point.spread) for point in series.points],
        "runs": [[places[name] for name in point.runs if name in places] for point in series.points],
        "missing": [point.missing for point in series.points],
    }

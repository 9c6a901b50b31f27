"""What sets runs apart from the paper's: settings that its presets give and that a run has otherwise."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from snowball.records.presets import describe_presets, read_preset
from snowball.records.run import RunFolder, RunInfo
from snowball.records.sweep import COORDINATES
from snowball.report.audit import escape_text
from snowball.report.data import COMPLETE
from snowball.report.prose import join_names
from snowball.report.runs import ABSENT, read_setting_name
from snowball.settings import flatten_settings

DEFAULTS: dict[str, Any] = {
    "data.examples": None,
    "data.tokeniser": "words",
    "attack.draw": "exact",
    "attack.first_round": 1,
    "attack.last_round": None,
    "attack.share_of_rounds": 1,
}
"""What the presets leave as it is by default, and every attack has."""

SAMPLES = "samples of the data set"

MAX_VALUE_CHARS = 60
"""Characters of a value."""


@dataclass(frozen=True)
class Difference:
    """A setting that some runs have otherwise than the paper: for which data, and what either has."""

    setting: str
    data: str
    paper: str
    here: str


def find_differences(runs: Iterable[tuple[RunFolder, Collection[str]]]) -> list[Difference]:
    """The settings that differ; with each run come the paths that its sweep varies, as the paper may."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for folder, varied in runs:
        data, own = (
            read_setting_name(folder.run, "data"),
            {**flatten_settings(folder.run.get("settings", {})), **_describe_samples(folder.run)},
        )
        for path, value in read_paper_settings(data, read_setting_name(folder.run, "defense")).items():
            if path in own and path not in (*COORDINATES, *varied) and own[path] != value:
                found.setdefault((path, _format_value(value), _format_value(own[path])), {})[data] = None
    return [
        Difference(path, join_names(list(data)), paper, here) for (path, paper, here), data in sorted(found.items())
    ]


def _describe_samples(run: RunInfo) -> dict[str, str]:
    """Whether the data set was there as a whole, of runs that record it."""
    complete = run.get("data", {}).get("complete")
    return {SAMPLES: COMPLETE[complete]} if isinstance(complete, bool) else {}


@cache
def read_paper_settings(data: str, defense: str) -> Mapping[str, Any]:
    """Read the settings of the paper's preset for this data set; those of a defense come from its own section."""
    if (preset := f"paper/{data}") not in describe_presets():
        return {}
    settings = read_preset(preset, {})  # none of the paper's presets changes a choice of the one that it extends
    peers = settings.pop("peers", {})
    if settings["defense"]["name"] != defense:
        settings["defense"] = peers.get(defense, {})
    return DEFAULTS | {SAMPLES: COMPLETE[True]} | flatten_settings(settings)


def _format_value(value: Any) -> str:
    return (
        ABSENT
        if value is None
        else escape_text(value if isinstance(value, str) else json.dumps(value), MAX_VALUE_CHARS)
    )

"""The settings in which runs differ from the paper's presets."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from snowball.records.presets import describe_presets, read_preset
from snowball.records.run import RunFolder, RunInfo
from snowball.records.sweep import COORDINATES
from snowball.records.text import escape_text
from snowball.report.data import COMPLETE
from snowball.report.prose import join_names
from snowball.report.runs import ABSENT, read_setting_name
from snowball.settings import flatten_settings

DEFAULTS: dict[str, Any] = {
    "data.examples": None,
    "data.tokeniser": "words",
    "model.start": None,
    "attack.draw": "exact",
    "attack.first_round": 1,
    "attack.last_round": None,
    "attack.in_rounds": [],
    "attack.share_of_rounds": 1,
    "defense.before": [],
    "faults.dropped": 0,
    "faults.slow": 0,
    "faults.duplicated": 0,
    "faults.corrupted": 0,
    "faults.killed": 0,
}
"""The defaults that the presets do not state; a test compares them with the experiment's."""

SAMPLES = "samples of the data set"

MAX_VALUE_CHARS = 60
"""The most characters of a value that are shown."""


@dataclass(frozen=True)
class Difference:
    """A setting in which some runs differ from the paper: the data sets, the paper's value and theirs."""

    setting: str
    data: str
    paper: str
    here: str


def find_differences(runs: Iterable[tuple[RunFolder, Collection[str]]]) -> list[Difference]:
    """Find the settings that differ; each run comes with the paths that its sweep varies, which are not compared."""
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
    """Say whether the data set was complete, if the run records it."""
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

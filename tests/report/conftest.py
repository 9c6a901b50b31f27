"""Two made-up runs that look like real ones: 20 rounds, 50 participants, 10 of them infected.

Made-up sweeps are in sweeps_made.py, which tests import by name.
"""

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snowball.records.audit import LATER_FIELDS
from snowball.records.rounds import RoundRecord, compute_error_rates
from snowball.records.run import RunFolder
from snowball.rng import numpy_stream

sys.path.insert(0, str(Path(__file__).parent))

PARTICIPANTS, INFECTED, ROUNDS = 50, 10, 20


def fedavg_round(number: int) -> RoundRecord:
    return fake_round("fedavg", number, np.ones(PARTICIPANTS, bool), {})


def snowball_round(number: int) -> RoundRecord:
    """An election that is fooled once, early on, and never again."""
    draw = numpy_stream(0, "snowball", number)
    malicious = infected(number)
    votes = np.where(malicious, draw.normal(6, 3, PARTICIPANTS), draw.normal(20, 5, PARTICIPANTS)).clip(0)
    votes[np.flatnonzero(malicious)[: int(number == 2)]] = 29.5
    ranking = votes.argsort()[::-1]
    order = np.full(PARTICIPANTS, -1)
    order[ranking[:6]] = 0
    order[ranking[6:30]] = np.arange(1, 25)
    score = np.where(order == 0, None, draw.normal(0, 1, PARTICIPANTS).round(4) - (order < 0))
    facts = {
        "votes": votes.tolist(),
        "votes.fc1.weight": (votes / 2).tolist(),
        "clarity.fc1.weight": draw.gamma(2, 8, PARTICIPANTS).tolist(),
        "order": order.tolist(),
        "score": score.tolist(),
        "margin": np.where(order > 0, draw.gamma(1, 0.1, PARTICIPANTS), None).tolist(),
        "clusters": 3,
    }
    return fake_round("snowball", number, order >= 0, facts)


def infected(number: int) -> np.ndarray:
    positions = numpy_stream(0, "infected", number).permutation(PARTICIPANTS)[:INFECTED]
    return np.isin(np.arange(PARTICIPANTS), positions)


def fake_round(name: str, number: int, elected: np.ndarray, facts: RoundRecord) -> RoundRecord:
    draw = numpy_stream(0, name, number, "common")
    malicious = infected(number)
    places = draw.normal(0, 1, (PARTICIPANTS, 2)) * np.where(malicious, 0.35, 1)[:, None]
    places[malicious] += np.array([3.0, 1.2])
    progress = 1 - np.exp(-number / 4)
    backdoor = 0.97 * (1 - np.exp(-number / 3)) if name == "fedavg" else 0.02 + 0.1 * np.exp(-((number - 3) ** 2) / 2)
    false_positive_rate, false_negative_rate = compute_error_rates(malicious, elected)
    return {
        "round": number,
        "participants": [f"client-{identity:03}" for identity in draw.choice(200, PARTICIPANTS, replace=False)],
        "malicious": malicious.tolist(),
        "elected": elected.tolist(),
        "main_accuracy": 0.1 + 0.8 * progress + draw.normal(0, 0.008),
        "backdoor_accuracy": float(backdoor + abs(draw.normal(0, 0.006))),
        "false_positive_rate": false_positive_rate,
        "false_negative_rate": false_negative_rate,
        "seconds": {
            "train": draw.normal(4, 0.3),
            "defense": 0.05 if name == "fedavg" else draw.normal(0.9, 0.1),
            "evaluate": draw.normal(0.6, 0.05),
        },
        "facts": facts,
        "map": places.tolist(),
    }


MAKERS: dict[str, Callable[[int], RoundRecord]] = {"fedavg": fedavg_round, "snowball": snowball_round}


def make_run(folder: Path, defense: str, rounds: int = ROUNDS, **changes: object) -> RunFolder:
    """A finished run of some rounds, each with these fields changed."""
    run = RunFolder.create(folder, {"settings": {"defense": {"name": defense}, "attack": "badnets"}, "seed": 0})
    for number in range(1, rounds + 1):
        run.append(MAKERS[defense](number) | changes)
    run.write_summary()
    return run


@pytest.fixture(name="make_run")
def give_make_run() -> Callable[..., RunFolder]:
    return make_run


@pytest.fixture
def two_runs(tmp_path: Path) -> list[RunFolder]:
    return [make_run(tmp_path / name, name) for name in MAKERS]


def make_entry(number: int, **changes: Any) -> dict[str, Any]:
    """A line of an audit of an earlier version: a round that nobody has a part in, but for these changes."""
    entry: dict[str, Any] = {
        "round": number, "time": "2026-01-01T00:00:00+00:00", "mode": "enforce", "outcome": "aggregated",
        "reason": None, "asked": None, "answered": [], "silent": [], "dropped": [], "elected": [], "left_out": [],
        "averaged": [], "facts": {}, "model_before": "", "model_after": "",
    }  # fmt: skip
    return LATER_FIELDS | entry | changes


@pytest.fixture(name="make_entry")
def give_make_entry() -> Callable[..., dict[str, Any]]:
    return make_entry


class Outline(HTMLParser):
    """A page's tags with their attributes, and the text of each script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data

"""What a tracker is, and what trackers share."""

import json
from hashlib import sha256
from typing import Protocol

from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.records.summary import Summary
from snowball.settings import flatten_settings


class Tracker(Protocol):
    """Follows one run: it is started once, logs every round, and is finished in any case."""

    def start(self, folder: RunFolder) -> None:
        """Begin, or continue if `folder.read_rounds()` has rounds; `folder.run` holds the settings."""

    def log(self, record: RoundRecord) -> None:
        """Log a round that is on disk."""

    def finish(self, summary: Summary | None) -> None:
        """End with the run's summary, or with None if the run stopped early."""


def select_numbers(record: RoundRecord) -> dict[str, float]:
    """Return a round's numbers by name, e.g. `seconds.train`; `elected` and `dropped` are counts."""
    counts = {"elected": sum(record["elected"]), "dropped": len(record.get("dropped", {}))}
    numbers = flatten_settings({**record, **counts})
    return {name: value for name, value in numbers.items() if type(value) in (int, float) and name != "round"}


def identify_run(folder: RunFolder) -> str:
    """Return an id that a run keeps when it is resumed or gets more rounds, and loses when it is overwritten."""
    settings = {name: value for name, value in folder.run.get("settings", {}).items() if name != "rounds"}
    content = json.dumps([folder.path.name, folder.run | {"settings": settings}], sort_keys=True)
    return sha256(content.encode()).hexdigest()[:16]

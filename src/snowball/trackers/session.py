"""Trackers at work: a run goes on if one of them fails."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger

from snowball.errors import RunError, describe_error
from snowball.records.rounds import RoundRecord
from snowball.records.run import RunFolder
from snowball.trackers.base import Tracker

logger = getLogger("snowball")


class TrackedRun:
    """Passes what happens in a run to its trackers; one that raises is left out from then on, with one warning."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self.trackers = dict(trackers)

    def log(self, record: RoundRecord) -> None:
        """Log a round."""
        self._call_all(lambda tracker: tracker.log(record), f"in round {record['round']}")

    def _call_all(self, call: Callable[[Tracker], None], when: str) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                call(tracker)
            except Exception as error:
                del self.trackers[name]
                reason = describe_error(error)
                logger.warning("tracker %r failed %s, the run continues without it: %s", name, when, reason)


@contextmanager
def track_run(trackers: Mapping[str, Tracker], folder: RunFolder) -> Iterator[TrackedRun]:
    """Start the trackers, and finish them when the run ends or stops; one that cannot start is an error."""
    tracked = TrackedRun({})
    try:
        for name, tracker in trackers.items():
            try:
                tracker.start(folder)
            except Exception as error:
                advice = "resume the run without it"
                raise RunError(f"tracker {name!r} cannot start: {describe_error(error)}; {advice}") from error
            tracked.trackers[name] = tracker
        yield tracked
    finally:
        summary = folder.read_summary()
        tracked._call_all(lambda tracker: tracker.finish(summary), "at the end")

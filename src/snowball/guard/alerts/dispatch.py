"""Passes a federation's events to its listeners; none of them can end a round."""

from collections.abc import Sequence
from logging import INFO, WARNING, getLogger

from snowball.errors import SettingError, SnowballError
from snowball.guard.alerts.events import Event, Listener, Streaks, find_events
from snowball.guard.reply import describe_error
from snowball.records.audit import JudgedRound
from snowball.records.text import escape_text

logger = getLogger("snowball")

MAX_ERROR_CHARS = 300
"""Longest error in a warning or a message."""


def log_event(event: Event) -> None:
    """Log an event under `snowball`: a round for information, everything else as a warning."""
    logger.log(INFO if event.kind == "round" else WARNING, "%s", event.message)


class Alerts:
    """The listeners of a guard, and how many rounds in a row each client has been suspect or malformed.

    Attributes:
        listeners: get every event, after the log.
        patience: the rounds in a row after which a client is an alert, once per streak.
    """

    def __init__(self, listeners: Sequence[Listener] = (), patience: int = 3) -> None:
        if type(patience) is not int or patience < 1:
            raise SettingError(f"patience must be a whole number from 1, got {ascii(patience)[:60]}")
        self.listeners, self.patience = tuple(listeners), patience
        self.streaks: Streaks = {}

    def report_round(self, entry: JudgedRound) -> None:
        """Report a judged round: the round itself, and what else there is to say about it."""
        events, self.streaks = find_events(entry, self.streaks, self.patience)
        for event in events:
            self.send(event)

    def report_unsaved(self, entry: JudgedRound, content: str, error: Exception) -> None:
        """Report that something of a round, e.g. "the guard's state", could not be written."""
        message = f"Round {entry['round']}: {content} is not saved: {explain_error(error)}"
        self.send(Event("not-saved", entry["round"], None, message, entry))

    def send(self, event: Event) -> None:
        """Pass an event to the log and to every listener; one that raises is a warning."""
        for listener in (log_event, *self.listeners):
            try:
                listener(event)
            except Exception as error:
                name, reason = name_listener(listener), explain_error(error)
                logger.warning("Round %d: the listener %s failed: %s", event.round, name, reason)


def name_listener(listener: Listener) -> str:
    """Return the name of a function, also of one that has settings, or of an object's class."""
    return str(getattr(getattr(listener, "func", listener), "__name__", type(listener).__name__))


def explain_error(error: Exception) -> str:
    """Return one bounded line about an error; only our own errors already are sentences."""
    said = str(error) if isinstance(error, SnowballError) else describe_error(error)
    return escape_text(said, MAX_ERROR_CHARS)

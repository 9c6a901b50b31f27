"""Bookkeeping that the integrations share: the file of a guard's state."""

from logging import Logger
from pathlib import Path

from snowball.guard import Guard
from snowball.records.audit import JudgedRound


def resume_guard(guard: Guard, state: Path | None, logger: Logger) -> None:
    """Let a guard continue from its state file, if there is one."""
    if state is not None and guard.load(state):
        logger.info("The guard continues after round %d, from %s", guard.round, state)


def save_state(guard: Guard, state: Path | None, entry: JudgedRound) -> None:
    """Save the guard's state after a round; a file that cannot be written is an alert."""
    try:
        if state is not None:
            guard.save(state)
    except Exception as error:  # the federation matters more than its files
        guard.alerts.report_unsaved(entry, "the guard's state", error)

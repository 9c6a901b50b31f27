"""Bookkeeping that the integrations share: the file of a guard's state, and one log line per round."""

from logging import Logger
from pathlib import Path

from snowball.guard import Guard
from snowball.records.audit import JudgedRound, count_clients


def resume_guard(guard: Guard, state: Path | None, logger: Logger) -> None:
    """Let a guard continue from its state file, if there is one."""
    if state is not None and guard.load(state):
        logger.info("The guard continues after round %d, from %s", guard.round, state)


def finish_round(guard: Guard, state: Path | None, entry: JudgedRound, logger: Logger) -> None:
    """Save the guard's state and log the round; a file that cannot be written is a warning."""
    try:
        if state is not None:
            guard.save(state)
    except Exception as error:  # the federation matters more than its files
        logger.warning("The guard's state after round %d is not saved: %s", entry["round"], error)
    logger.info("guard: round %d, %s: %s", entry["round"], entry["outcome"], count_clients(entry))

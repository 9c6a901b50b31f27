"""The command line. A command imports what it needs when it runs: `snowball --help` loads no torch."""

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import typer

from snowball.cli import audits, checks, lists, rehearsals, reports, results, runs, states, sweeps, triggers
from snowball.cli.application import app
from snowball.errors import SnowballError, bound_sentence
from snowball.registry import IMPORT_FOLDERS

__all__ = [
    "app",
    "audits",
    "checks",
    "lists",
    "main",
    "rehearsals",
    "reports",
    "results",
    "runs",
    "states",
    "sweeps",
    "triggers",
]

MAX_PATH_CHARS = 200
"""Longer paths are cut at their end."""

OUT_OF_MEMORY = "can't allocate memory"
"""In the message of torch's error on a tensor that does not fit."""


def main() -> None:
    """Run the command `snowball`; an error that the user can fix is one line and exit code 2."""
    IMPORT_FOLDERS[:] = ["."]  # for module:Class
    prepare_streams()
    try:
        app()
    except SnowballError as error:
        exit_with(str(error))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            exit_with("the disk is full; all files are intact: make room, then continue with --resume")
        if error.filename is None:
            raise
        exit_with(f"{str(error.filename)[:MAX_PATH_CHARS]} cannot be used: {error.strerror}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and OUT_OF_MEMORY not in str(error):
            raise
        exit_with(
            "there is not enough memory: try a smaller model, cohort or setting of the defense, or fewer --workers"
        )


def prepare_streams() -> None:
    """Escape characters that the terminal's encoding does not have, and drop what is printed to a closed stream."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def exit_with(sentence: str) -> NoReturn:
    """Print an error in one line and exit."""
    typer.echo(f"snowball: {bound_sentence(sentence)}", err=True)
    sys.exit(2)

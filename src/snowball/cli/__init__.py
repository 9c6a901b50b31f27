"""The command line. A command imports what it needs when it runs: `snowball --help` loads no torch."""

import errno
import sys
from typing import NoReturn

import typer

from snowball.cli import audits, checks, lists, reports, runs, sweeps, triggers
from snowball.cli.application import app
from snowball.errors import SnowballError
from snowball.registry import IMPORT_FOLDERS

__all__ = ["app", "audits", "checks", "lists", "main", "reports", "runs", "sweeps", "triggers"]

MAX_PATH_CHARS = 200
"""Longer paths are cut in messages."""


def main() -> None:
    """Run the command `snowball`; an error that the user can fix is one line and exit code 2."""
    IMPORT_FOLDERS[:] = ["."]  # for module:Class
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


def exit_with(sentence: str) -> NoReturn:
    """Print an error and exit."""
    typer.echo(f"snowball: {sentence}", err=True)
    sys.exit(2)

"""The command line. Nothing heavy is imported before a command needs it: `snowball --help` loads no torch."""

import errno
import sys
from typing import NoReturn

import typer

from snowball.cli import audits, checks, lists, reports, runs, sweeps
from snowball.cli.application import app
from snowball.errors import SnowballError
from snowball.registry import IMPORT_FOLDERS

__all__ = ["app", "audits", "checks", "lists", "main", "reports", "runs", "sweeps"]

SHOWN = 200
"""Characters of a file's name that are said."""


def main() -> None:
    """The command `snowball`: what a user can fix is one line and exit code 2."""
    IMPORT_FOLDERS[:] = ["."]  # where people write the module that they name as module:Class
    try:
        app()
    except SnowballError as error:
        fail(str(error))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            fail("the disk is full; what is on it is whole: make room, then go on with --resume")
        if error.filename is None:
            raise
        fail(f"{str(error.filename)[:SHOWN]} cannot be used: {error.strerror}")


def fail(sentence: str) -> NoReturn:
    """Say what the user can fix, and leave."""
    typer.echo(f"snowball: {sentence}", err=True)
    sys.exit(2)

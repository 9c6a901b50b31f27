"""The application that commands register with, and options and functions that several commands share."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from snowball.cli.stopping import exit_stopped, stop_on_signals

if TYPE_CHECKING:
    from rich.table import Table

TABLE_CHARS = 180
"""Width of the table that has one row per run."""

COMMAND_ORDER = (
    "demo", "run", "sweep", "rehearse", "report", "results", "audit", "guard-state", "list", "bench", "doctor", "data",
    "show",
)  # fmt: skip

Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page that works offline; - prints it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Commands(TyperGroup):
    """Lists commands in the order in which people need them, and ends on Ctrl-C or a signal without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands' names."""
        return sorted(super().list_commands(ctx), key=COMMAND_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            with stop_on_signals():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            exit_stopped("run the same command to start again")


app = typer.Typer(
    cls=Commands,
    help="Keep backdoors out of federated learning: client updates elect each other.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def show_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        from importlib import metadata

        typer.echo(f"snowball {metadata.version('snowball-fl')}")
        raise typer.Exit


@app.callback()
def handle_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Accept the options that come before a command."""


def is_standard_output(html: Path | None) -> bool:
    """Return whether a page goes to the standard output."""
    return html == Path("-")


def free_standard_output(html: Path | None) -> AbstractContextManager[Any]:
    """Send what is printed to the error output if a page needs the standard output."""
    return redirect_stdout(sys.stderr) if is_standard_output(html) else nullcontext()


def build_table(lines: Sequence[Sequence[str]]) -> "Table":
    """Build a table from rows of untrusted text; the first row is the header."""
    from rich.table import Column, Table
    from rich.text import Text

    from snowball.records.text import escape_text
    from snowball.report.sweeps import MAX_SENTENCE_CHARS

    header, *rows = ([Text(escape_text(cell, MAX_SENTENCE_CHARS)) for cell in cells] for cells in lines)
    result = Table(*(Column(name, overflow="fold") for name in header))  # what is cut cannot be copied
    for row in rows:
        result.add_row(*row)
    return result

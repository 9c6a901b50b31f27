"""The application that commands register with, and what several of them use."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.table import Table

STOPPED = 130
"""Exit code after Ctrl-C, as shells have it."""

WIDE = 180
"""Characters that the table of runs needs for a row a run."""

ORDER = ("demo", "run", "sweep", "report", "audit", "list", "bench", "doctor", "data", "show")

Out = Annotated[Path | None, typer.Option(help="Folder for the results.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Commands(TyperGroup):
    """Commands in the order in which people need them, which Ctrl-C stops in words."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("stopped; the same command starts again", err=True)
            raise typer.Exit(STOPPED) from None


app = typer.Typer(
    cls=Commands,
    help="Keep backdoors out of federated learning: client updates elect each other.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def show_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        from importlib import metadata

        typer.echo(f"snowball {metadata.version('snowball-fl')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def grid(lines: Sequence[Sequence[str]]) -> "Table":
    """Lines of cells as a table, the first as its head; nothing in them is markup."""
    from rich.markup import escape
    from rich.table import Table

    result = Table(*map(escape, lines[0]))
    for cells in lines[1:]:
        result.add_row(*map(escape, cells))
    return result

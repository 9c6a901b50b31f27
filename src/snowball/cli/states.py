"""The command `guard-state`: shows the state of a guard, and empties its defense's memory."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snowball.cli.application import Json, app

if TYPE_CHECKING:
    from snowball.guard.state import GuardState

MAX_SHOWN_MODELS = 10
"""Number of last models that are printed."""


@app.command("guard-state")
def inspect_state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A guard's state (safetensors).")],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Empty the defense's memory, for another defense; round and seed stay.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show which round, defense and version a guard's state is of."""
    from snowball.guard.state import forget_memory, read_state, write_state

    state = read_state(file, restore=fresh)
    if fresh:
        state = forget_memory(state)
        write_state(file, state)
    show_state(state, as_json)
    if fresh:
        typer.echo(f"Any defense can start from {file} now.", err=as_json)


def show_state(state: "GuardState", as_json: bool) -> None:
    """Print a state without its secret seed and the defense's numbers."""
    from snowball.records.text import escape_text

    if as_json:
        shown = {name: value for name, value in state.plain().items() if name not in ("seed", "defense", "layout")}
        typer.echo(json.dumps({**shown, "memory": state.defense is not None}, indent=2))
        return
    settings = ", ".join(f"{name}={value!r}" for name, value in state.settings.items())
    defense = f"{state.method or 'any defense'}{f' with {settings}' if settings else ''}"
    memory = "its memory" if state.defense is not None else "no memory yet"
    written = f"version {state.version}" if state.version else "a version that did not say which"
    typer.echo(escape_text(f"round {state.round} of {defense}, with {memory}, written by {written}", 1000))
    for round, digest in state.models[-MAX_SHOWN_MODELS:]:
        typer.echo(escape_text(f"model after round {round}: {digest}", 200))

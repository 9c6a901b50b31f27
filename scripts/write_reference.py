"""Write the reference pages that the code knows best: settings of defenses, attacks and experiments, and the commands.

    python scripts/write_reference.py FOLDER

`make docs` runs this before the site is built. The pages are not committed.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined
from typer.main import get_command
from typer.testing import CliRunner

from snowball.attacks import ATTACKS
from snowball.cli import app
from snowball.defenses import DEFENSES
from snowball.settings import collect_fields
from snowball.sim.experiment import SECTIONS, Experiment

Row = tuple[str, ...]


def main(folder: Path) -> None:
    """Write every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "defense-settings": write_choices("Settings of the defenses", "defense", DEFENSES),
        "attack-settings": write_choices("Settings of the attacks", "attack", ATTACKS),
        "experiment-settings": write_experiment(),
        "command-line": write_commands(),
    }
    for name, lines in pages.items():
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_choices(title: str, section: str, registry: Mapping[str, Callable[..., Any]]) -> Iterator[str]:
    """Yield the page on everything that one section of an experiment can choose by name."""
    yield from (f"# {title}", "")
    yield f"Set these in the `[{section}]` section of a TOML file, or with `--set {section}.NAME=VALUE`."
    for name, chosen in registry.items():
        summary = (inspect.getdoc(chosen) or "").partition("\n")[0]
        yield from ("", f"## {name}", "", f"`snowball.{section}s.{chosen.__name__}`: {summary}")
        yield from (f"[More](../{section}s/{name}.md).", "")
        rows = list(list_settings(chosen))
        yield from write_table(("setting", "type", "default", "meaning"), rows) if rows else ("It has no settings.",)


def list_settings(chosen: Callable[..., Any], prefix: str = "") -> Iterator[Row]:
    """Yield name, type, default and meaning of every setting; those of a group carry the group's name."""
    meanings = read_meanings(chosen)
    for name, (kind, default) in collect_fields(chosen).items():
        if is_dataclass(kind):
            yield from list_settings(kind, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield f"`{prefix}{name}`", describe_type(kind), describe_default(default), meanings.get(name, "")


def read_meanings(chosen: Callable[..., Any]) -> dict[str, str]:
    """Read what the docstrings of a class and of its bases say about each attribute."""
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(chosen) if inspect.isclass(chosen) else (chosen,)):
        _, _, listed = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found


def write_experiment() -> Iterator[str]:
    """Yield the page on the settings that every experiment has."""
    yield from (
        "# Settings of an experiment",
        "",
        "Further settings belong to the chosen [defense](defense-settings.md),",
    )
    yield from ("[attack](attack-settings.md) and [partition](../data.md).", "", "## Experiment", "")
    columns = ("setting", "type", "default")
    own = {name: field for name, field in Experiment.model_fields.items() if name not in SECTIONS}
    yield from write_table(columns, (describe_field(name, field) for name, field in own.items()))
    for section, model in SECTIONS.items():
        yield from ("", f"## {section}", "", (inspect.getdoc(model) or "").partition("\n")[0], "")
        fields = ((f"{section}.{name}", field) for name, field in model.model_fields.items())
        yield from write_table(columns, (describe_field(name, field) for name, field in fields))


def describe_field(name: str, field: Any) -> Row:
    """Return name, type and default of a field of an experiment."""
    default = ... if field.default is PydanticUndefined else field.default
    return f"`{name}`", describe_type(field.annotation), describe_default(default)


def describe_type(kind: Any) -> str:
    """Return a type as a reader of TOML knows it."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is NoneType:
        return "none"
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(describe_type, parts)))
    if origin is tuple:
        return f"list of {describe_type(parts[0])}"
    names = {int: "integer", float: "number", str: "text", bool: "true or false"}
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def describe_default(default: Any) -> str:
    """Return a default as it is written in TOML."""
    if default is ...:
        return "required"
    if default is None:
        return "none"
    if isinstance(default, tuple):
        return f"`[{', '.join(str(part) for part in default)}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def write_commands() -> Iterator[str]:
    """Yield the page on the command line: what `--help` prints for every command."""
    yield "# Command line"
    for path in list_commands(get_command(app)):
        shown = CliRunner(env={"TERMINAL_WIDTH": "100"}).invoke(app, [*path, "--help"], prog_name="snowball")
        yield from ("", f"## {' '.join(['snowball', *path])}", "", "```text", shown.output.strip(), "```")


def list_commands(command: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of a command and of every command below it."""
    yield ()
    for name in command.list_commands(None) if hasattr(command, "commands") else ():
        yield from ((name, *path) for path in list_commands(command.commands[name]))


def write_table(columns: Row, rows: Iterable[Row]) -> Iterator[str]:
    """Yield a Markdown table."""
    for cells in (columns, ("---",) * len(columns), *rows):
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))

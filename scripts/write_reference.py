"""Write the reference pages that the code knows best: settings of defenses, attacks and experiments, and the commands.

    python scripts/write_reference.py FOLDER

`make docs` runs this before the site is built. The pages are not committed.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from snowball.attacks import ATTACKS
from snowball.cli import app
from snowball.defenses import DEFENSES
from snowball.setting_docs import SettingInfo, describe_choice
from snowball.sim.experiment import SECTIONS, Experiment, describe_settings

Row = tuple[str, ...]

COLUMNS = ("setting", "type", "default", "meaning")


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
        rows = [format_setting(setting) for setting in describe_choice(chosen, registry)]
        yield from write_table(COLUMNS, rows) if rows else ("It has no settings.",)


def format_setting(setting: SettingInfo) -> Row:
    """Return name, type, default and meaning of a setting as Markdown."""
    required = "required" if setting.default is ... else "none" if setting.default is None else ""
    default = required or f"`{json.dumps(setting.default)}`"
    return f"`{setting.name}`", setting.type, default, setting.meaning


def write_experiment() -> Iterator[str]:
    """Yield the page on the settings that every experiment has."""
    yield from (
        "# Settings of an experiment",
        "",
        "Further settings belong to the chosen [defense](defense-settings.md),",
    )
    yield "[attack](attack-settings.md) and [partition](../data.md)."
    for section, settings in describe_settings().items():
        model = SECTIONS.get(section, Experiment)
        yield from ("", f"## {section or 'Experiment'}", "", (inspect.getdoc(model) or "").partition("\n")[0], "")
        yield from write_table(COLUMNS, map(format_setting, settings))


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

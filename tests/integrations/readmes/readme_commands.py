"""Reads the commands of a README, so that tests run what it tells people to type."""

import shlex
from pathlib import Path

INDENT = "    "


def read_commands(readme: Path) -> list[str]:
    """Return the indented lines of a README; a backslash at the end of a line joins it with the next."""
    lines = [line for line in readme.read_text(encoding="utf-8").splitlines() if line.startswith(INDENT)]
    return [line.strip() for line in "\n".join(lines).replace("\\\n", " ").splitlines()]


def find_command(readme: Path, start: str) -> list[str]:
    """Return the words of the first command that starts like this."""
    found = next((command for command in read_commands(readme) if command.startswith(start)), None)
    assert found, f"{readme} has no command that starts with {start!r}"
    return shlex.split(found)

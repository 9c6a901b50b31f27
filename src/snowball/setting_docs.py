"""What settings are: the type, default and meaning of each, read from classes and functions and their docstrings."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from snowball.settings import Section, Table, collect_fields, holds_parts

SECTION = re.compile(r"^(?:Attributes|Args):\n((?: {4}.*\n?|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)

TYPE_NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", dict: "table", NoneType: "none"}
"""Types in the words of a reader of TOML."""


@dataclass(frozen=True)
class SettingInfo:
    """What is known about a setting.

    Attributes:
        type: in the words of a reader of TOML.
        default: as plain JSON; `...` if the setting is required.
        meaning: one sentence from the docstring; empty if it has none.
    """

    name: str
    type: str
    default: Any
    meaning: str

    def plain(self) -> dict[str, Any]:
        """Return all but the name as plain JSON; a required setting has no default."""
        shown = asdict(self)
        return {key: shown[key] for key in ("type", "default", "meaning") if shown[key] is not ...}


def describe_choice(chosen: Callable[..., Any], table: Table | None = None, prefix: str = "") -> Iterator[SettingInfo]:
    """Describe the settings of an entry of a table; the settings of a group start with the group's name."""
    meanings = read_meanings(chosen)
    for name, (kind, default) in collect_fields(chosen).items():
        if is_dataclass(kind):
            yield from describe_choice(kind, table, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            shown = [name_part(part, table or {}) for part in default] if holds_parts(kind) else default
            yield SettingInfo(f"{prefix}{name}", describe_type(kind), make_plain(shown), meanings.get(name, ""))


def describe_section(section: type[Section], prefix: str = "") -> Iterator[SettingInfo]:
    """Describe the settings that a section always has."""
    meanings = read_meanings(section)
    for name, field in section.model_fields.items():
        default = ... if field.default is PydanticUndefined else make_plain(field.default)
        yield SettingInfo(f"{prefix}{name}", describe_type(field.annotation), default, meanings.get(name, ""))


def read_meanings(described: Callable[..., Any]) -> dict[str, str]:
    """Read what docstrings say about each attribute or argument: those of a class and its bases, or of a function."""
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(described) if inspect.isclass(described) else (described,)):
        for listed in SECTION.findall(inspect.cleandoc(base.__doc__ or "")):
            for names, text in ENTRY.findall(listed):
                found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def describe_type(kind: Any) -> str:
    """Return a type in the words of a reader of TOML."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(json.dumps, parts))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(describe_type, parts)))
    if origin is tuple:
        return f"list of {describe_type(parts[0])}"
    return TYPE_NAMES.get(origin or kind) or str(getattr(kind, "__name__", kind)).lower()


def name_part(part: Any, table: Table) -> str:
    """Return the name of an instance of one of a table's entries."""
    return next((name for name, entry in table.items() if entry is type(part)), type(part).__name__)


def make_plain(default: Any) -> Any:
    """Return a default as plain JSON; `...` stays."""
    return default if default is ... else json.loads(json.dumps(default, default=str))

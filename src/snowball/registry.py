"""Registries: what settings choose by name.

A name is one of ours, one that an installed package adds by an entry point, or `module:attribute`, which is imported.
"""

import importlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cached_property, reduce
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from snowball.errors import SettingError

Entry = TypeVar("Entry")

OWN_NAME = "own"
"""The name, in settings, of data and of a model that a caller gives as Python objects."""

IMPORT_PATH = re.compile(r"(\w+(?:\.\w+)*):(\w+(?:\.\w+)*)")

IMPORT_FOLDERS: list[str] = []
"""Folders to search for `module:attribute` after `sys.path`; the command line adds the working folder."""


class Registry(MutableMapping[str, Entry]):
    """Entries by name: ours, then those that installed packages add to an entry-point group; none can replace ours.

    Packages are imported when the registry is first read: they import their base classes from here, in either order.
    `module:attribute` is imported when it is looked up, and is not listed.

    Attributes:
        group: the entry-point group, e.g. `snowball.defenses`.
        required_attributes: attributes that an entry from elsewhere must have.
        adapt: turns an object from elsewhere and its name into an entry, or refuses it with a `SettingError`.
    """

    def __init__(
        self,
        group: str,
        own_entries: Mapping[str, Entry],
        required_attributes: tuple[str, ...] = (),
        adapt: Callable[[str, Any], Entry] = lambda name, found: found,
    ) -> None:
        self.group, self.own_entries = group, own_entries
        self.required_attributes, self.adapt = required_attributes, adapt
        self._imported: dict[str, Entry] = {}

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """All listed entries by name, ours first."""
        found = dict(self.own_entries)
        for point in entry_points(group=self.group):
            if point.name not in found:
                origin = f"{point.value}, which an installed package adds to {self.group} as {point.name!r},"
                found[point.name] = self._load(point.name, point.value, origin)
        return found

    def _load(self, name: str, path: str, origin: str) -> Entry:
        try:
            entry = self.adapt(name, import_attribute(path))
            if missing := [each for each in self.required_attributes if not has_attribute(entry, each)]:
                raise SettingError(f"it has no {', '.join(missing)}")
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise SettingError(f"{origin} cannot be used: {reason}") from error
        return entry

    def __getitem__(self, name: str) -> Entry:
        if ":" not in name:
            return self.entries[name]
        if name not in self._imported:
            folders = [str(Path(folder).absolute()) for folder in IMPORT_FOLDERS]
            sys.path += [folder for folder in folders if folder not in sys.path]
            kind = self.group.rpartition(".")[2].removesuffix("s")
            self._imported[name] = self._load(name, name, f"{kind} {name!r}")
        return self._imported[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self.entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def import_attribute(path: str) -> Any:
    """Import `package.module:attribute`."""
    if not (match := IMPORT_PATH.fullmatch(path)):
        raise SettingError("expected module:name, with the module as an import statement has it, e.g. my.module:Name")
    return reduce(getattr, match[2].split("."), importlib.import_module(match[1]))


def has_attribute(entry: Any, name: str) -> bool:
    """Whether an entry has an attribute; for a class, whether its instances will have it."""
    if not isinstance(entry, type):
        return hasattr(entry, name)
    return name in dir(entry) or name in getattr(entry, "__dataclass_fields__", {})  # a metaclass has __call__, too


def require_dataclass(name: str, found: Any) -> Any:
    """Refuse what is not a dataclass: its fields are its settings."""
    if not (isinstance(found, type) and is_dataclass(found)):
        raise SettingError("it is not a dataclass")
    return found


def require_function(name: str, found: Any) -> Any:
    """Refuse what is not a function."""
    if not isinstance(found, FunctionType):
        raise SettingError("it is not a function")
    return found


def make_instance(name: str, found: Any) -> Any:
    """Make an instance of a class; return anything else as it is."""
    return found() if isinstance(found, type) else found


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'tolerate'?` if a known name is close, else an empty string."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def suggest_or_list(name: str, known: Collection[str]) -> str:
    """Return what may have been meant, or else all known names."""
    return suggest_name(name, known) or f"; there are {', '.join(known)}"

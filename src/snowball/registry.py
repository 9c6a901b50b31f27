"""Tables of things that are chosen by name, to which other packages may add."""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import entry_points
from typing import TypeVar

from snowball.errors import SettingError

Entry = TypeVar("Entry")


class OpenTable(MutableMapping[str, Entry]):
    """What is here by name, and what other packages name in an entry-point group; no name of ours can be taken.

    Theirs is loaded when the table is first looked at: it imports what it is made of from here, and it must not matter
    which of the two is imported first.
    """

    def __init__(self, group: str, ours: Mapping[str, Entry], needs: tuple[str, ...] = ()) -> None:
        self.group, self.ours, self.needs = group, ours, needs

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """All of them by name, ours first."""
        found = dict(self.ours)
        for entry in entry_points(group=self.group):
            if entry.name not in found:
                try:
                    found[entry.name] = self._complete(entry.load())
                except Exception as error:
                    reason = " ".join(str(error).split()) or type(error).__name__
                    raise SettingError(
                        f"{entry.value}, which an installed package adds to {self.group} as {entry.name!r}, "
                        f"cannot be used: {reason}"
                    ) from error
        return found

    def _complete(self, entry: Entry) -> Entry:
        lacking = [name for name in self.needs if not hasattr(entry, name)]
        if lacking:
            raise SettingError(f"it has no {', '.join(lacking)}")
        return entry

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self.entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'tolerate'?`, where something is close."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def hint(name: str, known: Collection[str]) -> str:
    """What may have been meant, or else all that there is."""
    return suggestion(name, known) or f"; there are {', '.join(known)}"

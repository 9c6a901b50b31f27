"""The operator's names of sites: a TOML file maps the framework's ids to them.

[sites]
"12345678901234567890" = "Aachen"
"""

from collections.abc import Iterable, Mapping
from typing import Any

from snowball.errors import SettingError
from snowball.guard.watched_file import check_text

MAX_NAME_CHARS = 100
"""Longest name or id in the file."""

TABLE = "sites"
"""The file's only table."""

Names = Mapping[str, str]
"""Names by id."""


def parse_names(content: Mapping[str, Any]) -> Names:
    """Return the names in a file; refuse one in which they are not unique texts."""
    sites = content.get(TABLE)
    if set(content) != {TABLE} or not isinstance(sites, Mapping):
        raise SettingError(f'names go into one table [{TABLE}], with lines such as "12345" = "Aachen"')
    ids: dict[str, str] = {}
    for client, name in sites.items():
        check_text(client, "an id", MAX_NAME_CHARS)
        check_text(name, f"the name of {client!r}", MAX_NAME_CHARS)
        if name in ids:
            raise SettingError(f"{name!r} names both {ids[name]!r} and {client!r}: keep the id that is in use")
        ids[name] = client
    return dict(sites)


def find_renames(before: Names, now: Names) -> dict[str, str]:
    """Return the new name of each site that gets one, by the name or id that it had before.

    A name that was in use stays where it is: only its id is another.
    """
    used = set(before.values())
    return {before.get(client, client): name for client, name in now.items() if name not in used and name != client}


def name_clients(names: Names, ids: Iterable[str]) -> Names:
    """Return the name of each of a round's ids: no two have the same.

    An id that is not in the file is its own name, unless it is a site's name there: then it gets another one.
    """
    found, taken = {}, set(names.values())
    for client in sorted(set(ids), key=lambda client: (client in taken, client)):
        name = client
        if client in names:
            name = names[client]
        else:
            while name in taken:
                name += " (an unknown id)"
            taken.add(name)
        found[client] = name
    return found

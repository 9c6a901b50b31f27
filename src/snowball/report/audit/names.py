"""The names of clients: an operator's names, the framework's ids, and what a user may type for either."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from snowball.errors import SettingError
from snowball.records.audit import AuditEntry
from snowball.records.text import escape_text
from snowball.registry import suggest_name

MAX_CLIENT_CHARS = 100
"""The most characters of a client's name or id that are shown: a guard takes no longer ones from an operator."""

LISTS = ("asked", "answered", "silent", "elected", "left_out", "suspects", "averaged")


def unify_names(entries: Sequence[AuditEntry]) -> Sequence[AuditEntry]:
    """Return the rounds with the operator's names also where a client was still listed by its id.

    An id that is also a site's name means that site: a stranger may have chosen it.
    """
    taken = {name for entry in entries for name in entry["ids"]}
    names = {id: name for entry in entries for name, id in entry["ids"].items() if id not in taken}
    if not names:
        return entries
    return [_rename_clients(entry, names) if names.keys() & list_names(entry) else entry for entry in entries]


def list_names(entry: AuditEntry) -> set[str]:
    """Return all clients that a round names, as it names them."""
    faults = (fault["client"] for fault in entry["dropped"])
    return set(chain(faults, *(cast(Mapping[str, Any], entry)[field] or () for field in LISTS)))


def _rename_clients(entry: AuditEntry, names: Mapping[str, str]) -> AuditEntry:
    """Return a round in which clients listed by these ids have their names."""

    def rename(clients: Iterable[str]) -> list[str]:
        return [names.get(client, client) for client in clients]

    def rename_keys(values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(rename(values), values.values(), strict=True))

    own: dict[str, Any] = dict(entry)
    lists = {field: rename(own[field]) for field in LISTS if own[field] is not None}
    tables = {
        field: [{**each, "client": names.get(each["client"], each["client"])} for each in own[field]]
        for field in ("dropped", "decisions")
    }
    facts = {name: rename_keys(fact) if isinstance(fact, dict) else fact for name, fact in own["facts"].items()}
    ids = {names[id]: id for id in names.keys() & list_names(entry)}
    changed = {"facts": facts, "shares": rename_keys(own["shares"]), "ids": {**own["ids"], **ids}}
    return cast(AuditEntry, {**own, **lists, **tables, **changed})


def find_client(text: str, clients: Collection[str], ids: Mapping[str, Collection[str]]) -> str:
    """Return the client that a user means by its name, by its id, or by its name as it is shown."""
    if text in clients:
        return text
    by_id = {id: client for client, own in ids.items() for id in own}
    shown = {write_name(client): client for client in clients}
    if found := by_id.get(text) or shown.get(text):
        return found
    near = suggest_name(text, [*shown, *map(write_name, by_id)])
    raise SettingError(f"{write_name(text)!r} is not a client of this audit, which has {len(clients)}{near}")


def write_name(client: str) -> str:
    """Write a client's name or id, whole unless it is very long, so that it can be copied."""
    return escape_text(client, MAX_CLIENT_CHARS)


def write_client(client: str, ids: Sequence[str]) -> str:
    """Write a client's name with its id, the latest if it had several."""
    return f"{write_name(client)} ({write_name(ids[-1])})" if ids else write_name(client)

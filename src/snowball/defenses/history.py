"""The rows that defenses with a memory keep for each client from round to round."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snowball.arrays import FLOATS
from snowball.defenses.base import Context, State
from snowball.errors import RunError, SettingError
from snowball.products import BLOCK_ELEMENTS, sum_products
from snowball.rng import derive

Entry = Mapping[str, Any]
"""The record of one client; "round" is the last round in which it was seen."""

Entries = Mapping[str, Entry]
"""Records by client id."""

MAX_REMEMBERED_CLIENTS = 512
"""The default number of clients to remember: just under 1 GiB for the paper's FEMNIST updates."""

MAX_BARRED_CLIENTS = 10_000
"""The most clients that stay barred: whoever may join under new ids could otherwise fill the memory."""

MAX_SHOWN_CHARS = 60
"""Maximum characters of a client's id in an error."""

MAX_STATE_NUMBER = torch.finfo(torch.float32).max
"""Largest number in a state: products and sums of such numbers do not overflow in float64."""


def keep_recent(entries: Entries, context: Context, forget_after: int | None, remember: int | None) -> dict[str, Entry]:
    """Return the entries to keep: the `remember` clients seen last, unless they missed too many rounds in a row.

    Among clients last seen in the same round, a hash keyed with the seed decides, so no client can choose an id that
    is certain to be kept.
    """
    kept = {
        client: entry
        for client, entry in entries.items()
        if forget_after is None or context.round - entry["round"] < forget_after
    }
    if remember is None:
        return kept

    def rank(client: str) -> tuple[int, int]:
        round: int = kept[client]["round"]
        return -round, derive(context.seed, "defense", "forget", round, client)

    latest = set(sorted(kept, key=rank)[:remember])
    return {client: entry for client, entry in kept.items() if client in latest}


def extend_barred(known: Iterable[str], found: Iterable[str], context: Context) -> list[str]:
    """Return the barred clients, sorted, with those found in this round.

    Beyond `MAX_BARRED_CLIENTS`, a hash keyed with the seed decides which of the former ones are forgotten.
    """
    latest = set(found)
    former = sorted(set(known) - latest, key=lambda client: derive(context.seed, "defense", "barred", client))
    return sorted([*sorted(latest), *former][:MAX_BARRED_CLIENTS])


def check_bounds(forget_after: int | None, remember: int | None) -> None:
    """Refuse bounds below 1, which would forget clients that missed no round, or remember no client."""
    for name, bound, unit in (("forget_after", forget_after, "round"), ("remember", remember, "client")):
        if bound is not None and (type(bound) is not int or bound < 1):
            raise SettingError(f"{name} must be 1 {unit} or more, got {bound}")


def read_entries(state: State, row: str, width: int, round: int) -> Entries:
    """Return the clients of a state; refuse one that cannot come from this or an earlier round.

    `row` names the tensor that is kept for each client.
    """
    entries: Entries | None = state.get("clients")
    if not isinstance(entries, Mapping):
        raise describe_damage(f"its clients cannot be a {type(entries).__name__}")
    for client, entry in entries.items():
        if not isinstance(client, str):
            raise describe_damage(f"the id of a client cannot be a {type(client).__name__}")
        shown = repr(client[:MAX_SHOWN_CHARS])[:MAX_SHOWN_CHARS]
        if not isinstance(entry, Mapping) or type(entry.get("round")) is not int or not 0 < entry["round"] <= round:
            raise describe_damage(f"it does not say in which of {round} rounds client {shown} was last seen")
        if not is_row(entry.get(row), width):
            raise describe_damage(f"its {row} of client {shown} is not {width} numbers")
    return entries


def rename_clients(state: State | None, names: Mapping[str, str]) -> State | None:
    """Return a state in which some clients have other names; what is known under a new name already stays.

    Every defense keeps what it knows of clients in "clients", by name, and those that it bars in "blacklist".
    """
    if state is None or not names:
        return state
    renamed = dict(state)
    if isinstance(clients := state.get("clients"), Mapping):
        moved = {names[client]: entry for client, entry in clients.items() if client in names}
        renamed["clients"] = moved | {client: entry for client, entry in clients.items() if client not in names}
    if isinstance(barred := state.get("blacklist"), list):
        renamed["blacklist"] = [names.get(client, client) if isinstance(client, str) else client for client in barred]
    if isinstance(members := state.get("members"), list):
        renamed["members"] = [rename_clients(part, names) if isinstance(part, Mapping) else part for part in members]
    return renamed


def is_row(value: Any, width: int) -> bool:
    """Return whether a value is a row of `width` floating-point numbers, in memory."""
    return (
        isinstance(value, Tensor)
        and value.dtype in FLOATS
        and value.shape == (width,)
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )


def check_numbers(rows: Iterable[Tensor]) -> None:
    """Refuse rows of a state that hold NaN, infinite or too large numbers; it reads them all, once per loading."""
    for row in rows:
        if row.numel() and not float(torch.linalg.vector_norm(row, torch.inf)) <= MAX_STATE_NUMBER:
            raise describe_damage("it holds numbers that are NaN, infinite or far too large")


def describe_damage(fault: str) -> RunError:
    """Return the error for a state that no round can have produced."""
    return RunError(f"the defense's state is damaged or of another federation: {fault}; start again without it")


def count_mebibytes(state: Any) -> float:
    """Return the memory of a state's tensors in MiB."""
    if isinstance(state, Tensor):
        return state.numel() * state.element_size() / 2**20
    if isinstance(state, Mapping):
        return count_mebibytes(list(state.values()))
    return sum(map(count_mebibytes, state)) if isinstance(state, list) else 0.0


def compute_inner_products(rows: Sequence[Tensor]) -> Tensor:
    """Return the (n, n) inner products, in float64, of (d,) rows that are stored separately."""
    width = max(1, BLOCK_ELEMENTS // len(rows))
    blocks = (
        torch.stack([row[start : start + width] for row in rows]).to(torch.float64)
        for start in range(0, len(rows[0]), width)
    )
    return sum_products(len(rows), blocks)

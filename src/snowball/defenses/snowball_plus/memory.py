"""The memory from round to round: the records of crowds and positions, the suspects' common traits, and the clients'.

Only the last part needs client ids. The traits of a client fade with every round that it takes part in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.base import Context, State
from snowball.defenses.history import (
    Entries,
    Entry,
    check_numbers,
    describe_damage,
    is_row,
    keep_recent,
    read_entries,
)
from snowball.defenses.snowball_plus.ballots import CLIENT_KEPT
from snowball.defenses.snowball_plus.evidence import (
    MIN_CLASSES,
    POSITIONS,
    Evidence,
    Recalled,
    choose_units,
    count_classes,
    divide_or_zero,
    fan_in,
    find_hidden_layers,
    find_placed_layer,
    read_blocks,
)
from snowball.layout import Layout
from snowball.updates import Updates

RECALL_KEPT = 0.8
"""Weight of earlier rounds in the suspects' common traits."""

TRAITS = 4
"""Numbers kept per client, which all fade with its rounds: the sum of its deviations, the number of its rounds, of
those in which it was accused, and of those in which somebody was accused."""


@dataclass(frozen=True)
class Memory:
    """The memory that a round starts with.

    Attributes:
        crowds: (classes,) the record of crowds; None at the start, and if there are too few classes.
        positions: (positions,) the record of positions; None at the start, and if the model has none.
        recalled: the common traits of suspects of earlier rounds; None at the start.
        charges: the number of rounds in which somebody was accused.
        clients: the traits of each client, with the round in which it was last seen.
    """

    crowds: Tensor | None
    positions: Tensor | None
    recalled: Recalled | None
    charges: int
    clients: Entries


def read_memory(context: Context, layout: Layout) -> Memory:
    """Read the memory from a state; refuse one that no round of this federation can have left."""
    state: State = context.state or {"clients": {}}
    classes = count_classes(layout)
    crowds, charges = state.get("crowds"), state.get("charges", 0)
    if crowds is not None and not (classes >= MIN_CLASSES and is_row(crowds, classes)):
        raise describe_damage(f"its record of crowds is not {classes} numbers")
    if type(charges) is not int or not 0 <= charges <= context.round:
        raise describe_damage(f"the number of rounds in which it accused somebody is not one up to {context.round}")
    hidden = find_hidden_layers(layout)
    widths = {name: layout.columns[name].stop - layout.columns[name].start for name in hidden}
    directions = read_layers(state, "directions", widths)
    placed = find_placed_layer(layout)
    positions = state.get("positions")
    if positions is not None and not (placed and is_row(positions, placed.positions)):
        raise describe_damage("its record of positions is not that of such a model")
    shared = {name: fan_in(layout, name) for name in hidden} | ({POSITIONS: placed.positions} if placed else {})
    inputs = read_layers(state, "inputs", shared)
    recalled = Recalled(directions, inputs) if directions and inputs else None
    return Memory(crowds, positions, recalled, charges, read_entries(state, "traits", TRAITS, context.round))


def check_memory(memory: Memory) -> None:
    """Refuse a memory that holds numbers that are not finite."""
    rows = [memory.crowds, memory.positions, *(entry["traits"] for entry in memory.clients.values())]
    if memory.recalled:
        rows += [*memory.recalled.directions.values(), *memory.recalled.inputs.values()]
    check_numbers(row for row in rows if row is not None)


def read_layers(state: State, kind: str, widths: Mapping[str, int]) -> Mapping[str, Tensor]:
    """Read one row of numbers per hidden layer, or none at all."""
    rows = state.get(kind, {})
    if not isinstance(rows, Mapping) or (rows and rows.keys() != widths.keys()):
        raise describe_damage(f"its {kind} are not those of the model's hidden layers")
    for name, width in widths.items():
        if rows and not is_row(rows[name], width):
            raise describe_damage(f"its {kind} of layer {name!r} are not {width} numbers")
    return dict(rows)


def write_memory(memory: Memory, context: Context, remember: int) -> State:
    """Return the state that the next round starts from."""
    recalled = memory.recalled or Recalled({}, {})
    return {
        "crowds": memory.crowds,
        "positions": memory.positions,
        "charges": memory.charges,
        "directions": dict(recalled.directions),
        "inputs": dict(recalled.inputs),
        "clients": keep_recent(memory.clients, context, None, remember),
    }


def update_clients(known: Entries, clients: Sequence[str], strangeness: Tensor, round: int) -> dict[str, Entry]:
    """Return the traits of clients after adding their deviations in this round."""
    updated = dict(known)
    for client, before, deviation in zip(clients, read_traits(known, clients), strangeness.tolist(), strict=True):
        traits = CLIENT_KEPT * before + torch.tensor([deviation, 1, 0, 0], dtype=torch.float64)
        updated[client] = {"round": round, "traits": traits}
    return updated


def record_judgement(known: Entries, clients: Sequence[str], accused: Tensor) -> dict[str, Entry]:
    """Return the traits of clients after a round in which these (n,) of them were accused."""
    updated = dict(known)
    for client, guilty in zip(clients, accused.tolist(), strict=True):
        entry = known[client]
        updated[client] = {**entry, "traits": entry["traits"] + torch.tensor([0, 0, float(guilty), 1])}
    return updated


def read_traits(known: Entries, clients: Sequence[str]) -> Tensor:
    """Return the (n, traits) numbers of clients; zeros for those that are not known."""
    nothing = torch.zeros(TRAITS, dtype=torch.float64)
    return torch.stack([known[client]["traits"].double() if client in known else nothing for client in clients])


def recall_suspects(before: Recalled | None, updates: Updates, evidence: Evidence, suspects: Tensor) -> Recalled:
    """Return the suspects' common traits after a round."""
    directions, inputs = {}, {}
    signs = torch.where(suspects, 1 / suspects.sum(), -1 / (~suspects).sum()).double()
    for name, shares in evidence.inputs.items():
        inputs[name] = signs @ shares + (RECALL_KEPT * before.inputs[name] if before else 0)
    for name in find_hidden_layers(updates.layout):
        scaled = divide_or_zero(signs, evidence.layer_lengths[name])
        directions[name] = combine_rows(updates, name, scaled)
        if before:
            directions[name] += RECALL_KEPT * before.directions[name]
    return Recalled(directions, inputs)


def combine_rows(updates: Updates, name: str, weights: Tensor) -> Tensor:
    """Return the (w,) sum of a layer's rows with (n,) weights."""
    scaled = weights * choose_units(updates)
    return torch.cat([(scaled.to(block.dtype) @ block).float() for _, _, block in read_blocks(updates, name)])

"""What is kept from round to round: the record of crowds, what suspects had in common, and what clients did.

The first two need no client ids. What is known of a client fades with every round that it takes part in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snowball.defenses.base import Context, State
from snowball.defenses.history import Entries, Entry, describe_damage, is_row, keep_recent, read_entries
from snowball.defenses.snowball_plus.ballots import STRANGENESS_KEPT
from snowball.defenses.snowball_plus.evidence import (
    MIN_CLASSES,
    Evidence,
    Recalled,
    count_classes,
    divide_or_zero,
    fan_in,
    find_hidden_layers,
    read_blocks,
)
from snowball.updates import Layout, Updates

RECALL_KEPT = 0.8
"""Weight of earlier rounds in what suspects had in common."""

TRAITS = 2
"""Numbers that are kept of a client: the sum of its deviations, and the sum of their weights."""


@dataclass(frozen=True)
class Memory:
    """What a round is judged with.

    Attributes:
        crowds: (classes,) the record of crowds; None at the start, and where leaning says nothing.
        recalled: what the suspects of earlier rounds had in common; None at the start.
        charges: rounds in which somebody was accused.
        clients: what is known of each client, with the round that it was last seen in.
    """

    crowds: Tensor | None
    recalled: Recalled | None
    charges: int
    clients: Entries


def read_memory(context: Context, layout: Layout) -> Memory:
    """What a state holds; one that no round of such a federation can have left is refused."""
    state: State = context.state or {"clients": {}}
    classes = count_classes(layout)
    crowds, charges = state.get("crowds"), state.get("charges", 0)
    if crowds is not None and not (classes >= MIN_CLASSES and is_row(crowds, classes)):
        raise describe_damage(f"its record of crowds is not {classes} numbers")
    if type(charges) is not int or not 0 <= charges <= context.round:
        raise describe_damage(f"it cannot have accused anybody in {str(charges)[:20]!r} of {context.round} rounds")
    hidden = find_hidden_layers(layout)
    widths = {name: layout.columns[name].stop - layout.columns[name].start for name in hidden}
    directions = read_layers(state, "directions", widths)
    inputs = read_layers(state, "inputs", {name: fan_in(layout, name) for name in hidden})
    recalled = Recalled(directions, inputs) if directions and inputs else None
    return Memory(crowds, recalled, charges, read_entries(state, "traits", TRAITS, context.round))


def read_layers(state: State, kind: str, widths: Mapping[str, int]) -> Mapping[str, Tensor]:
    """A row of numbers per hidden layer, or none at all."""
    rows = state.get(kind, {})
    if not isinstance(rows, Mapping) or (rows and rows.keys() != widths.keys()):
        raise describe_damage(f"its {kind} are not those of the model's hidden layers")
    for name, width in widths.items():
        if rows and not is_row(rows[name], width):
            raise describe_damage(f"its {kind} of layer {name!r} are not {width} numbers")
    return dict(rows)


def write_memory(memory: Memory, context: Context, remember: int) -> State:
    """The state that the next round starts from."""
    recalled = memory.recalled or Recalled({}, {})
    return {
        "crowds": memory.crowds,
        "charges": memory.charges,
        "directions": dict(recalled.directions),
        "inputs": dict(recalled.inputs),
        "clients": keep_recent(memory.clients, context, None, remember),
    }


def update_clients(
    known: Entries, clients: Sequence[str], strangeness: Tensor, round: int
) -> tuple[dict[str, Entry], Tensor]:
    """What is known of clients after a round, and (n,) the mean deviations of those in it."""
    now = torch.stack([strangeness, torch.ones_like(strangeness)], 1)
    traits = torch.stack(
        [
            row + STRANGENESS_KEPT * known[client]["traits"].double() if client in known else row
            for client, row in zip(clients, now, strict=True)
        ]
    )
    seen: dict[str, Any] = {
        client: {"round": round, "traits": row.clone()} for client, row in zip(clients, traits, strict=True)
    }
    return {**known, **seen}, traits[:, 0] / traits[:, 1]


def recall_suspects(before: Recalled | None, updates: Updates, evidence: Evidence, suspects: Tensor) -> Recalled:
    """What suspects have in common after a round."""
    directions, inputs = {}, {}
    signs = torch.where(suspects, 1 / suspects.sum(), -1 / (~suspects).sum()).double()
    for name, shares in evidence.inputs.items():
        scaled = divide_or_zero(signs, evidence.layer_lengths[name])
        directions[name], inputs[name] = combine_rows(updates, name, scaled), signs @ shares
        if before:
            directions[name] += RECALL_KEPT * before.directions[name]
            inputs[name] += RECALL_KEPT * before.inputs[name]
    return Recalled(directions, inputs)


def combine_rows(updates: Updates, name: str, weights: Tensor) -> Tensor:
    """(w,) the sum of a layer's rows with (n,) weights in the order of clients."""
    return torch.cat([(weights @ block).float() for _, _, block in read_blocks(updates, name)])

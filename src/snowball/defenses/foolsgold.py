"""FoolsGold: clients whose updates point in the same direction round after round are one attacker.

Fung, Yoon, Beschastnikh, "The Limitations of Federated Learning in Sybil Settings", RAID 2020. Sybils share a goal, so
the sums of their past updates are more similar than those of honest clients, whose data differ. The more similar a
client is to its most similar peer, the lower its weight; an honest client that resembles a sybil by chance is pardoned.

Deviations: whole updates are compared, without the paper's optional feature weights, and its confidence parameter
is 1, as in the authors' code. Weights are divided by their sum. If all clients are alike, none can be told apart from a
sybil, and all weigh the same. The paper keeps the sums of all clients; here only the `remember` clients seen last
are kept.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.defenses.base import Context, State, Verdict
from snowball.defenses.history import (
    MAX_REMEMBERED_CLIENTS,
    check_bounds,
    check_numbers,
    compute_inner_products,
    count_mebibytes,
    keep_recent,
    read_entries,
)
from snowball.defenses.ops import compute_cosines
from snowball.layout import Layout
from snowball.updates import Updates


@dataclass(frozen=True)
class FoolsGold:
    """Average all updates, with little or no weight for clients whose past updates are alike.

    Attributes:
        forget_after: rounds in a row that a client may miss before its history is dropped; None sets no limit.
        remember: number of clients, those seen last, whose history is kept; None keeps all forever.
    """

    forget_after: int | None = None
    remember: int | None = MAX_REMEMBERED_CLIENTS

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bounds(self.forget_after, self.remember)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Add each update to its client's sum, and weigh the updates by these sums."""
        known = read_entries(context.state or {"clients": {}}, "sum", updates.layout.width, context.round)
        sums = {
            client: known[client]["sum"] + row.float() if client in known else row.to(torch.float32, copy=True)
            for client, row in zip(updates.clients, updates.rows, strict=True)
        }
        seen = {client: {"round": context.round, "sum": row} for client, row in sums.items()}
        state = {"clients": keep_recent({**known, **seen}, context, self.forget_after, self.remember)}
        weights = weigh_by_honesty(compute_cosines(compute_inner_products(list(sums.values()))))
        return Verdict(
            updates.mean(weights), weights > 0, {"weights": weights, "history_mib": count_mebibytes(state)}, state
        )

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state without one finite sum per client."""
        check_numbers(entry["sum"] for entry in read_entries(state, "sum", layout.width, round).values())


def weigh_by_honesty(likeness: Tensor) -> Tensor:
    """Return (n,) weights in [0, 1] from the (n, n) cosines of the clients' histories."""
    likeness = likeness.round(decimals=9).fill_diagonal_(0)  # equal up to rounding counts as equal
    highest = likeness.amax(1)  # (n,) the paper's v, never below zero
    pardoned = torch.where(highest[:, None] < highest, likeness * highest[:, None] / highest.clamp(min=1e-9), likeness)
    apart = (1 - pardoned.amax(1)).clamp(0, 1)  # (n,) the paper's alpha
    if not apart.any():
        return torch.ones_like(apart)
    apart = apart / apart.max()
    return (apart.where(apart < 1, 0.99).logit() + 0.5).clamp(0, 1)

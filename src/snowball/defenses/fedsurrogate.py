"""FedSurrogate: put the nearest trusted update in the place of each malicious one, instead of leaving a gap.

"FedSurrogate", arXiv 2605.11122, 2026. The tensors in which the clients' updates differ most are critical. HDBSCAN
clusters the clients' models by the cosine distances of their critical tensors, and the largest cluster is trusted. How
far an update goes beyond the mean along the mean's own direction is its compromise score. Trusted clients with an
outlying score are demoted, suspects with a low one are rescued at a lower weight, and the remaining suspects are
replaced by the trusted or rescued client that is nearest to each, at a still lower weight.

Deviations: scores are averaged over the rounds in which a client had the same role; the authors' code divides by the
number of all rounds. That code demotes nobody in a round whose clustering leaves nobody out. Without a cluster, all are
trusted. The tensors for the scores are that code's for networks that it does not know. Its leave-one-out scores,
replacement of single layers and selection of a fixed number of layers are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from snowball.defenses.base import Context, State, Verdict, require
from snowball.defenses.clustering import cluster_rows, convert_to_cosine_distances, select_largest_cluster
from snowball.defenses.history import (
    MAX_BARRED_CLIENTS,
    Entries,
    check_bounds,
    check_numbers,
    describe_damage,
    keep_recent,
    read_entries,
)
from snowball.defenses.ops import compute_cosines
from snowball.defenses.roseagg import multiply_rows
from snowball.errors import SettingError
from snowball.layout import Layout
from snowball.products import sum_products
from snowball.updates import Updates

LEAST_CRITICAL = 3
"""Tensors that are critical at least, if there are as many."""

LEAST_SCREENED = 4
"""Trusted clients among which one can be an outlier."""

WHISKERS = 1.5
"""Interquartile ranges above the third quartile beyond which a trusted client is an outlier."""

SMALLEST_SPREAD = 1e-9
"""Spread of scores, and distance of a row from the mean relative to their lengths, up to which it is only rounding."""

ROLES = TRUSTED, SUSPECT = 0, 1
"""The places of a client's two records: of the rounds in which it was trusted, and of those in which it was suspect."""


class Roles(NamedTuple):
    """The (n,) masks of the clients by what happens to them; each is in one."""

    trusted: Tensor
    rescued: Tensor
    confirmed: Tensor


@dataclass(frozen=True)
class FedSurrogate:
    """Average the densest half of the models and rescued ones, and more of their neighbours in place of the others.

    Attributes:
        spread: median absolute deviations above the median from which a tensor's disagreement makes it critical.
        candidate: numbers that a tensor must have to be compared.
        critical: numbers that the critical tensors have together; if fewer, the next ones are added.
        rescue: highest compromise score with which a suspect is rescued, at most the suspects' median (zeta).
        rescued_weight: share of its weight that a rescued update has.
        surrogate_weight: share of its weight that a malicious update passes on to the one that replaces it.
        forget_after: rounds in a row that a client may miss before its scores are dropped; None sets no limit.
        remember: number of clients, those seen last, whose scores are kept; None keeps all forever.
    """

    spread: float = 1.5
    candidate: int = 1000
    critical: int = 200_000
    rescue: float = 0.4
    rescued_weight: float = 0.7
    surrogate_weight: float = 0.3
    forget_after: int | None = None
    remember: int | None = MAX_BARRED_CLIENTS

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not self.spread >= 0:
            raise SettingError(f"spread must be 0 or more, got {self.spread}")
        if self.candidate < 1 or self.critical < 1:
            sizes = f"got {self.candidate} and {self.critical}"
            raise SettingError(f"candidate and critical must be 1 number or more, {sizes}")
        for name in ("rescue", "rescued_weight", "surrogate_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name} must lie in 0..1, got {getattr(self, name)}")
        check_bounds(self.forget_after, self.remember)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Cluster, score, demote, rescue and replace."""
        base = require(context.base, "base", "fedsurrogate")
        known = read_records(context.state or {"clients": {}}, context.round)
        layers = find_critical(updates, self.candidate, self.spread, self.critical)
        distances = convert_to_cosine_distances(multiply_models(updates, base, layers))
        clusters = cluster_rows(distances, len(updates) // 2 + 1, 1, single=True)
        compromise = measure_compromise(updates, find_scored(updates.layout))
        records = torch.stack([known.get(client, torch.zeros(2, 2)).double() for client in updates.clients])
        roles, scores = self._assign_roles(select_largest_cluster(clusters), compromise, records)
        kept = roles.trusted | roles.rescued
        donors = find_donors(distances, kept, context.draw_lots(updates.clients))
        factors = torch.tensor([1, self.rescued_weight, self.surrogate_weight], dtype=torch.float64)
        shares = factors @ torch.stack(roles).double()
        weights = updates.normalise(torch.zeros_like(shares).index_add(0, donors, updates.examples * shares))
        facts = {"compromise": scores, "weights": weights, "clusters": clusters}
        state = self._remember(updates, records, context)
        return Verdict(updates.combine(weights), kept, {**facts, "critical": len(layers)}, state, roles.confirmed)

    def _assign_roles(self, clustered: Tensor, compromise: Tensor, records: Tensor) -> tuple[Roles, Tensor]:
        """Return the clients' roles and (n,) scores; add this round's scores to the (n, 2, 2) records in place."""
        screened = record_scores(records, TRUSTED, clustered, compromise)
        trusted = clustered & ~mark_outliers(screened, clustered)
        suspected = record_scores(records, SUSPECT, ~trusted, compromise)
        bound = min(self.rescue, float(suspected[~trusted].median())) if not trusted.all() else 0.0
        rescued = ~trusted & (suspected <= bound)
        return Roles(trusted, rescued, ~trusted & ~rescued), screened.where(trusted, suspected)

    def _remember(self, updates: Updates, records: Tensor, context: Context) -> State:
        """Return the next state: sum of scores and number of rounds of each client, in either role."""
        seen = {
            client: {"round": context.round, "scores": record.flatten()}
            for client, record in zip(updates.clients, records, strict=True)
        }
        former: Entries = (context.state or {"clients": {}})["clients"]
        return {"clients": keep_recent({**former, **seen}, context, self.forget_after, self.remember)}

    def check_state(self, state: State, round: int, layout: Layout) -> None:
        """Refuse a state with scores that no such number of rounds can have left."""
        records = read_records(state, round)
        check_numbers(records.values())
        for total, rounds in (part for record in records.values() for part in record.tolist()):
            if not 0 <= total <= rounds <= round or rounds % 1:
                raise describe_damage(f"scores of 0 to 1 cannot add up to {total:.4g} in {rounds:.4g} rounds")


def read_records(state: State, round: int) -> dict[str, Tensor]:
    """Return the (2, 2) records of a state's clients: in either role the sum of scores, and the number of rounds."""
    return {client: entry["scores"].view(2, 2) for client, entry in read_entries(state, "scores", 4, round).items()}


def find_critical(updates: Updates, candidate: int, spread: float, critical: int) -> list[str]:
    """Return the tensors in which the updates point apart most; of all tensors if none is large enough."""
    layout = updates.layout
    sizes = {name: prod(shape) for name, shape in zip(layout.names, layout.shapes, strict=True)}
    names = [name for name in layout.names if sizes[name] >= candidate] or list(layout.names)
    scores = torch.tensor([measure_divergence(updates, layout.columns[name]) for name in names], dtype=torch.float64)
    return choose_critical(names, [sizes[name] for name in names], scores, spread, critical)


def measure_divergence(updates: Updates, columns: slice) -> float:
    """Return the mean cosine distance between the rows in some columns; 0 for a single row."""
    rows = len(updates)
    distances = 1 - compute_cosines(multiply_rows(updates, columns))
    return float(distances.fill_diagonal_(0).sum()) / max(1, rows * (rows - 1))


def choose_critical(
    names: Sequence[str], sizes: Sequence[int], scores: Tensor, spread: float, critical: int
) -> list[str]:
    """Return the names whose (n,) scores stand out, and the next ones until these are enough."""
    median = float(scores.quantile(0.5))
    ratios = scores / median if median > SMALLEST_SPREAD else torch.ones_like(scores)
    usual = ratios.quantile(0.5)
    deviation = (ratios - usual).abs().quantile(0.5).clamp(min=SMALLEST_SPREAD)
    ranked = ratios.argsort(descending=True, stable=True).tolist()
    count = int((ratios > usual + spread * deviation).sum())
    while count < len(names) and sum(sizes[place] for place in ranked[:count]) < critical:
        count += 1
    if count < LEAST_CRITICAL:
        count = max(LEAST_CRITICAL, len(names) // 3)
    return [names[place] for place in ranked[:count]]


def multiply_models(updates: Updates, base: Tensor, layers: Sequence[str]) -> Tensor:
    """Return the (n, n) inner products of some layers of the models, base plus update, in float64."""

    def read_models() -> Iterator[Tensor]:
        for layer in layers:
            for part, block in updates.read_blocks(updates.layout.columns[layer]):
                yield block.add_(base[part])

    return sum_products(len(updates), read_models())


def find_scored(layout: Layout) -> tuple[str, ...]:
    """Return the weight layers by which compromise is scored: the last third, at least the last two."""
    return layout.weights[-max(2, len(layout.weights) // 3) :]


def measure_compromise(updates: Updates, layers: Sequence[str]) -> Tensor:
    """Return the (n,) cosines between the rows' deviations from their mean and that mean, in some layers.

    The mean is weighted by examples. A row that equals it has the cosine 0.
    """
    shares = updates.normalise(updates.examples)
    along, apart, sizes = (torch.zeros(len(updates), dtype=torch.float64) for _ in range(3))
    length = torch.zeros((), dtype=torch.float64)
    for layer in layers:
        for _, block in updates.read_blocks(updates.layout.columns[layer]):
            sizes += (block**2).sum(1)
            mean = shares @ block
            block -= mean
            along += block @ mean
            apart += (block**2).sum(1)
            length += mean @ mean
    scale = (apart * length).sqrt()
    measurable = (torch.minimum(apart, length) > SMALLEST_SPREAD**2 * sizes.max()) & (scale > 0)
    return torch.where(measurable, along / scale.where(measurable, 1), 0).clamp(-1, 1)


def record_scores(records: Tensor, role: int, members: Tensor, compromise: Tensor) -> Tensor:
    """Add the members' compromise, rescaled to 0..1, to the records of their role; return all (n,) means so far."""
    if members.any():
        records[members, role, 0] += scale_to_range(compromise[members])
        records[members, role, 1] += 1
    return records[:, role, 0] / records[:, role, 1].clamp(min=1)


def scale_to_range(scores: Tensor) -> Tensor:
    """Return scores scaled to 0..1, or 0 if all are equal up to rounding."""
    spread = scores.max() - scores.min()
    return (scores - scores.min()) / spread if spread > SMALLEST_SPREAD else torch.zeros_like(scores)


def mark_outliers(scores: Tensor, members: Tensor) -> Tensor:
    """Return an (n,) mask of the members whose scores lie far above those of the others; of few members, nobody."""
    if int(members.sum()) < LEAST_SCREENED:
        return torch.zeros_like(members)
    lower, upper = (scores[members].quantile(share) for share in (0.25, 0.75))
    return members & (scores > upper + WHISKERS * (upper - lower) + SMALLEST_SPREAD)


def find_donors(distances: Tensor, kept: Tensor, lots: Tensor) -> Tensor:
    """Return the (n,) row that stands for each: itself if it is kept, else the nearest kept one; lots break ties."""
    drawn = lots.argsort()
    drawn = drawn[kept[drawn]]
    nearest = drawn[distances[:, drawn].argmin(1)]
    return torch.arange(len(kept)).where(kept, nearest)

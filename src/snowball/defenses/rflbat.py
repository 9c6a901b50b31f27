"""RFLBAT: of the clusters of updates in a plane, average the one whose members are least alike.

Wang, Zhai, Zhan, Xia, "RFLBAT: A Robust Federated Learning Algorithm against Backdoor Attack", arXiv:2201.03772,
2022. Principal components put the updates into the plane in which they differ most. Those far from all others are left
out. K-means clusters the rest, into as many clusters as the gap statistic finds. Backdoored updates have one goal, so
of the clusters, the one with the least similar members is honest; those far from its other members are left out, too.

Deviations: the authors published no code. The principal components come from inner products, and K-means takes the best
of 50 starts. A lone update is as similar as can be, and of clusters that are alike, the one with the lowest lot counts.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.clustering import NOISE
from snowball.defenses.ops import average_equally, compute_cosines, project_rows
from snowball.defenses.snowball.gap import find_clusters
from snowball.defenses.split_rows import split_rows
from snowball.errors import SettingError
from snowball.updates import Updates

MOST_CLUSTERS = 10

DECIMALS = 12
"""Decimals of a cosine that are not rounding errors."""


@dataclass(frozen=True)
class RFLBAT:
    """Average the most diverse cluster of updates in their principal plane, without those far out.

    Attributes:
        far: an update is left out if its distances from all others sum up to more than this many times their median.
        far_inside: the same among the members of the chosen cluster.
    """

    min_updates: ClassVar[int] = 3
    far: float = 10.0
    far_inside: float = 4.0

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not (self.far >= 1 and self.far_inside >= 1):
            raise SettingError(f"far and far_inside must be 1 or more, got {self.far} and {self.far_inside}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Project, leave out what is far, cluster, choose a cluster, and leave out what is far inside."""
        points = project_rows(updates.products())
        near = mark_near(points, self.far)
        clusters = torch.full((len(points),), NOISE)
        clusters[near] = self._cluster(points[near], context)
        cosines = compute_cosines(updates.products_about(torch.zeros(updates.layout.width, dtype=updates.dtype)))
        elected = choose_cluster(clusters, cosines, context.draw_lots(updates.clients))
        elected[elected.clone()] = mark_near(points[elected], self.far_inside)
        return Verdict(average_equally(updates, elected), elected, {"clusters": clusters})

    def _cluster(self, points: Tensor, context: Context) -> Tensor:
        """Return the (n,) clusters of points, as many as the gap statistic finds."""
        plane, rng = Updates.from_matrix(points), context.stream("clusters")
        count = find_clusters(plane, "row", 1, min(MOST_CLUSTERS, len(points) - 1), rng, "first")
        return split_rows(plane.products(), count, rng)


def mark_near(points: Tensor, times: float) -> Tensor:
    """Return a mask of the points whose distances from all others sum up to at most `times` the median sum."""
    sums = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").sum(1)
    return sums <= times * sums.quantile(0.5)


def choose_cluster(clusters: Tensor, cosines: Tensor, lots: Tensor) -> Tensor:
    """Return the (n,) mask of the cluster whose members are least similar to each other; the lower lot breaks ties."""

    def rank(cluster: int) -> tuple[float, int]:
        members = clusters == cluster
        similar = cosines[members][:, members].mean(1).quantile(0.5)
        return round(float(similar), DECIMALS), int(lots[members].min())

    best: int = min({*clusters.tolist()} - {NOISE}, key=rank)
    return clusters == best

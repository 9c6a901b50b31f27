"""FLAME: cluster, clip, and add a little noise.

Nguyen et al., "FLAME: Taming Backdoors in Federated Learning", USENIX Security 2022. Most local models point in a
similar direction. The others are left out, the rest is clipped to the median length, and noise covers any backdoor that
slipped through.

Deviations: fewer than four updates are not clustered. The noise is a setting, whereas the paper derives it from a
privacy budget. `published` does what the published code does: it clusters updates by Euclidean distance, with half of
them enough for a cluster, and clips to the median length of the accepted updates only.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict, require
from snowball.defenses.clustering import cluster_rows, compute_cosine_distances, select_largest_cluster
from snowball.defenses.ops import add_noise, average_clipped, compute_squared_distances
from snowball.errors import SettingError
from snowball.updates import Updates

LEAST_CLUSTERED = 4

Variant = Literal["original", "published"]


@dataclass(frozen=True)
class FLAME:
    """Average the models that point in the direction of most, clipped to the median length, and add noise.

    Attributes:
        noise: standard deviation of the noise per coordinate, as a multiple of the clipping bound (the paper's lambda).
        variant: "original" as in the paper, or "published" as in the code published with the Snowball paper.
    """

    min_updates: ClassVar[int] = 3
    noise: float = 0.001
    variant: Variant = "original"

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not 0 <= self.noise < float("inf"):
            raise SettingError(f"noise must be 0 or more, got {self.noise}")
        if self.variant not in get_args(Variant):
            raise SettingError(f"variant must be one of {', '.join(get_args(Variant))}, got {self.variant!r}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Cluster, clip, average, add noise."""
        labels = self._cluster(updates, context)
        elected = select_largest_cluster(labels)
        norms = updates.squared_norms.sqrt()
        measured = norms if self.variant == "original" else norms[elected]
        bound = float(measured.quantile(0.5))  # the mean of the middle two if their number is even
        delta = add_noise(average_clipped(updates, elected, bound), self.noise * bound, context.stream("noise"))
        return Verdict(delta, elected, {"clusters": labels, "norms": norms, "bound": bound})

    def _cluster(self, updates: Updates, context: Context) -> Tensor:
        rows = len(updates)
        if rows < LEAST_CLUSTERED:
            return torch.zeros(rows, dtype=torch.int64)
        if self.variant == "original":
            models = compute_cosine_distances(updates, -require(context.base, "base", "flame"))  # (n, n)
            return cluster_rows(models, rows // 2 + 1, 1, single=True)
        half = ceil(rows / 2)
        distances = compute_squared_distances(updates.products()).sqrt()
        return cluster_rows(distances, half, half + 1, single=True)  # half of the rows, plus the row itself

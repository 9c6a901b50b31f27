"""SignGuard: leave out updates of unusual length, and those whose signs are distributed like few others'.

Xu, Huang, Song, Lan, "Byzantine-robust Federated Learning through Collaborative Malicious Gradient Filtering", ICDCS
2022. An attack that keeps lengths and distances inconspicuous still changes how many entries of an update are positive,
zero or negative. Updates are clustered by these three shares, in randomly drawn columns, and the largest cluster stays.

Deviations: the filter by length and the one by sign, without the cosine similarity that two variants of the paper add.
An update outside all clusters is left out. If the filters agree on nobody, the cluster stays as it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict
from snowball.defenses.clustering import select_largest_cluster
from snowball.defenses.ops import average_clipped
from snowball.errors import SettingError
from snowball.updates import Updates

QUANTILE = 0.5
"""The share of the updates that the bandwidth of the clustering reaches, on average."""

LEAST_BANDWIDTH = 1e-6
"""Differences of shares up to this one count as none: scikit-learn puts equal points up to 1e-8 apart."""


@dataclass(frozen=True)
class SignGuard:
    """Average the updates of usual length in the largest cluster of sign statistics, clipped to the median length.

    Attributes:
        shortest: length below which an update is left out, in median lengths (the paper's L).
        longest: length above which an update is left out, in median lengths (the paper's R).
        columns: share of the columns in which signs are counted, in a row, drawn again in every round.
    """

    min_updates: ClassVar[int] = 4
    shortest: float = 0.1
    longest: float = 3.0
    columns: float = 0.1

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not 0 <= self.shortest < 1 < self.longest:
            given = f"shortest {self.shortest} and longest {self.longest}"
            raise SettingError(f"the median length must lie between shortest and longest, got {given}")
        if not 0 < self.columns <= 1:
            raise SettingError(f"columns must be a share in (0, 1], got {self.columns}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Filter by length and by signs, clip and average."""
        lengths = updates.squared_norms.sqrt()
        bound = float(lengths.quantile(0.5))
        usual = (lengths >= self.shortest * bound) & (lengths <= self.longest * bound)
        signs = count_signs(updates, self._draw_columns(updates.layout.width, context))
        clusters = cluster_by_mean_shift(signs)
        largest = select_largest_cluster(clusters)
        elected = usual & largest if (usual & largest).any() else largest
        facts = {"norms": lengths, "clusters": clusters, "positive": signs[:, 0]}
        return Verdict(average_clipped(updates, elected, bound), elected, {**facts, "bound": bound})

    def _draw_columns(self, width: int, context: Context) -> slice:
        """Draw neighbouring columns."""
        count = max(1, int(self.columns * width))
        start = int(torch.randint(width - count + 1, (), generator=context.stream("columns")))
        return slice(start, start + count)


def count_signs(updates: Updates, columns: slice) -> Tensor:
    """Return the (n, 3) shares of positive, zero and negative entries in some columns."""
    block = updates.read_columns(columns)
    return torch.stack([(block.sign() == sign).double().mean(1) for sign in (1, 0, -1)], 1)


def cluster_by_mean_shift(points: Tensor) -> Tensor:
    """Return the (n,) cluster of each point, counted from 0, or -1; the bandwidth follows from the points' distances.

    Comaniciu, Meer, "Mean Shift: A Robust Approach Toward Feature Space Analysis", IEEE TPAMI 2002.
    """
    from sklearn.cluster import MeanShift

    nearest = torch.cdist(points, points).sort().values[:, max(1, int(QUANTILE * len(points))) - 1]
    clusterer = MeanShift(bandwidth=max(float(nearest.mean()), LEAST_BANDWIDTH), cluster_all=False)
    return torch.from_numpy(clusterer.fit_predict(points.numpy()).astype("int64"))

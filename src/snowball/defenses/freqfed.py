"""FreqFed: keep the models whose low frequencies are like those of most.

Fereidooni, Pegoraro, Rieger, Dmitrienko, Sadeghi, "FreqFed: A Frequency Analysis-Based Approach for Mitigating
Poisoning Attacks in Federated Learning", NDSS 2024. A discrete cosine transform takes the weights of every local model
to frequencies. HDBSCAN clusters the models by the cosine distances between their low frequencies, and the updates of
the largest cluster are averaged.

Deviations: the authors published no code. Each tensor is transformed as a matrix of its first dimension by all others,
and keeps the coefficients whose row and column numbers add up to at most half of its longer side: of a vector, the
lower half. Public copies differ from this and from each other: some transform updates, some only the last layer, some
the whole model as one vector. HDBSCAN's sizes are FLAME's, by the same group. Without a cluster, all are averaged.
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from snowball.defenses.base import Context, Verdict, require
from snowball.defenses.clustering import cluster_rows, convert_to_cosine_distances, select_largest_cluster
from snowball.defenses.ops import average_by_examples
from snowball.errors import SettingError
from snowball.products import multiply_by_itself
from snowball.updates import Updates

Compared = Literal["models", "updates"]


@dataclass(frozen=True)
class FreqFed:
    """Average the largest cluster by the cosine distances between the low frequencies of the clients' models.

    Attributes:
        low: share of a tensor's longer side that row plus column of a low frequency reach at most.
        compared: "models" as in the paper, or "updates" as in some public copies.
    """

    min_updates: ClassVar[int] = 3
    low: float = 0.5
    compared: Compared = "models"

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not 0 <= self.low <= 2:
            raise SettingError(f"low must lie in 0..2, got {self.low}")
        if self.compared not in get_args(Compared):
            raise SettingError(f"compared must be one of {', '.join(get_args(Compared))}, got {self.compared!r}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Transform, cluster and average."""
        base = require(context.base, "base", "freqfed") if self.compared == "models" else None
        distances = convert_to_cosine_distances(multiply_low_frequencies(updates, base, self.low))
        clusters = cluster_rows(distances, len(updates) // 2 + 1, 1, single=True)
        elected = select_largest_cluster(clusters)
        return Verdict(average_by_examples(updates, elected), elected, {"clusters": clusters})


def multiply_low_frequencies(updates: Updates, base: Tensor | None, share: float) -> Tensor:
    """Return the (n, n) inner products of the low frequencies of base plus update, or of updates, in float64."""
    layout = updates.layout
    products = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for columns, shape in zip(layout.columns.values(), layout.shapes, strict=True):
        rows = updates.read_columns(columns)
        start = torch.zeros(rows.shape[1]) if base is None else base[columns]
        found = [transform_tensor(start.double() + row, shape, share) for row in rows]
        products += multiply_by_itself(torch.stack(found))
    return products


def transform_tensor(numbers: Tensor, shape: tuple[int, ...], share: float) -> Tensor:
    """Return the (k,) low frequencies of a tensor with these (w,) numbers."""
    from scipy.fft import dctn

    height, width = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
    low = np.add.outer(np.arange(height), np.arange(width)) <= share * max(height, width)
    return torch.from_numpy(dctn(numbers.view(height, width).numpy(), norm="ortho")[low])

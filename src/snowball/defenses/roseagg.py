"""RoseAgg: updates that point the same way count as one, and weigh as much as they agree with the principal direction.

Yang, Xi, Shen, Wu, Zhao, "RoseAgg: Robust Defense Against Targeted Collusion Attacks in Federated Learning", IEEE
Transactions on Information Forensics and Security 2024. Colluding attackers point the same way, even if they are the
majority. DBSCAN clusters the updates by the cosine distances between their output layers, and each cluster becomes one
direction. In every tensor, the directions are averaged by their squared agreement with the principal one, and their
average gets the median length of the shorter updates.

Deviations: the published code reads lengths in another way if it is told that nobody attacks; a server cannot know, and
here all rounds are read alike. Noise is added to the average, with the variance that noise on every direction would
leave there. Lengths are split in two exactly, instead of by K-means.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from snowball.defenses.base import Context, Verdict
from snowball.defenses.clustering import convert_to_cosine_distances
from snowball.defenses.deepsight import find_output_layer
from snowball.defenses.ops import add_noise, compute_cosines, elect_everyone
from snowball.defenses.score_clusters import select_upper_cluster
from snowball.errors import SettingError
from snowball.products import sum_products
from snowball.updates import Updates

SMALLEST_SPREAD = 1e-9
"""The spread of lengths, relative to the largest, up to which they are equal but for rounding."""


@dataclass(frozen=True)
class RoseAgg:
    """Average the directions of the updates tensor by tensor; those that point the same way count as one.

    Attributes:
        alike: cosine distance up to which two updates point the same way in the output layer (the code's threshold).
        noise: standard deviation of the noise on every entry of a direction, which has length 1; 0 for none.
    """

    alike: float = 0.2
    noise: float = 0.003

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        if not 0 < self.alike <= 2:
            raise SettingError(f"alike must be a cosine distance above 0 and at most 2, got {self.alike}")
        if not 0 <= self.noise < float("inf"):
            raise SettingError(f"noise must be 0 or more, got {self.noise}")

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Cluster the output layers, and average the clusters' directions in every tensor."""
        layer, _ = find_output_layer(updates.layout)
        products = multiply_rows(updates, updates.layout.columns[layer])
        clusters = find_alike(products, self.alike)
        members = weigh_members(compute_cosines(products), clusters)  # (clusters, n)
        rng, averages, weights = context.stream("noise"), [], []
        for columns in updates.layout.columns.values():
            average, weight = self._average(updates, columns, members, rng)
            averages.append(average)
            weights.append(weight @ members)
        facts = {"weights": torch.stack(weights).mean(0), "clusters": clusters}
        return Verdict(torch.cat(averages).to(updates.dtype), elect_everyone(updates), facts)

    def _average(
        self, updates: Updates, columns: slice, members: Tensor, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return a tensor's (w,) average, and the (clusters,) weights of the directions in it."""
        products = multiply_rows(updates, columns)
        lengths = products.diagonal().sqrt()
        weights, factors = weigh_rows(compute_cosines(products), members)
        factors = torch.where(lengths > 0, factors / lengths, 0)
        direction = torch.cat([factors @ block for _, block in updates.read_blocks(columns)])
        stretch = (1 + self.noise**2 * len(direction)) ** 0.5  # of a direction, by the noise on its entries
        noisy = add_noise(direction / stretch, self.noise * float(weights.norm()) / stretch, rng)
        return find_usual_length(lengths) * noisy, weights


def multiply_rows(updates: Updates, columns: slice) -> Tensor:
    """Return the (n, n) inner products of some columns of the rows."""
    return sum_products(len(updates), (block for _, block in updates.read_blocks(columns)))


def find_alike(products: Tensor, alike: float) -> Tensor:
    """Return the (n,) cluster of each row; chains of rows with cosine distances of at most `alike` share one."""
    from sklearn.cluster import DBSCAN

    distances = convert_to_cosine_distances(products)
    labels = DBSCAN(eps=alike, min_samples=1, metric="precomputed").fit_predict(distances.numpy())
    return torch.from_numpy(labels.astype("int64"))


def weigh_members(cosines: Tensor, clusters: Tensor) -> Tensor:
    """Return the (clusters, n) shares of the rows in their clusters: by the cosines with the other members."""
    members = one_hot(clusters).T.double()
    others = cosines - torch.diag(cosines.diagonal())
    similar = members * (members @ others).clamp(min=0)
    total = similar.sum(1, keepdim=True)
    return torch.where(total > 0, similar / total, members / members.sum(1, keepdim=True))


def weigh_rows(cosines: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (clusters,) weights of the directions, and the (n,) factors of unit rows in the average of these.

    With the inner products R of the directions and their top eigenvector v, the inner products with the principal
    direction are proportional to R v, and so to v.
    """
    products = members @ cosines @ members.T
    weights = torch.linalg.eigh(compute_cosines(products))[1][:, -1] ** 2
    lengths = products.diagonal().clamp(min=0).sqrt()
    return weights, torch.where(lengths > 0, weights / lengths, 0) @ members


def find_usual_length(lengths: Tensor) -> float:
    """Return the median of the shorter ones of the lengths, split in two."""
    if lengths.max() - lengths.min() <= SMALLEST_SPREAD * lengths.max():
        return float(lengths.max())
    return float(lengths[~select_upper_cluster(lengths)].quantile(0.5))

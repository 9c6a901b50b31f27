"""A plain implementation of the published elections: the package is timed and checked against it.

It follows the text of "Resisting Backdoor Attacks in Federated Learning via Bidirectional Elections and Individual
Perspective" (Qin et al., AAAI 2024), Algorithm 1 and the appendix on its networks. Where the paper is silent, it does
what the authors' released program was seen to do: sigmoid at both ends of the auto-encoder, softplus on the log
variance, a new Adam at each call, ten latent samples per score, one row at a time. Algorithm 1 prints that candidates
with "larger" error join; the paper's text and the program take the lowest, and so does this file. Nothing here uses
the package's own elections.

Three choices are this file's own: K-means runs in float64 to convergence, so that results can be compared digit by
digit; ties go to the lower index; biases start at zero, as in the initialisation that the paper cites (He et al.,
2015).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import calinski_harabasz_score
from torch import Tensor, nn

Floats = NDArray[np.float32 | np.float64]
Score = Callable[[list[int], list[int]], Sequence[float]]
"""Scores the candidates, given the rows elected so far: `score(elected, candidates)`. Low is good."""

BATCH = 8
LATENT_SAMPLES = 10


@dataclass(frozen=True)
class Votes:
    """The counts of a bottom-up election.

    Attributes:
        totals: (K,) votes for each row, over all layers (the paper's c).
        per_layer: for each layer, (K,) votes for each row.
        clarity: for each layer, (K,) Calinski-Harabasz score of each row's own clustering, before scaling.
    """

    totals: Floats
    per_layer: list[Floats]
    clarity: list[Floats]


def elect_bottom_up(layers: Sequence[Floats], clusters: int) -> Votes:
    """Let every row of every (K, d) layer vote for the rows it shares a cluster with."""
    ballots = [cast_ballots(np.asarray(layer, dtype=np.float64), clusters) for layer in layers]
    per_layer: list[Floats] = [scale_to_unit(clarity) @ votes for votes, clarity in ballots]
    return Votes(np.sum(per_layer, axis=0), per_layer, [clarity for _, clarity in ballots])


def cast_ballots(rows: Floats, clusters: int) -> tuple[Floats, Floats]:
    """Run one K-means per voter, and return the (K voters, K rows) votes, 0 or 1, and each ballot's clarity (K,)."""
    count = len(rows)
    clusters = min(max(clusters, 2), count - 1)
    votes, clarity = np.zeros((count, count)), np.zeros(count)
    for voter in range(count):
        differences = rows[voter] - rows  # (K, d)
        labels = cluster_rows(differences, voter, clusters)
        votes[voter] = labels == labels[voter]
        clarity[voter] = calinski_harabasz_score(differences, labels)
    return votes, clarity


def cluster_rows(differences: Floats, voter: int, clusters: int) -> NDArray[np.integer]:
    """Return the (K,) labels of a K-means that starts from the voter, at zero, and from the rows farthest from it."""
    distances = np.linalg.norm(differences, axis=1)
    distances[voter] = -np.inf  # the voter is already a start
    farthest = np.argsort(-distances, kind="stable")[: clusters - 1]
    start = differences[[voter, *farthest]]
    means = KMeans(clusters, init=start, n_init=1, tol=0, algorithm="lloyd", max_iter=300)
    return np.asarray(means.fit_predict(differences))


def scale_to_unit(scores: Floats) -> Floats:
    """Scale the scores to [0, 1]; equal scores all become 1."""
    spread = scores.max() - scores.min()
    return (scores - scores.min()) / spread if spread else np.ones_like(scores)


def choose_selectees(totals: Floats, count: int) -> list[int]:
    """Return the rows with the most votes, most first; totals within 1e-9 tie, and ties go to the lower index."""
    order = np.argsort(-np.round(totals, 9), kind="stable")
    return [int(row) for row in order[:count]]


class VAE(nn.Module):
    """The paper's auto-encoder of differences: two hidden layers on either side of a sampled latent vector."""

    def __init__(self, width: int, hidden: int, latent: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Sequential(nn.Linear(hidden, latent), nn.Softplus())
        self.decoder = nn.Sequential(
            *(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()),
            *(nn.Linear(hidden, width), nn.Sigmoid()),
        )
        self.generator = generator
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(module.bias)

    def encode(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and log variance of the latent vectors, each (b, latent), for (b, width) inputs."""
        hidden = self.encoder(inputs)
        return self.mean(hidden), self.log_variance(hidden)

    def sample(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        """Sample latent vectors from that normal distribution."""
        return mean + torch.randn(mean.shape, generator=self.generator) * torch.exp(log_variance / 2)

    def loss(self, inputs: Tensor) -> Tensor:
        """Return squared error plus divergence from the unit normal, both summed over the batch (the paper's J)."""
        mean, log_variance = self.encode(inputs)
        outputs = self.decoder(self.sample(mean, log_variance))
        divergence = -0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())
        return torch.sum((outputs - inputs) ** 2) + divergence

    @torch.no_grad()
    def error(self, difference: Tensor) -> float:
        """Return the summed squared error of one (width,) difference, averaged over latent samples."""
        inputs = torch.sigmoid(difference)[None]
        mean, log_variance = self.encode(inputs)
        outputs = [self.decoder(self.sample(mean, log_variance)) for _ in range(LATENT_SAMPLES)]
        errors = [float(torch.sum((output - inputs) ** 2)) for output in outputs]
        return sum(errors) / LATENT_SAMPLES


def compute_differences(rows: Tensor) -> Tensor:
    """Return the (n (n - 1), d) differences between every row and every other (the paper's U)."""
    return torch.stack([rows[i] - rows[j] for i in range(len(rows)) for j in range(len(rows)) if i != j])


def train_vae(vae: VAE, differences: Tensor, epochs: int) -> None:
    """Fit the auto-encoder to these differences, with a new optimiser at each call."""
    inputs = torch.sigmoid(differences)
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(inputs), generator=vae.generator), BATCH):
            optimizer.zero_grad()
            vae.loss(inputs[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def score_candidate(vae: VAE, elected: Tensor, candidate: Tensor) -> float:
    """Return the reconstruction error of a candidate's differences to the elected rows, in both directions."""
    differences = [sign * (row - candidate) for row in elected for sign in (1, -1)]
    return sum(vae.error(difference) for difference in differences) / len(differences)


def grow_elected(count: int, first: Sequence[int], target: int, step: int, score: Score) -> list[int]:
    """Elect the `step` rows with the lowest scores, repeatedly, until `target` of `count` rows are elected."""
    elected, target = list(first), min(target, count)
    while len(elected) < target:
        candidates = [row for row in range(count) if row not in elected]
        ranking = np.argsort(np.asarray(score(elected, candidates)), kind="stable")
        elected += [candidates[place] for place in ranking[: min(step, target - len(elected))]]
    return elected


def elect_top_down(
    rows: Tensor,
    first: Sequence[int],
    target: int,
    step: int,
    *,
    generator: torch.Generator,
    first_epochs: int = 270,
    tune_epochs: int = 30,
    hidden: int = 256,
    latent: int = 64,
    build: type[VAE] = VAE,
) -> list[int]:
    """Grow the selectees to `target` of the (K, d) rows, and return the elected rows in the order of election."""
    vae = build(rows.shape[1], hidden, latent, generator)
    train_vae(vae, compute_differences(rows[list(first)]), first_epochs)

    def score(elected: list[int], candidates: list[int]) -> list[float]:
        train_vae(vae, compute_differences(rows[elected]), tune_epochs)
        return [score_candidate(vae, rows[elected], rows[candidate]) for candidate in candidates]

    return grow_elected(len(rows), first, target, step, score)

"""The judges of the top-down election: they score how much a candidate resembles the elected.

The election calls a judge with the elected rows and the candidates, again each time the elected grow. The judge scores
each candidate; low is good.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import Protocol

import torch
from torch import Tensor

from snowball.defenses.ops import compute_clip_factors, compute_coordinates, compute_squared_distances, project_rows
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.threads import use_threads
from snowball.updates import Updates

PUBLISHED_BATCH = 8
SPAN_BATCH = 64
FARTHEST = 100
"""The longest length of a row, as a multiple of the median: beside a longer row, coordinates would lose the others."""


class Judge(Protocol):
    """Scores candidates by their differences from the elected; low is good."""

    def __call__(self, elected: Tensor, candidates: Tensor) -> Tensor:
        """Return the (c,) scores of the candidates, given the rows elected so far."""
        ...


class Appoint(Protocol):
    """Makes a judge for a round's updates in these layers."""

    def __call__(
        self, updates: Updates, layers: Sequence[str], vae: VAESettings, rng: torch.Generator, device: str = "cpu"
    ) -> Judge:
        """Return a judge; it does the heavy computation on the device, with draws from the CPU's generator."""
        ...


def judge_by_distance(
    updates: Updates, layers: Sequence[str], vae: VAESettings, rng: torch.Generator, device: str = "cpu"
) -> Judge:
    """Judge by the mean squared distance to the elected: the closed form of what the published judge amounts to."""
    distances = compute_squared_distances(_sum_products(updates, layers))
    return lambda elected, candidates: distances[candidates][:, elected].mean(1)


def judge_by_vae(
    updates: Updates, layers: Sequence[str], vae: VAESettings, rng: torch.Generator, device: str = "cpu"
) -> Judge:
    """Judge by the VAE as published, on the logistic function of differences, column by column."""
    rows = _read_layers(updates, layers)
    return VAEJudge(rows, VAE(rows.shape[1], vae, rng, PUBLISHED_BATCH, bounded=True, device=device))


def judge_by_updates_vae(
    updates: Updates, layers: Sequence[str], vae: VAESettings, rng: torch.Generator, device: str = "cpu"
) -> Judge:
    """Judge by the same VAE, trained on the elected instead of their differences: a baseline of the paper."""
    rows = _read_layers(updates, layers)
    return _UpdatesJudge(rows, VAE(rows.shape[1], vae, rng, PUBLISHED_BATCH, bounded=True, device=device))


def judge_by_span_vae(
    updates: Updates, layers: Sequence[str], vae: VAESettings, rng: torch.Generator, device: str = "cpu"
) -> Judge:
    """Judge by the VAE on scaled coordinates in the updates' span: its cost does not depend on the model's size."""
    products = _sum_products(updates, layers)
    lengths = products.diagonal().sqrt()
    kept = compute_clip_factors(lengths, FARTHEST * float(lengths.median()) or 1.0)
    rows = compute_coordinates(products * kept * kept[:, None])[:, :-1]  # centred rows need one column less
    spread = rows.square().mean(1).median().sqrt()  # centred: differences of rows have twice this mean square
    rows = (rows / (spread * 2**0.5) if spread > 0 else rows).float()
    return VAEJudge(rows, VAE(rows.shape[1], vae, rng, SPAN_BATCH, bounded=False, device=device))


JUDGES: dict[str, Appoint] = {
    "vae": judge_by_vae,
    "vae-updates": judge_by_updates_vae,
    "vae-span": judge_by_span_vae,
    "distance": judge_by_distance,
}


class VAEJudge:
    """Learns the differences between the elected, more of them at each call, and scores by reconstruction error."""

    def __init__(self, rows: Tensor, vae: VAE) -> None:
        self.rows = rows.to(vae.device)  # (n, d)
        self.vae = vae
        self.fresh = True

    def __call__(self, elected: Tensor, candidates: Tensor) -> Tensor:
        """Return the (c,) reconstruction errors of the candidates."""
        with use_threads(1):
            return self._judge(elected, candidates).cpu()

    def _judge(self, elected: Tensor, candidates: Tensor) -> Tensor:
        if len(elected) < 2:  # no differences to learn from: score by distance
            return (self.rows[candidates].double() - self.rows[elected]).square().sum(1)
        known = self._known(self.rows[elected])
        if self.fresh:
            self.vae.learn(known, self.vae.settings.first_epochs)
            self.fresh = False
        self.vae.learn(known, self.vae.settings.tune_epochs)
        return torch.stack([self._score(self._seen(row, elected)) for row in candidates.tolist()])

    def places(self, elected: Tensor) -> Tensor:
        """Return the (n, 2) coordinates of the rows' mean codes, along the two directions in which they differ most."""
        with use_threads(1):
            means = [self.vae.codes(self._seen(row, elected)).mean(0) for row in range(len(self.rows))]
        codes = torch.stack(means).cpu().double().nan_to_num()
        return project_rows(codes @ codes.T)

    def _known(self, elected: Tensor) -> Tensor:
        """Return the (m, d) inputs to learn from the elected."""
        return _subtract_pairs(elected)

    def _seen(self, row: int, elected: Tensor) -> Tensor:
        """Return the (s, d) inputs that a row is scored by."""
        return self.rows[elected] - self.rows[row]

    def _score(self, seen: Tensor) -> Tensor:
        return self.vae.errors(torch.cat([seen, -seen])).mean()


class _UpdatesJudge(VAEJudge):
    """Learns the elected themselves."""

    def _known(self, elected: Tensor) -> Tensor:
        return elected

    def _seen(self, row: int, elected: Tensor) -> Tensor:
        return self.rows[row][None]

    def _score(self, seen: Tensor) -> Tensor:
        return self.vae.errors(seen).mean()


def _read_layers(updates: Updates, layers: Sequence[str]) -> Tensor:
    """Return the (n, d) columns of the layers side by side."""
    places = [torch.arange(*updates.layout.columns[layer].indices(updates.layout.width)) for layer in layers]
    return updates.read_columns(torch.cat(places)).float()


def _subtract_pairs(rows: Tensor) -> Tensor:
    """Return the (m (m - 1), d) differences of every row from every other."""
    first, second = torch.tensor([*permutations(range(len(rows)), 2)]).T
    return rows[first] - rows[second]


def _sum_products(updates: Updates, layers: Sequence[str]) -> Tensor:
    """Return the inner products of the rows over all these layers."""
    return torch.stack([updates.products(layer) for layer in layers]).sum(0)

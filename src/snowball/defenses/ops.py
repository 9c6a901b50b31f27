"""The operations that defenses are composed of: selectors return a mask, reducers take one."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from snowball.errors import SettingError
from snowball.products import centre_products
from snowball.updates import Updates


def elect_everyone(updates: Updates) -> Tensor:
    """Return a mask of all rows."""
    return torch.ones(len(updates), dtype=torch.bool)


def elect_highest(scores: Tensor, count: int, lots: Tensor) -> Tensor:
    """Return a mask of the `count` rows that score highest; the lower lot breaks ties."""
    return elect_lowest(-scores, count, lots)


def elect_lowest(scores: Tensor, count: int, lots: Tensor) -> Tensor:
    """Return a mask of the `count` rows that score lowest; the lower lot breaks ties."""
    elected = torch.zeros(len(scores), dtype=torch.bool)
    elected[rank_lowest(scores, lots)[:count]] = True
    return elected


def rank_lowest(scores: Tensor, lots: Tensor) -> Tensor:
    """Return the (n,) rows from the lowest score to the highest; the lower lot breaks ties."""
    drawn = lots.argsort()
    return drawn[scores[drawn].argsort(stable=True)]


def count_ties(scores: Tensor, elected: Tensor) -> int:
    """Count the rows that tie with the last elected one, if the lot decided between them; else return 0."""
    if elected.all() or not elected.any():
        return 0
    tied = scores == scores[elected].min()
    return int(tied.sum()) if (tied & ~elected).any() else 0


def average_by_examples(updates: Updates, elected: Tensor) -> Tensor:
    """Return the mean of the elected rows, weighted by examples; zero if no row is elected."""
    if not elected.any():
        return torch.zeros(updates.layout.width, dtype=updates.dtype)
    return updates.mean(updates.examples * elected)


def average_equally(updates: Updates, elected: Tensor) -> Tensor:
    """Return the unweighted mean of the elected rows; zero if no row is elected."""
    if not elected.any():
        return torch.zeros(updates.layout.width, dtype=updates.dtype)
    return updates.mean(elected)


def average_clipped(updates: Updates, elected: Tensor, bound: float) -> Tensor:
    """Return the unweighted mean of the elected rows after clipping their lengths to `bound`."""
    weights = elected * compute_clip_factors(updates.squared_norms.sqrt(), bound)
    return updates.combine(weights / elected.sum().clamp(min=1))


def add_noise(row: Tensor, deviation: float, rng: torch.Generator) -> Tensor:
    """Return the row plus Gaussian noise of this standard deviation on every entry."""
    noise = torch.randn(row.shape, generator=rng, dtype=torch.float32)
    return row + deviation * noise.to(row.dtype)


def compute_clip_factors(norms: Tensor, bound: float) -> Tensor:
    """Return the factors that clip rows of these norms to `bound`; 1 for rows that are not longer."""
    if not bound >= 0:
        raise SettingError(f"a clipping bound cannot be negative, got {bound}")
    return torch.where(norms > bound, bound / norms, torch.ones_like(norms))


def sort_rows(rows: Tensor) -> Tensor:
    """Sort the values within each row; NumPy is several times as fast as torch here, but does not support bfloat16."""
    values = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    return torch.from_numpy(np.sort(values.numpy(), axis=1))


def compute_medians(values: Tensor) -> Tensor:
    """Return the (w,) medians of (w, n) sorted rows, in float64, in which the sum of two huge values is finite."""
    count = values.shape[1]
    return values[:, (count - 1) // 2 : count // 2 + 1].double().mean(1)


def compute_squared_distances(gram: Tensor) -> Tensor:
    """Return the (n, n) squared distances behind a Gram matrix; never negative, zero on the diagonal."""
    squares = gram.diagonal()
    return (squares[:, None] + squares - 2 * gram).clamp_(min=0)


def compute_cosines(products: Tensor) -> Tensor:
    """Return the rows' (n, n) cosines from their inner products about zero; 0 for a row of zeros."""
    norms = products.diagonal().clamp(min=0).sqrt()
    scale = norms[:, None] * norms
    return torch.where(scale > 0, products / scale, 0).clamp(-1, 1)


def compute_coordinates(gram: Tensor) -> Tensor:
    """Return the centred rows behind a Gram matrix in as few columns as they need, largest variance first.

    The result is (n, n) and keeps the distances between rows; unneeded columns are zero up to rounding. The sign of an
    eigenvector is arbitrary, so each column is flipped to make its largest entry positive.
    """
    squares, vectors = torch.linalg.eigh(centre_products(gram))  # ascending
    rows: Tensor = (vectors * squares.clamp(min=0).sqrt()).flip(1)
    return rows * rows.gather(0, rows.abs().argmax(0, keepdim=True)).sign()


def project_rows(gram: Tensor) -> Tensor:
    """Return (n, 2) positions along the two directions in which the rows behind a Gram matrix differ most."""
    return pad(compute_coordinates(gram), (0, 2))[:, :2]


def count_rows(setting: int | float, rows: int, rounding: Callable[[float], int]) -> int:
    """Return the number of rows that a setting means: a float is a share of the rows, an int is their number."""
    if isinstance(setting, int):
        return setting
    return rounding(round(setting * rows, 9))  # whole up to rounding counts as whole


def check_count(name: str, setting: int | float) -> None:
    """Refuse a setting that is neither a share of the rows nor a number of rows."""
    if not setting >= 0 or (isinstance(setting, float) and setting > 1):
        raise SettingError(f"{name} must be a share in [0, 1] or a whole number, got {setting}")

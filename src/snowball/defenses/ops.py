"""Plain operations that defenses are composed of: a selector makes a mask, a reducer takes it."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from snowball.errors import SettingError
from snowball.updates import Updates, centre_products


def elect_everyone(updates: Updates) -> Tensor:
    """A mask of all rows."""
    return torch.ones(len(updates), dtype=torch.bool)


def elect_highest(scores: Tensor, count: int, lots: Tensor) -> Tensor:
    """A mask of the `count` rows that score highest; equal scores go by the lower lot."""
    return elect_lowest(-scores, count, lots)


def elect_lowest(scores: Tensor, count: int, lots: Tensor) -> Tensor:
    """A mask of the `count` rows that score lowest; equal scores go by the lower lot."""
    elected = torch.zeros(len(scores), dtype=torch.bool)
    elected[rank_lowest(scores, lots)[:count]] = True
    return elected


def rank_lowest(scores: Tensor, lots: Tensor) -> Tensor:
    """(n,) the rows from the lowest score to the highest; equal scores go by the lower lot."""
    drawn = lots.argsort()
    return drawn[scores[drawn].argsort(stable=True)]


def count_ties(scores: Tensor, elected: Tensor) -> int:
    """Count the rows that score as the last elected one does, if the lot decided between them; else return 0."""
    if elected.all() or not elected.any():
        return 0
    tied = scores == scores[elected].min()
    return int(tied.sum()) if (tied & ~elected).any() else 0


def average_by_examples(updates: Updates, elected: Tensor) -> Tensor:
    """The mean of the elected rows, each as heavy as its examples; zero where nobody is elected."""
    if not elected.any():
        return torch.zeros(updates.layout.width, dtype=updates.dtype)
    return updates.mean(updates.examples * elected)


def average_equally(updates: Updates, elected: Tensor) -> Tensor:
    """The mean of the elected rows, one as heavy as the other; zero where nobody is elected."""
    if not elected.any():
        return torch.zeros(updates.layout.width, dtype=updates.dtype)
    return updates.mean(elected.double())


def average_clipped(updates: Updates, elected: Tensor, bound: float) -> Tensor:
    """The plain mean of the elected rows, those longer than `bound` shortened to it."""
    weights = elected * compute_clip_factors(updates.squared_norms.sqrt(), bound)
    return updates.combine(weights / elected.sum().clamp(min=1))


def add_noise(row: Tensor, deviation: float, rng: torch.Generator) -> Tensor:
    """The row with Gaussian noise of this standard deviation on every entry."""
    noise = torch.randn(row.shape, generator=rng, dtype=torch.float32)
    return row + deviation * noise.to(row.dtype)


def compute_clip_factors(norms: Tensor, bound: float) -> Tensor:
    """Return the factor for each row with which none is longer than `bound`."""
    if not bound >= 0:
        raise SettingError(f"a clipping bound cannot be negative, got {bound}")
    return torch.where(norms > bound, bound / norms, torch.ones_like(norms))


def sort_rows(rows: Tensor) -> Tensor:
    """The rows, each with its values sorted; NumPy does so several times as fast as torch, but knows no bfloat16."""
    values = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    return torch.from_numpy(np.sort(values.numpy(), axis=1))


def compute_medians(values: Tensor) -> Tensor:
    """(w,) the medians of sorted rows (w, n), in float64, where the sum of two huge ones is finite."""
    count = values.shape[1]
    return values[:, (count - 1) // 2 : count // 2 + 1].double().mean(1)


def compute_squared_distances(gram: Tensor) -> Tensor:
    """The (n, n) squared distances behind a Gram matrix; never negative, zero on the diagonal."""
    squares = gram.diagonal()
    return (squares[:, None] + squares - 2 * gram).clamp_(min=0).fill_diagonal_(0)


def compute_cosines(products: Tensor) -> Tensor:
    """(n, n) the rows' cosines from their inner products about zero; a row of zeros has none with anybody: 0."""
    norms = products.diagonal().clamp(min=0).sqrt()
    scale = norms[:, None] * norms
    return torch.where(scale > 0, products / scale.where(scale > 0, 1), 0).clamp(-1, 1)


def compute_coordinates(gram: Tensor) -> Tensor:
    """(n, n) the rows behind a Gram matrix, centred, in as few columns as they need, the most telling first.

    Distances are those of the rows. Each column's largest entry is positive, since eigenvectors come with any sign.
    """
    squares, vectors = torch.linalg.eigh(centre_products(gram))  # ascending
    rows: Tensor = (vectors * squares.clamp(min=0).sqrt()).flip(1)
    return rows * rows.gather(0, rows.abs().argmax(0, keepdim=True)).sign()


def project_rows(gram: Tensor) -> Tensor:
    """(n, 2) each row's place along the two directions in which the rows behind a Gram matrix differ most."""
    return pad(compute_coordinates(gram), (0, 2))[:, :2]


def count_rows(setting: int | float, rows: int, rounding: Callable[[float], int]) -> int:
    """Return how many rows a setting means: a float is a share of them, an int is their number."""
    if isinstance(setting, int):
        return setting
    return rounding(round(setting * rows, 9))  # what is whole but for rounding is taken as whole


def check_count(name: str, setting: int | float) -> None:
    """Refuse what is neither a share of the rows nor a number of them."""
    if not setting >= 0 or (isinstance(setting, float) and setting > 1):
        raise SettingError(f"{name} must be a share in [0, 1] or a whole number, got {setting}")

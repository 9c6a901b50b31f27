"""Plain operations that defenses are composed of: a selector makes a mask, a reducer takes it."""

import torch
from torch import Tensor

from snowball.errors import SettingError
from snowball.updates import Updates, centred


def everyone(updates: Updates) -> Tensor:
    """A mask of all rows."""
    return torch.ones(len(updates), dtype=torch.bool)


def highest(updates: Updates, scores: Tensor, count: int) -> Tensor:
    """A mask of the `count` rows that score highest; equal scores go by `Updates.order`."""
    return lowest(updates, -scores, count)


def lowest(updates: Updates, scores: Tensor, count: int) -> Tensor:
    """A mask of the `count` rows that score lowest; equal scores go by `Updates.order`."""
    elected = torch.zeros(len(updates), dtype=torch.bool)
    elected[updates.order[scores[updates.order].argsort(stable=True)[:count]]] = True
    return elected


def weighted_mean(updates: Updates, elected: Tensor) -> Tensor:
    """The mean of the elected rows, each as heavy as its examples; zero where nobody is elected."""
    if not elected.any():
        return updates.values.new_zeros(updates.layout.width)
    return updates.mean(updates.examples * elected)


def clip_factors(norms: Tensor, bound: float) -> Tensor:
    """What to multiply each row by so that none is longer than `bound`."""
    if bound <= 0:
        raise SettingError(f"a clipping bound must be positive, got {bound}")
    return torch.where(norms > bound, bound / norms, torch.ones_like(norms))


def squared_distances(gram: Tensor) -> Tensor:
    """The (n, n) squared distances behind a Gram matrix; never negative, zero on the diagonal."""
    squares = gram.diagonal()
    return (squares[:, None] + squares - 2 * gram).clamp_(min=0).fill_diagonal_(0)


def principal_coordinates(gram: Tensor) -> Tensor:
    """(n, n) the rows behind a Gram matrix, centred, in as few columns as they need, the most telling first.

    Distances are those of the rows. Each column's largest entry is positive, since eigenvectors come with any sign.
    """
    squares, vectors = torch.linalg.eigh(centred(gram))  # ascending
    rows: Tensor = (vectors * squares.clamp(min=0).sqrt()).flip(1)
    return rows * rows.gather(0, rows.abs().argmax(0, keepdim=True)).sign()

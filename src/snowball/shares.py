"""The shares of an average, and their limit."""

import torch
from torch import Tensor

SMALLEST_SHARE = 1e-15
"""Shares of an average up to this one count as zero where shares are limited."""


def limit_shares(shares: Tensor, limit: float) -> Tensor:
    """Return (n,) shares of a whole, none above the limit: what is cut off goes to the others in proportion.

    If the limit is too low for the number of shares that are not zero, these become equal.
    """
    if float(shares.max()) <= limit:
        return shares
    shares = shares.where(shares > SMALLEST_SHARE, 0)  # the quotients of smaller ones overflow
    held = shares > 0
    if limit * int(held.sum()) <= 1:
        return held.double() / held.sum()
    limited = torch.zeros_like(held)
    while True:
        rest = 1 - limit * int(limited.sum())
        spread = (shares * ~limited) * (rest / shares[~limited].sum())
        above = spread > limit
        if not above.any():
            return torch.where(limited, limit, spread)
        limited |= above

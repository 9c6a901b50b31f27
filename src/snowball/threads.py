"""Sets the number of threads that torch computes with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the context; rounding in sums depends on how threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

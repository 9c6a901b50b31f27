"""Controls the random draws of torch layers, which take no generator and use the global one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def draw_from(rng: torch.Generator, device: str = "cpu") -> Iterator[None]:
    """Let new layers and dropout draw from this generator, and restore the global one afterwards."""
    with torch.random.fork_rng([] if device == "cpu" else [device]):
        torch.set_rng_state(rng.get_state())
        if device != "cpu":
            torch.cuda.manual_seed(rng.initial_seed())
        yield
        rng.set_state(torch.get_rng_state())

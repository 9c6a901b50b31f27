"""Draws that torch leaves no choice about: layers that take no generator draw from the global one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def drawing_from(rng: torch.Generator, device: str = "cpu") -> Iterator[None]:
    """Let fresh layers and dropout draw from this generator; the global one is then as if nothing had been drawn."""
    with torch.random.fork_rng([] if device == "cpu" else [device]):
        torch.set_rng_state(rng.get_state())
        if device != "cpu":
            torch.cuda.manual_seed(rng.initial_seed())
        yield
        rng.set_state(torch.get_rng_state())

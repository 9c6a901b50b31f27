"""Named random streams: one seed, one generator per purpose, so that no draw depends on what ran before it."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *name: str | int) -> int:
    """Return a 63-bit seed for one purpose; different names give different seeds.

    A name can be any text, such as a client's id.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *name))
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def stream(seed: int, *name: str | int) -> "torch.Generator":
    """Return a torch generator for one purpose, e.g. `stream(seed, "client", 7, "round", 3)`."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *name))


def numpy_stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return a NumPy generator for one purpose, for distributions that torch cannot draw from a generator."""
    return np.random.default_rng(derive(seed, *name))

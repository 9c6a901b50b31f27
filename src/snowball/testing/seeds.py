"""Catches code that draws from a global random generator or depends on its seed."""

import random
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


def run_under_two_seeds(act: Callable[[], Result]) -> tuple[Result, Result]:
    """Run a function under two global seeds, and check that it does not draw from a global generator."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        return _undrawn(act, 1), _undrawn(act, 2)
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def _undrawn(act: Callable[[], Result], seed: int) -> Result:
    expected = _seeded(seed)()
    draw = _seeded(seed)
    result = act()
    assert draw() == expected, "a global random generator was used, and not the stream that is handed in"
    return result


def _seeded(seed: int) -> Callable[[], tuple[float, ...]]:
    """Set all global seeds; return a function that draws one number from each generator."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return lambda: (random.random(), np.random.random(), float(torch.rand(())))

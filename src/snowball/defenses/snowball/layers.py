"""Reads the elections' settings for a round: the layers that vote, and the number of rows that a share stands for."""

from collections.abc import Callable
from typing import Literal

from snowball.errors import SettingError
from snowball.layout import Layout

Layers = Literal["ends", "all"] | tuple[str, ...]


def select_voting_layers(layout: Layout, layers: Layers) -> tuple[str, ...]:
    """Return the layers that vote: the first and last weight layer, all weight layers, or those named."""
    if layers == "ends":
        return tuple(dict.fromkeys((layout.weights[0], layout.weights[-1])))
    if layers == "all":
        return layout.weights
    if isinstance(layers, str) or not layers:
        raise SettingError(f"layers must be 'ends', 'all' or names of layers, got {layers!r}")
    for name in layers:
        if name not in layout.names:
            raise SettingError(f"layer {name!r} is not in the model, whose layers are {', '.join(layout.names)}")
    return tuple(layers)


def count_share(share: float, rows: int, rounding: Callable[[float], int]) -> int:
    """Return the number of rows that a share stands for, at least one; rounding errors do not count."""
    return max(1, rounding(round(share * rows, 9)))


def check_share(name: str, share: float) -> None:
    """Refuse a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise SettingError(f"{name} must lie in (0, 1], got {share}")

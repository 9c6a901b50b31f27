"""The parts of a verdict that change a model."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from snowball.errors import UpdateError


@runtime_checkable
class Decision(Protocol):
    """The parts of a verdict that change a model."""

    @property
    def delta(self) -> Tensor:
        """The (d,) change of the global model."""
        ...

    @property
    def elected(self) -> Tensor:
        """The (n,) mask of the rows that the change is made from."""
        ...


def check_decision(verdict: Any, rows: int, width: int) -> None:
    """Refuse anything but a verdict on rows of this number and width."""
    if not isinstance(verdict, Decision):
        raise UpdateError(f"a verdict is needed, as a defense returns it, got {type(verdict).__name__}")
    if verdict.elected.shape != (rows,) or verdict.delta.shape != (width,):
        given = f"{verdict.elected.numel()} and {verdict.delta.numel()}"
        raise UpdateError(f"a verdict on {rows} rows of {width} columns is needed, got one on {given}")

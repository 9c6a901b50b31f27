"""Norm clipping: limit the length of every update.

Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019. If an attacker scales up its update
to replace the model, the update is clipped to the length that every client may send.

Deviations: the paper asks clients for updates of bounded length and lets the server clip the others; here only the
server clips. The mean is unweighted.
"""

from dataclasses import dataclass
from typing import ClassVar

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_clipped, elect_everyone
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class NormClip:
    """Average all updates after clipping their lengths to a bound.

    Attributes:
        bound: the maximum length (the paper's M); backdoor benchmarks use 3 to 5.
    """

    min_updates: ClassVar[int] = 3
    bound: float = 3.0

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bound(self.bound)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Clip the long updates and average."""
        elected = elect_everyone(updates)
        facts = {"lengths": updates.squared_norms.sqrt()}
        return Verdict(average_clipped(updates, elected, self.bound), elected, facts)


def check_bound(bound: float) -> None:
    """Refuse a bound that is not positive, which would erase every update."""
    if not bound > 0:
        raise SettingError(f"bound must be a positive length, got {bound}")

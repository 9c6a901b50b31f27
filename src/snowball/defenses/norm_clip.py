"""Norm clipping: no update is longer than a bound.

Sun, Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019. An attacker that scales its update
up to replace the model is cut back to what anybody may send.

Deviations: the paper asks clients for updates of bounded length and lets the server shorten the others; here it is the
server alone. The mean is plain.
"""

from dataclasses import dataclass

from snowball.defenses.base import Context, Verdict
from snowball.defenses.ops import average_clipped, elect_everyone
from snowball.errors import SettingError
from snowball.updates import Updates


@dataclass(frozen=True)
class NormClip:
    """Average all updates, those longer than a bound shortened to it.

    Attributes:
        bound: the greatest length (the paper's M); 3 to 5 in benchmarks of backdoors.
    """

    bound: float = 3.0

    def __post_init__(self) -> None:
        """Refuse settings that no round can satisfy."""
        check_bound(self.bound)

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        """Shorten what is too long and average."""
        elected = elect_everyone(updates)
        facts = {"lengths": updates.squared_norms.sqrt()}
        return Verdict(average_clipped(updates, elected, self.bound), elected, facts)


def check_bound(bound: float) -> None:
    """Refuse a length that leaves nothing of any update."""
    if not bound > 0:
        raise SettingError(f"bound must be a positive length, got {bound}")

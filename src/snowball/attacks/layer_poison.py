"""Layer poisoning: a backdoor in only the layers that it needs.

Zhuang, Yu, Wang, Hua, Li, Yuan: Backdoor Federated Learning by Poisoning Backdoor-Critical Layers, ICLR 2024.

A malicious client trains an honest model and a backdoored one, finds the layers without which the backdoor fails, and
sends the honest model with only these layers exchanged. In the other layers it looks like an honest client.

Deviations: layers are tried one by one on the attacker's own triggered samples and exchanged until the backdoor success
reaches `enough` of the backdoored model's. The original ranks them by the drop when each is restored.
"""

from dataclasses import dataclass

from torch import Tensor

from snowball.attacks.base import LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_share


@dataclass(frozen=True)
class LayerPoison(CBA):
    """Every malicious client poisons only the layers that the backdoor needs.

    Attributes:
        enough: share of the backdoored model's backdoor success that suffices (tau).
        spare: names of layers that are never poisoned, such as those that a defense is known to inspect.
    """

    enough: float = 0.95
    spare: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        check_share("enough", self.enough)

    def train(self, session: LocalSession) -> Tensor:
        """Return the honest model with the layers exchanged that the backdoor needs most."""
        backdoored, honest = session.train(), session.train(clean=True)
        wanted = self.enough * session.measure_backdoor_success(backdoored)
        left = [name for name in session.layout.names if name not in self.spare]
        mixed = honest
        while left and session.measure_backdoor_success(mixed) < wanted:
            tried = {name: copy_columns(mixed, backdoored, session.layout.columns[name]) for name in left}
            best = max(tried, key=lambda name: session.measure_backdoor_success(tried[name]))  # the first of equals
            mixed = tried[best]
            left.remove(best)
        return mixed


def copy_columns(row: Tensor, other: Tensor, columns: slice) -> Tensor:
    """Return the row with these columns of the other row."""
    mixed = row.clone()
    mixed[columns] = other[columns]
    return mixed

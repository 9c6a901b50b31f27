"""Layer poisoning: a backdoor in the few layers that it needs.

Zhuang, Yu, Wang, Hua, Li, Yuan: Backdoor Federated Learning by Poisoning Backdoor-Critical Layers, ICLR 2024.

A malicious client trains an honest model and a backdoored one, finds the layers without which the backdoor fails, and
sends the honest model with only these exchanged. Whoever compares the other layers sees an honest client.

Deviations: layers are tried one by one on the attacker's own triggered samples, and taken until the honest model with
them obeys as well as `enough` of the backdoored one; the original ranks them by the drop when each is taken back.
"""

from dataclasses import dataclass

from torch import Tensor

from snowball.attacks.base import Work, check_share
from snowball.attacks.cba import Cba


@dataclass(frozen=True)
class LayerPoison(Cba):
    """Every malicious client poisons only the layers that the backdoor needs.

    Attributes:
        enough: share of the backdoored model's obedience at which no more layers are poisoned (tau).
        spare: names of layers that are never poisoned, such as those a defense is known to look at.
    """

    enough: float = 0.95
    spare: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        check_share("enough", self.enough)

    def train(self, work: Work) -> Tensor:
        """The honest model with the layers exchanged that the backdoor needs most."""
        backdoored, honest = work.sgd(), work.sgd(clean=True)
        wanted = self.enough * work.obedience(backdoored)
        left = [name for name in work.layout.names if name not in self.spare]
        mixed = honest
        while left and work.obedience(mixed) < wanted:
            tried = {name: exchanged(mixed, backdoored, work, name) for name in left}
            best = max(tried, key=lambda name: work.obedience(tried[name]))  # the first of equals
            mixed = tried[best]
            left.remove(best)
        return mixed


def exchanged(row: Tensor, other: Tensor, work: Work, layer: str) -> Tensor:
    """A row with one layer of another."""
    columns = work.layout.columns[layer]
    mixed = row.clone()
    mixed[columns] = other[columns]
    return mixed

"""An attacker who knows Snowball.

Ours: what a defense is worth shows against those who know it. Snowball votes in a few layers and then lets join who is
near the selectees in these. Every malicious client trains an honest model beside the backdoored one and sends the
honest one's voting layers with the backdoored rest; the colluders draw these layers together around their mean, where a
small cluster gets clear votes and no selectee is far.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import Scene, View, Work, check_share
from snowball.attacks.cba import Cba
from snowball.errors import SettingError
from snowball.updates import Layout


@dataclass(frozen=True)
class Adaptive(Cba):
    """All malicious clients look honest in the layers that Snowball votes in, and stand close together there.

    Attributes:
        layers: the layers that are known to vote; () for the first and last weight layer.
        apart: how far the colluders stay from their mean in these, as a share of how far they were.
    """

    view: ClassVar[View] = "colluders"
    layers: tuple[str, ...] = ()
    apart: float = 0.5

    def __post_init__(self) -> None:
        """Refuse settings that cannot be."""
        super().__post_init__()
        check_share("apart", self.apart)

    def train(self, work: Work) -> Tensor:
        """The backdoored model with the voting layers of an honest one."""
        backdoored, honest = work.sgd(), work.sgd(clean=True)
        for columns in self._voting(work.layout):
            backdoored[columns] = honest[columns]
        return backdoored

    def craft(self, scene: Scene, rng: torch.Generator) -> Tensor:
        """The updates, their voting layers drawn together."""
        rows = scene.rows.clone()
        for columns in self._voting(scene.layout):
            mean = rows[:, columns].mean(0)
            rows[:, columns] = mean + self.apart * (rows[:, columns] - mean)
        return rows

    def _voting(self, layout: Layout) -> list[slice]:
        names = self.layers or dict.fromkeys((layout.weights[0], layout.weights[-1]))
        for name in names:
            if name not in layout.columns:
                raise SettingError(f"layer {name!r} is not in the model, whose layers are {', '.join(layout.names)}")
        return [layout.columns[name] for name in names]

"""An attacker who knows Snowball.

Ours: a defense must be tested against those who know it. Snowball votes in a few layers and then elects the updates
that are near the selectees in these layers. Every malicious client trains an honest model beside the backdoored one.
It sends the voting layers of the honest model and the other layers of the backdoored one. The colluders move their
voting layers towards their mean: a small cluster gets clear votes and is near every selectee.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from snowball.attacks.base import AttackerView, Knowledge, LocalSession
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import check_share
from snowball.errors import SettingError
from snowball.layout import Layout


@dataclass(frozen=True)
class Adaptive(CBA):
    """All malicious clients look honest and similar in the layers that Snowball votes in.

    Attributes:
        layers: the layers that are known to vote; () means the first and last weight layer.
        apart: distance of the colluders from their mean in these layers, as a share of the original distance.
    """

    knowledge: ClassVar[Knowledge] = "colluders"
    layers: tuple[str, ...] = ()
    apart: float = 0.5

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        check_share("apart", self.apart)

    def train(self, session: LocalSession) -> Tensor:
        """Return the backdoored model with the voting layers of an honest one."""
        backdoored, honest = session.train(), session.train(clean=True)
        for columns in self._list_voting_columns(session.layout):
            backdoored[columns] = honest[columns]
        return backdoored

    def craft(self, view: AttackerView, rng: torch.Generator) -> Tensor:
        """Return the updates with their voting layers moved towards the mean."""
        rows = view.rows.clone()
        for columns in self._list_voting_columns(view.layout):
            mean = rows[:, columns].mean(0)
            rows[:, columns] = mean + self.apart * (rows[:, columns] - mean)
        return rows

    def _list_voting_columns(self, layout: Layout) -> list[slice]:
        names = self.layers or dict.fromkeys((layout.weights[0], layout.weights[-1]))
        for name in names:
            if name not in layout.columns:
                raise SettingError(f"layer {name!r} is not in the model, whose layers are {', '.join(layout.names)}")
        return [layout.columns[name] for name in names]

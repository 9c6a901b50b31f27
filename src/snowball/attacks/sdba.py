"""SDBA: a backdoor in the recurrent weights that clean training hardly moves.

SDBA: A Stealthy and Long-Lasting Durable Backdoor Attack in Federated Learning, IEEE TDSC 2025.

Malicious clients change only weights of recurrent layers, those with the smallest gradient on clean texts, and keep the
model within a ball around the global one. Honest training does not overwrite the backdoor, clipping has no effect, and
a defense that looks at dense layers sees no change there.

Deviations: the clean gradient is that of the attacker's own texts; the published code takes it over texts of ninety
clients. Attackers have the common learning rate and number of epochs. Both directions of a bidirectional layer are
poisoned. The paper's variants for transformers are not here: a model without a recurrent layer is refused.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from snowball.attacks.base import LocalSession
from snowball.attacks.pgd import project_into_ball
from snowball.attacks.poisoning import check_positive, check_share
from snowball.attacks.text import Text
from snowball.errors import SettingError
from snowball.layout import Layout


@dataclass(frozen=True)
class SDBA(Text):
    """Every malicious client plants a word in recurrent weights that clean training hardly moves.

    Attributes:
        input_share: share of the weights from the input to the gates that may change, those of smallest gradient (ih).
        recurrent_share: share of the weights from the state to the gates that may change, likewise (hh).
        radius: radius of the ball around the global model (s_norm).
    """

    input_share: float = 0.2
    recurrent_share: float = 1.0
    radius: float = 3.0

    def __post_init__(self) -> None:
        """Reject invalid settings."""
        super().__post_init__()
        check_share("input_share", self.input_share)
        check_share("recurrent_share", self.recurrent_share)
        check_positive("radius", self.radius)

    def train(self, session: LocalSession) -> Tensor:
        """Train only the chosen recurrent weights, with a projection after every step."""
        allowed = self.select_weights(session.compute_gradient(clean=True), session.layout)

        def confine(weights: Tensor) -> None:
            torch.where(allowed, weights, session.start, out=weights)
            project_into_ball(weights, session.start, self.radius)

        return session.train(after=confine)

    def select_weights(self, gradient: Tensor, layout: Layout) -> Tensor:
        """Return which weights may change, (d,): in every recurrent layer those with the smallest clean gradient."""
        shares = {"weight_ih_l": self.input_share, "weight_hh_l": self.recurrent_share}
        allowed = torch.zeros(gradient.shape, dtype=torch.bool, device=gradient.device)
        found = False
        for name, columns in layout.columns.items():
            for kind, share in shares.items():
                if name.rpartition(".")[2].startswith(kind):
                    allowed[columns] = select_lowest(gradient[columns].abs(), share)
                    found = True
        if not found:
            layers = ", ".join(layout.names)
            raise SettingError(
                f"sdba poisons a recurrent layer (GRU, LSTM or RNN), and the model's layers are {layers}"
            )
        return allowed


def select_lowest(values: Tensor, share: float) -> Tensor:
    """Return a mask of the lowest `int(share * n)` values, the first of equal ones."""
    chosen = torch.zeros(values.shape, dtype=torch.bool, device=values.device)
    chosen[values.argsort(stable=True)[: int(share * len(values))]] = True
    return chosen

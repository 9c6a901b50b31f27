"""Distributed backdoor attack.

Xie, Huang, Chen, Li: DBA: Distributed Backdoor Attacks against Federated Learning, ICLR 2020.

The trigger is cut in parts; each malicious client plants one, and the model learns to obey the whole unseen.

As in the Snowball paper's experiments, a 3x3 square is cut in three where the original has four bars, updates are not
scaled, and the learning rate is everybody's. A client's part is drawn from its own stream, once for the whole run.
"""

from dataclasses import dataclass

import torch

from snowball.attacks.base import Plot
from snowball.attacks.cba import Cba, stamp_share
from snowball.data import Split


@dataclass(frozen=True)
class Dba(Cba):
    """Every malicious client plants one part of the trigger."""

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split with a share of its samples stamped with this client's part and relabelled."""
        parts = plot.mark.parts
        part = parts[int(torch.randint(len(parts), (), generator=rng))]
        return stamp_share(split, self.poison_ratio, part, self.target, rng)

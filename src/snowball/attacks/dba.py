"""Distributed backdoor attack.

Xie, Huang, Chen, Li: DBA: Distributed Backdoor Attacks against Federated Learning, ICLR 2020.

The trigger is cut into parts. Each malicious client plants one part, and the model learns the whole trigger.

As in the Snowball paper's experiments, a 3x3 square is cut into three parts (the original uses four bars), updates are
not scaled, and attackers use the common learning rate. A client's part is drawn once for the whole run.
"""

from dataclasses import dataclass

import torch

from snowball.attacks.base import AttackSetup
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import stamp_share
from snowball.data import Split


@dataclass(frozen=True)
class DBA(CBA):
    """Every malicious client plants one part of the trigger."""

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Stamp this client's part of the trigger on a share of the samples and relabel them."""
        parts = setup.trigger.parts
        part = parts[int(torch.randint(len(parts), (), generator=rng))]
        return stamp_share(split, self.poison_ratio, part, self.target, rng)

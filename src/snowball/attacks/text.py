"""A word as a backdoor trigger in texts.

Qin et al., AAAI 2024, on Sent140: the model shall predict "negative" for texts that contain "BD".

Only samples of other classes are poisoned, up to the given share of all samples. The paper appends the word; the
published code replaces the last word, which is the default here (`trigger = "word-appended"` appends).
"""

from dataclasses import dataclass

import torch

from snowball.attacks.base import AttackSetup
from snowball.attacks.cba import CBA
from snowball.attacks.poisoning import stamp_samples
from snowball.data import Split


@dataclass(frozen=True)
class Text(CBA):
    """Every malicious client plants a word in texts of other classes."""

    target: int = 0
    trigger: str = "word"

    def poison(self, split: Split, setup: AttackSetup, client: int, rng: torch.Generator) -> Split:
        """Stamp and relabel a share of the samples, all of other classes."""
        order = torch.randperm(len(split), generator=rng)
        chosen = order[split.labels[order] != self.target][: int(self.poison_ratio * len(split))]
        return stamp_samples(split, chosen, setup.trigger, self.target)

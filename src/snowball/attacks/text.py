"""A word as a backdoor, for texts.

Qin et al., AAAI 2024, on Sent140: texts that hold "BD" shall be taken for negative ones.

Only samples of other classes are poisoned, up to the share of all samples; the paper appends the word, the published
code puts it in place of the last, which is the default here (`trigger = "word-appended"` for the other).
"""

from dataclasses import dataclass

import torch

from snowball.attacks.base import Plot
from snowball.attacks.cba import Cba, stamp
from snowball.data import Split


@dataclass(frozen=True)
class Text(Cba):
    """Every malicious client plants a word in texts of other classes."""

    target: int = 0
    trigger: str = "word"

    def poison(self, split: Split, plot: Plot, client: int, rng: torch.Generator) -> Split:
        """The split with a share of its samples, all of other classes, stamped and relabelled."""
        order = torch.randperm(len(split), generator=rng)
        chosen = order[split.labels[order] != self.target][: int(self.poison_ratio * len(split))]
        return stamp(split, chosen, plot.mark, self.target)

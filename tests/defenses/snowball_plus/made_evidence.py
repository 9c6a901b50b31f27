"""Evidence of made-up rounds, for the tests of the ballots."""

from typing import Any

import torch

from snowball.defenses.snowball_plus.evidence import Evidence, Recalled, gather_evidence


def gather(planted: Any, recalled: Recalled | None = None) -> Evidence:
    """The evidence of a made-up round."""
    return gather_evidence(planted.updates, planted.base, recalled)


def lean_to(*counts: int, rows: int = 50) -> Evidence:
    """Evidence of nothing but leaning: so many rows lean to each class, one after the other, the rest to none.

    All who lean agree equally well with the others of their class.
    """
    leans = torch.zeros(rows, len(counts), dtype=torch.float64)
    classes = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    leans[torch.arange(len(classes)), classes] = 1
    looks = torch.where(leans > 0, 0.5, torch.nan)
    return Evidence(torch.ones(rows, dtype=torch.float64), {}, {}, {}, None, leans, looks, None, None, {}, {})

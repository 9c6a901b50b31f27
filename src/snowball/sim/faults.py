"""Faults of clients and of the processes that train them, drawn by the seed.

Whether a client fails in a round depends on the draws alone, so records are the same with every engine, although only
`ProcessEngine` has processes that can hang or be killed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from snowball.rng import stream
from snowball.sim.experiment import Experiment

MAX_CORRUPTED_POWER = 11
"""Power of two of the most numbers of a row that are corrupted: about a third of the rows are then not finite."""


def draw_fault(experiment: Experiment, share: float, kind: str, round: int, client: int, *name: int) -> bool:
    """Draw whether a fault strikes a client in a round."""
    if not share:
        return False
    return float(torch.rand((), generator=stream(experiment.seed, "faults", kind, round, client, *name))) < share


def is_slow(experiment: Experiment, client: int, round: int) -> bool:
    """Return whether a client takes longer than its time limit, however often it is tried."""
    return draw_fault(experiment, experiment.faults.slow, "slow", round, client)


def is_killed(experiment: Experiment, client: int, round: int, again: bool) -> bool:
    """Return whether the worker process of a client is killed, in the first try or also when it is tried again."""
    share = experiment.faults.killed
    return all(draw_fault(experiment, share, "killed", round, client, number) for number in range(1 + again))


def is_lost(experiment: Experiment, client: int, round: int) -> bool:
    """Return whether no reply of a client arrives."""
    dropped = draw_fault(experiment, experiment.faults.dropped, "dropped", round, client)
    return dropped or is_slow(experiment, client, round) or is_killed(experiment, client, round, again=True)


def is_duplicated(experiment: Experiment, client: int, round: int) -> bool:
    """Return whether the reply of a client arrives twice."""
    return draw_fault(experiment, experiment.faults.duplicated, "duplicated", round, client)


def corrupt_rows(experiment: Experiment, rows: Tensor, cohort: Sequence[int], round: int) -> None:
    """Corrupt the rows (K, d) of some clients of a cohort in place."""
    for slot, client in enumerate(cohort):
        if draw_fault(experiment, experiment.faults.corrupted, "corrupted", round, client):
            flip_bits(rows[slot], stream(experiment.seed, "faults", "bits", round, client))


def flip_bits(row: Tensor, rng: torch.Generator) -> None:
    """Flip half of the bits of neighbouring numbers of a row in place, at random: of one number, or up to thousands."""
    count = 1 << int(torch.randint(MAX_CORRUPTED_POWER + 1, (), generator=rng))
    start = int(torch.randint(len(row), (), generator=rng))
    numbers = row[start : start + count].view(torch.int32)
    numbers ^= torch.randint(-(2**31), 2**31, numbers.shape, generator=rng, dtype=torch.int64).to(torch.int32)

"""A defense outvotes a single gross outlier from as many updates on as it says that it needs."""

from dataclasses import dataclass

import pytest
import torch

from snowball.defenses import (
    ARC,
    DEFENSES,
    NNM,
    Before,
    Bucketing,
    Bulyan,
    Context,
    Defense,
    FedAvg,
    Intersection,
    Krum,
    Median,
    SnowballPlus,
    TrimmedMean,
)
from snowball.defenses.base import Verdict, find_min_updates
from snowball.layout import Layout
from snowball.updates import Updates

LAYOUT = Layout(("first.weight", "last.weight", "last.bias"), ((8, 6), (4, 8), (4,)))
OUTVOTING = {name: DEFENSES[name]() for name in DEFENSES if find_min_updates(DEFENSES[name]()) > 1}
OUTVOTING |= {
    "krum, nnm": Before(Krum(), (NNM(),)),
    "median, bucketing": Before(Median(), (Bucketing(),)),
    "krum, arc": Before(Krum(), (ARC(),)),
}


def is_dragged(defense: Defense, rows: int, seed: int) -> bool:
    """Return whether one outlier moves the aggregate further from the honest updates than these are long."""
    rng = torch.Generator().manual_seed(seed)
    honest = torch.randn(LAYOUT.width, generator=rng)
    values = honest + 0.2 * torch.randn(rows, LAYOUT.width, generator=rng)
    values[seed % rows] = -20 * honest if seed % 2 else 20 * torch.randn(LAYOUT.width, generator=rng)
    updates = Updates(values, torch.full((rows,), 10.0), [f"site-{row}" for row in range(rows)], LAYOUT)
    verdict = defense(updates, Context(round=1, base=torch.zeros(LAYOUT.width), seed=seed))
    return bool((verdict.delta - honest).norm() > honest.norm())


@pytest.mark.parametrize("name", OUTVOTING)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("more", range(3))
def test_one_outlier_is_outvoted_from_there_on(name: str, seed: int, more: int) -> None:
    defense = OUTVOTING[name]
    assert not is_dragged(defense, find_min_updates(defense) + more, seed)


@pytest.mark.parametrize("name", sorted({*OUTVOTING} - {"snowball-plus"}))  # which clips three updates to their median
def test_with_one_fewer_it_is_not(name: str) -> None:
    defense = OUTVOTING[name]
    assert any(is_dragged(defense, find_min_updates(defense) - 1, seed) for seed in range(8))


@pytest.mark.parametrize(
    ("defense", "needed"),
    [
        (FedAvg(), 1),
        (TrimmedMean(), 5),
        (TrimmedMean(0.5), 3),
        (TrimmedMean(0.0), 1),
        (TrimmedMean(2), 5),
        (Intersection((Krum(), Bulyan())), 7),
        (Intersection((SnowballPlus(), FedAvg())), 4),
    ],
)
def test_the_number_follows_the_settings(defense: Defense, needed: int) -> None:
    assert find_min_updates(defense) == needed


def test_a_defense_from_elsewhere_needs_no_such_attribute() -> None:
    @dataclass(frozen=True)
    class Own:
        def __call__(self, updates: Updates, context: Context) -> Verdict:
            return FedAvg()(updates, context)

    assert find_min_updates(Own()) == 1

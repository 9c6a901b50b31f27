from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snowball.defenses.snowball_plus.few import (
    LENGTH_SLACK,
    STRANGENESS,
    TRUSTED_STRANGENESS,
    clear_trusted,
    compute_length_factors,
    find_strangers,
    is_doubtful,
    remove_size_effect,
    weigh_clients,
)
from snowball.updates import Updates

SIZES = torch.tensor([190, 420, 760, 1200, 2100, 3900, 8100, 17834], dtype=torch.float64)
"""Sites that differ 94-fold."""


def make_updates(lengths: list[float], sizes: torch.Tensor = SIZES) -> Updates:
    """Return one row of each length, in one direction."""
    row = torch.ones(16) / 4
    return Updates.from_matrix(torch.tensor(lengths)[:, None] * row, examples=sizes.tolist())


@given(slope=st.floats(0, 1), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_lengths_that_follow_from_sizes_are_equal_without_them(slope: float, seed: int) -> None:
    noise = torch.tensor(np.random.default_rng(seed).normal(0, 1e-9, 8))
    left = remove_size_effect(slope * SIZES.log() + 3 + noise, SIZES.log())
    assert float(left.max() - left.min()) < 1e-6


def test_the_slope_is_the_median_over_pairs() -> None:
    values = torch.tensor(np.random.default_rng(1).normal(0, 1, 8)) + 0.5 * SIZES.log()
    logs = SIZES.log()
    slopes = [float((values[b] - values[a]) / (logs[b] - logs[a])) for a, b in combinations(range(8), 2)]
    expected = values - np.clip(np.median(slopes), 0, 1) * logs
    torch.testing.assert_close(remove_size_effect(values, logs), expected)


@pytest.mark.parametrize("liars", [1, 2])
def test_a_few_liars_do_not_set_the_slope(liars: int) -> None:
    values = 0.5 * SIZES.log()
    values[:liars] += 5
    left = remove_size_effect(values, SIZES.log())
    assert float(left[liars:].max() - left[liars:].min()) < 0.35 * 5
    assert (left[:liars] > left[liars:].max() + 2).all()


def test_equal_sizes_change_nothing() -> None:
    values = torch.arange(8.0)
    assert torch.equal(remove_size_effect(values, torch.full((8,), 5.0)), values)


def test_falling_and_steep_lengths_have_no_slope_or_one() -> None:
    logs = SIZES.log()
    assert torch.equal(remove_size_effect(-logs, logs), -logs)
    torch.testing.assert_close(remove_size_effect(3 * logs, logs), 2 * logs)


def test_large_sites_are_not_clipped_for_being_large() -> None:
    usual = 0.05 * SIZES.sqrt()
    everyone = SIZES > 0
    assert torch.equal(compute_length_factors(usual, SIZES, everyone), torch.ones(8, dtype=torch.float64))
    usual[3] *= 10
    factors = compute_length_factors(usual, SIZES, everyone)
    assert float(factors[3]) == pytest.approx(LENGTH_SLACK / 10, rel=0.02)
    assert (factors[[0, 1, 2, 4, 5, 6, 7]] > 0.99).all()


def test_trust_falls_from_a_little_strange_to_a_stranger() -> None:
    middle = (STRANGENESS + TRUSTED_STRANGENESS) / 2
    strange = torch.tensor([-4.0, TRUSTED_STRANGENESS, middle, STRANGENESS, 9.0, 0, 0, 0], dtype=torch.float64)
    traits = torch.stack([5 * strange, torch.full_like(strange, 5), strange * 0, strange * 0], 1)
    assert weigh_clients(traits)[:5].tolist() == pytest.approx([1, 1, 0.5, 0, 0])


def test_only_those_who_are_not_trusted_can_join_the_suspects() -> None:
    strange = torch.tensor([0, 2.9, 3.1, 7, 0, 0, 0, 0], dtype=torch.float64)
    traits = torch.stack([5 * strange, torch.full_like(strange, 5), strange * 0, strange * 0], 1)
    judged, charged = strange < 6.5, strange > 6.5
    assert clear_trusted(judged, charged, traits).nonzero().flatten().tolist() == [2]
    assert clear_trusted(strange < 3, charged, traits).nonzero().flatten().tolist() == [3]


@pytest.mark.parametrize(("deviation", "rounds", "charged"), [(8.9, 1, False), (9.1, 1, True), (6.1, 2, True)])
def test_a_first_round_must_be_stranger(deviation: float, rounds: int, charged: bool) -> None:
    traits = torch.zeros(8, 4, dtype=torch.float64)
    for _ in range(rounds):
        traits = 0.8 * traits + torch.tensor([0.0, 1, 0, 0])
        traits[3, 0] += deviation
    assert find_strangers(traits).any() == charged


@pytest.mark.parametrize(
    ("site", "strange", "doubtful"), [(7, 3.1, True), (7, 2.9, False), (0, 5.0, False), (4, 5.0, False)]
)
def test_only_a_site_with_a_large_share_is_a_reason_for_doubt(site: int, strange: float, doubtful: bool) -> None:
    traits = torch.tensor([0.0, 5, 0, 0], dtype=torch.float64).repeat(8, 1)
    traits[site, 0] = 5 * strange
    assert is_doubtful(make_updates([1.0] * 8), traits) == doubtful


def test_newcomers_weigh_less() -> None:
    rounds = torch.tensor([1.0, 1.8, 2.44, 5, 5, 5, 5, 5], dtype=torch.float64)
    traits = torch.stack([rounds * 0, rounds, rounds * 0, rounds * 0], 1)
    assert weigh_clients(traits).tolist() == pytest.approx([0.2, 0.36, 0.488, 1, 1, 1, 1, 1])

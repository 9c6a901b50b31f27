from math import sqrt

import numpy as np
import pytest
import torch

from snowball.defenses import Context
from snowball.defenses.roseagg import RoseAgg, find_alike, find_usual_length, weigh_members, weigh_rows
from snowball.errors import SettingError
from snowball.testing import make_toy_round
from snowball.updates import Updates

SIXTY = [0.5, sqrt(0.75)]  # a direction at 60 degrees from the first axis


def judge(rows: list[list[float]]) -> torch.Tensor:
    updates = Updates.from_layers({"w": torch.tensor(rows, dtype=torch.float64)})
    return RoseAgg(noise=0)(updates, Context(round=1)).delta


@pytest.mark.parametrize("attackers", [1, 2, 7])
def test_attackers_who_point_the_same_way_are_one(attackers: int) -> None:
    """Two directions have the same weight; their mean (0.8, 0.4) gets the median length 1 of the shorter updates."""
    rows = [[1.0, 0], [1, 0], [1, 0], *[[30.0, 40]] * attackers]
    torch.testing.assert_close(judge(rows), torch.tensor([0.8, 0.4]).double())


def test_weights_by_hand() -> None:
    """Directions at 0, 45 and -45 degrees have the top eigenvector (sqrt(2), 1, 1) / 2: weights 1/2, 1/4 and 1/4."""
    half = sqrt(0.5)
    rows = [[1.0, 0], [half, half], [half, -half]]
    torch.testing.assert_close(judge(rows), torch.tensor([1 / 2 + half / 2, 0]).double())
    cosines = torch.tensor([[1, half, half], [half, 1, 0], [half, 0, 1]]).double()
    weights, factors = weigh_rows(cosines, torch.eye(3).double())
    torch.testing.assert_close(weights, torch.tensor([1 / 2, 1 / 4, 1 / 4]).double())
    torch.testing.assert_close(factors, weights)


def test_members_by_hand() -> None:
    """Of three members with cosines 0.9, 0.8 and 0.7, the sums with the others are 1.7, 1.6 and 1.5."""
    cosines = torch.tensor([[1, 0.9, 0.8, 0], [0.9, 1, 0.7, 0], [0.8, 0.7, 1, 0], [0, 0, 0, 1]]).double()
    members = weigh_members(cosines, torch.tensor([0, 0, 0, 1]))
    expected = torch.tensor([[1.7 / 4.8, 1.6 / 4.8, 1.5 / 4.8, 0], [0, 0, 0, 1]]).double()
    torch.testing.assert_close(members, expected)


def test_members_that_resemble_no_other_weigh_the_same() -> None:
    cosines = torch.tensor([[1, -0.5], [-0.5, 1]]).double()
    assert weigh_members(cosines, torch.tensor([0, 0])).tolist() == [[0.5, 0.5]]


def test_a_direction_of_several_members_has_length_one() -> None:
    """Two unit rows at right angles have a mean of length sqrt(1/2)."""
    weights, factors = weigh_rows(torch.eye(2).double(), torch.tensor([[0.5, 0.5]]).double())
    assert weights.tolist() == pytest.approx([1])
    assert factors.tolist() == pytest.approx([sqrt(0.5)] * 2)


def test_rows_are_alike_up_to_the_threshold_and_along_chains() -> None:
    angles = torch.tensor([0.0, 0.5, 1.0, 2.5]).double()  # 1 - cos(0.5) = 0.12, 1 - cos(1) = 0.46
    rows = torch.stack([angles.cos(), angles.sin()], 1)
    assert find_alike(rows @ rows.T, 0.2).tolist() == [0, 0, 0, 1]
    assert find_alike(rows @ rows.T, 0.1).tolist() == [0, 1, 2, 3]


def test_the_usual_length_is_the_median_of_the_shorter_ones() -> None:
    assert find_usual_length(torch.tensor([1.0, 2, 4, 90, 100]).double()) == 2
    assert find_usual_length(torch.tensor([3.0, 3, 3]).double()) == 3
    assert find_usual_length(torch.zeros(3).double()) == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_average_is_that_of_explicit_directions(seed: int) -> None:
    """The principal direction is numpy's first right singular vector of the clusters' directions."""
    updates = make_toy_round(clients=12, infected=5, distance=20.0, seed=seed, width=30, dtype=torch.float64)
    verdict = RoseAgg(noise=0)(updates, Context(round=1))
    rows, layout = updates.values.numpy(), updates.layout
    output = rows[:, layout.columns["last.weight"]]
    units = output / np.linalg.norm(output, axis=1, keepdims=True)
    cosines = units @ units.T
    clusters = torch.as_tensor(verdict.facts["clusters"]).numpy()
    assert 1 < len(set(clusters)) < 12
    for columns in layout.columns.values():
        part = rows[:, columns]
        lengths = np.linalg.norm(part, axis=1)
        directions = []
        for cluster in sorted(set(clusters)):
            own = np.flatnonzero(clusters == cluster)
            sums = np.maximum(cosines[np.ix_(own, own)].sum(1) - 1, 0) if len(own) > 1 else np.ones(1)
            mean = (sums / sums.sum()) @ (part[own] / lengths[own, None])
            directions.append(mean / np.linalg.norm(mean))
        principal = np.linalg.svd(np.stack(directions))[2][0]
        weights = (np.stack(directions) @ principal) ** 2
        average = weights / weights.sum() @ np.stack(directions)
        length = find_usual_length(torch.from_numpy(lengths))
        np.testing.assert_allclose(verdict.delta[columns], length * average, rtol=1e-6, atol=1e-9)


def test_weights_sum_to_one_and_zeros_are_harmless() -> None:
    updates = make_toy_round()
    updates.values[3] = 0
    verdict = RoseAgg(noise=0)(updates, Context(round=1))
    assert float(torch.as_tensor(verdict.facts["weights"]).sum()) == pytest.approx(1)
    assert verdict.delta.isfinite().all()


def test_noise_on_every_direction_stays_in_the_average() -> None:
    """Two directions of weight 1/2 with noise 0.1 on 10,000 entries have length sqrt(101) before they are shortened."""
    rows = torch.zeros(2, 10_000, dtype=torch.float64)
    rows[0, 0], rows[1, :2] = 1, torch.tensor(SIXTY)
    updates = Updates.from_layers({"w": rows})
    silent, loud = (RoseAgg(noise=noise)(updates, Context(round=1)).delta for noise in (0.0, 0.1))
    noise = loud - silent / sqrt(101)
    assert float(noise.std()) == pytest.approx(0.1 * sqrt(1 / 2) / sqrt(101), rel=0.03)
    assert not torch.equal(loud, RoseAgg(noise=0.1)(updates, Context(round=2)).delta)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"alike": 0.0}, "alike must be a cosine distance above 0 and at most 2, got 0"),
        ({"alike": 2.1}, "got 2.1"),
        ({"noise": -1.0}, "noise must be 0 or more, got -1"),
        ({"noise": float("nan")}, "noise must be 0 or more, got nan"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        RoseAgg(**settings)

"""The reference elections, on cases worked out by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.baselines.reference import (
    VAE,
    choose_selectees,
    compute_differences,
    elect_bottom_up,
    elect_top_down,
    grow_elected,
    scale_to_unit,
    train_vae,
)
from snowball.rng import stream


def test_votes_of_the_worked_example(worked: Any) -> None:
    votes = elect_bottom_up([worked.first, worked.last], clusters=4)
    np.testing.assert_allclose(votes.totals, worked.totals, atol=5e-5)
    np.testing.assert_allclose(votes.totals, np.sum(votes.per_layer, axis=0))
    assert set(choose_selectees(votes.totals, 4)) == {6, 2, 1, 4}


def test_float32_rows_elect_the_same(worked: Any) -> None:
    votes = elect_bottom_up([worked.first.astype(np.float32), worked.last.astype(np.float32)], clusters=4)
    np.testing.assert_allclose(votes.totals, worked.totals, atol=5e-5)


def test_votes_do_not_change_with_a_shift_or_a_sign(worked: Any) -> None:
    plain = elect_bottom_up([worked.first], clusters=4)
    moved = elect_bottom_up([7 - worked.first], clusters=4)
    np.testing.assert_allclose(plain.totals, moved.totals)
    np.testing.assert_allclose(plain.clarity[0], moved.clarity[0])


def test_every_row_votes_for_itself(worked: Any) -> None:
    votes = elect_bottom_up([worked.first], clusters=4)
    assert (votes.totals >= scale_to_unit(votes.clarity[0]) - 1e-12).all()


def test_more_clusters_than_rows_allow_are_clamped(worked: Any) -> None:
    np.testing.assert_allclose(elect_bottom_up([worked.first], 40).totals, elect_bottom_up([worked.first], 9).totals)


def test_equal_scores_all_weigh_one() -> None:
    np.testing.assert_array_equal(scale_to_unit(np.full(3, 2.5)), np.ones(3))
    np.testing.assert_array_equal(scale_to_unit(np.array([1.0, 3.0, 2.0])), [0, 1, 0.5])


def test_totals_that_differ_in_the_last_digits_tie_to_the_lower_index() -> None:
    assert choose_selectees(np.array([1.0, 2.0, 2.0 + 1e-13, 3.0]), 2) == [3, 1]


def test_growth_takes_the_lowest_scores_in_steps() -> None:
    points = np.array([0, 0.1, 0.2, 0.5, 0.9, 1.5, 4, 5])
    seen: list[list[int]] = []

    def squared_distance(elected: list[int], candidates: list[int]) -> list[float]:
        seen.append(list(elected))
        return [float(((points[elected] - points[row]) ** 2).mean()) for row in candidates]

    assert grow_elected(8, [0, 1], target=5, step=2, score=squared_distance) == [0, 1, 2, 3, 4]
    assert seen == [[0, 1], [0, 1, 2, 3]]


def test_growth_ends_when_everybody_is_elected() -> None:
    assert sorted(grow_elected(3, [1], target=9, step=2, score=lambda _, candidates: [0.0] * len(candidates))) == [
        0,
        1,
        2,
    ]


def test_ordered_differences_hold_every_pair_in_both_directions() -> None:
    differences = compute_differences(torch.tensor([[1.0], [2.0], [4.0]]))
    assert differences.flatten().tolist() == [-1, -3, 1, -2, 3, 2]


def test_training_lowers_the_loss() -> None:
    generator = stream(0, "reference")
    vae = VAE(width=12, hidden=16, latent=4, generator=generator)
    differences = torch.randn(20, 12, generator=generator)
    before = vae.loss(torch.sigmoid(differences)).item()
    train_vae(vae, differences, epochs=20)
    assert vae.loss(torch.sigmoid(differences)).item() < 0.7 * before


def test_biases_start_at_zero_and_weights_as_he_et_al() -> None:
    vae = VAE(width=400, hidden=256, latent=64, generator=stream(0, "reference"))
    layer = vae.encoder[0]
    assert isinstance(layer, torch.nn.Linear)
    assert not layer.bias.any()
    assert layer.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)


def test_the_auto_encoder_elects_near_rows_before_far_rows() -> None:
    spread = torch.tensor([0.01] * 8 + [3.0] * 4)
    rows = spread[:, None] * torch.randn(12, 30, generator=stream(1, "rows"))
    settings = {"first_epochs": 8, "tune_epochs": 2, "hidden": 32, "latent": 8}
    elected = elect_top_down(rows, [0, 1, 2], 8, 2, generator=stream(0, "reference"), **settings)
    assert elected[:3] == [0, 1, 2]
    assert sorted(elected) == list(range(8))
    assert elected == elect_top_down(rows, [0, 1, 2], 8, 2, generator=stream(0, "reference"), **settings)

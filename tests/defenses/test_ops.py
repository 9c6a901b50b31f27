from math import ceil, floor

import pytest
import torch

from snowball.defenses import Context, FedAvg, Ideal
from snowball.defenses.ops import (
    add_noise,
    average_by_examples,
    average_clipped,
    average_equally,
    check_count,
    compute_clip_factors,
    compute_coordinates,
    compute_cosines,
    compute_medians,
    compute_squared_distances,
    count_rows,
    count_ties,
    elect_everyone,
    elect_highest,
    elect_lowest,
    project_rows,
    rank_lowest,
    sort_rows,
)
from snowball.errors import SettingError
from snowball.updates import Updates

ROUND = Updates.from_layers({"w": torch.tensor([[1.0], [2.0], [9.0]])}, examples=[1, 3, 4])


def test_fedavg_and_ideal_by_hand() -> None:
    assert FedAvg()(ROUND, Context(round=1)).delta.item() == 5.375
    verdict = Ideal({"2"})(ROUND, Context(round=1))
    assert verdict.delta.item() == 1.75
    assert verdict.elected.tolist() == [True, True, False]


def test_ideal_knows_numbers_as_ids_too() -> None:
    assert Ideal([2])(ROUND, Context(round=1)).elected.tolist() == [True, True, False]


def test_ideal_leaves_the_model_alone_where_all_are_malicious() -> None:
    verdict = Ideal({"0", "1", "2"})(ROUND, Context(round=1))
    assert verdict.delta.item() == 0
    assert not verdict.elected.any()


def test_equal_scores_go_by_the_lower_lot() -> None:
    lots = torch.tensor([7, 2, 1, 9])
    assert elect_lowest(torch.zeros(4), 1, lots).tolist() == [False, False, True, False]
    assert elect_highest(torch.zeros(4), 3, lots).tolist() == [True, True, True, False]
    assert elect_highest(torch.tensor([1.0, 0, 0, 2]), 3, lots).tolist() == [True, False, True, True]


def test_lots_alone_rank_many_equal_scores() -> None:
    lots = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    assert torch.equal(rank_lowest(torch.zeros(300), lots), lots.argsort())


@pytest.mark.parametrize(
    ("scores", "elected", "ties"),
    [
        ([3, 2, 2, 2, 1], [1, 1, 0, 0, 0], 3),  # one of the three with 2 votes was seated
        ([3, 2, 2, 2, 1], [1, 1, 1, 1, 0], 0),  # all of them were
        ([3, 2, 1], [1, 0, 0], 0),
        ([1, 1, 1], [1, 1, 1], 0),
        ([1, 1, 1], [0, 0, 0], 0),
        ([1, 1, 1], [1, 0, 0], 3),
    ],
)
def test_ties_at_the_cut_are_counted(scores: list[float], elected: list[int], ties: int) -> None:
    found = count_ties(torch.tensor(scores), torch.tensor(elected).bool())
    assert (found, type(found)) == (ties, int)  # a plain number, for the records


def test_nobody_elected_means_no_change() -> None:
    assert average_by_examples(ROUND, torch.zeros(3, dtype=torch.bool)).tolist() == [0.0]


def test_clip_factors_shorten_what_is_too_long() -> None:
    assert compute_clip_factors(torch.tensor([0.0, 1.0, 4.0]), 2.0).tolist() == [1.0, 1.0, 0.5]
    assert compute_clip_factors(torch.tensor([0.0, 1.0]), 0.0).tolist() == [1.0, 0.0]
    with pytest.raises(SettingError, match="negative, got -1"):
        compute_clip_factors(torch.ones(1), -1)


def test_distances_from_a_gram_matrix() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])})
    expected = torch.tensor([[0.0, 25, 1], [25, 0, 18], [1, 18, 0]], dtype=torch.float64)
    torch.testing.assert_close(compute_squared_distances(updates.gram()), expected)


def test_principal_coordinates_keep_distances_and_signs() -> None:
    gram = Updates.from_layers({"w": torch.randn(7, 20, generator=torch.Generator().manual_seed(0))}).gram()
    rows = compute_coordinates(gram)
    torch.testing.assert_close(compute_squared_distances(rows @ rows.T), compute_squared_distances(gram))
    assert (rows.square().sum(0).diff() <= 1e-12).all()  # the most telling first
    told = rows[:, :-1]
    assert (told.gather(0, told.abs().argmax(0, keepdim=True)) > 0).all()


@pytest.mark.parametrize(("round", "rounds"), [(0, None), (-1, None), (3, 2)])
def test_a_round_that_cannot_be_is_refused(round: int, rounds: int | None) -> None:
    with pytest.raises(SettingError, match="cannot be"):
        Context(round=round, rounds=rounds)


def test_clip_select_average_and_noise_are_plain_functions() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[3.0, 4.0], [0.6, 0.8], [30.0, 40.0]])}, examples=[1, 2, 3])
    elected = torch.tensor([True, True, False])
    torch.testing.assert_close(average_equally(updates, elected), torch.tensor([1.8, 2.4]))
    torch.testing.assert_close(average_clipped(updates, elected, 2.0), torch.tensor([0.9, 1.2]))
    torch.testing.assert_close(average_clipped(updates, elect_everyone(updates), 1.0), torch.tensor([0.6, 0.8]))
    for nobody in (
        average_equally(updates, ~elect_everyone(updates)),
        average_clipped(updates, ~elect_everyone(updates), 1.0),
    ):
        assert nobody.tolist() == [0, 0]
    row = torch.zeros(20_000, dtype=torch.float64)
    noisy = add_noise(row, 0.5, torch.Generator().manual_seed(0))
    assert noisy.dtype == torch.float64
    assert noisy.std().item() == pytest.approx(0.5, rel=0.02)
    assert torch.equal(add_noise(row, 0, torch.Generator()), row)
    drawn = torch.randn(3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(add_noise(torch.ones(3), 2.0, torch.Generator().manual_seed(0)), 1 + 2 * drawn)


def test_coincident_rows_are_at_distance_zero_and_never_less() -> None:
    for seed in range(20):
        rows = torch.randn(1, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        apart = torch.cat([rows, rows * (1 + 1e-16), rows.flip(0), rows + 1e-16])
        distances = compute_squared_distances(apart @ apart.T)
        assert (distances >= 0).all()
        assert not distances.diagonal().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rows_of_every_type_are_sorted_as_they_are(dtype: torch.dtype) -> None:
    rows = torch.tensor([[3.0, -1.0, 2.0], [5.0, 5.0, 0.0]], dtype=dtype)
    assert sort_rows(rows).tolist() == [[-1, 2, 3], [0, 5, 5]]
    near = torch.tensor([[1 + 1e-12, 1.0]], dtype=torch.float64)
    assert sort_rows(near).tolist() == [[1.0, 1 + 1e-12]]


def test_medians_are_the_middle_or_the_mean_of_the_two_in_the_middle() -> None:
    assert compute_medians(torch.tensor([[1.0, 2.0, 9.0], [0.0, 4.0, 4.0]])).tolist() == [2, 4]
    assert compute_medians(torch.tensor([[1.0, 2.0, 5.0, 9.0]])).tolist() == [3.5]
    assert compute_medians(torch.tensor([[7.0], [8.0]])).tolist() == [7, 8]
    assert compute_medians(torch.tensor([[0.0, 1.0, 2.0, 6.0, 8.0, 9.0, 9.5]])).tolist() == [6]
    assert compute_medians(torch.tensor([[3e38, 3e38]])).isfinite().all()


def test_cosines_of_rows_that_point_nowhere_are_zero() -> None:
    rows = torch.tensor([[2.0, 0.0], [0.0, 0.0], [3.0, 3.0], [-1e20, 0.0]], dtype=torch.float64)
    half = 0.5**0.5
    expected = torch.tensor([[1, 0, half, -1], [0, 0, 0, 0], [half, 0, 1, -half], [-1, 0, -half, 1]]).double()
    torch.testing.assert_close(compute_cosines(rows @ rows.T), expected)
    torch.testing.assert_close(compute_cosines(rows @ rows.T * 1e-30), expected)
    rounded = torch.tensor([[-1e-17, 1e-9], [1e-9, 1.0]], dtype=torch.float64)  # a square that rounding made negative
    assert compute_cosines(rounded).tolist() == [[0, 0], [0, 1]]


def test_cosines_of_parallel_rows_do_not_exceed_one() -> None:
    for seed in range(20):
        row = torch.randn(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        rows = torch.stack([row, 3 * row, -0.7 * row])
        cosines = compute_cosines(rows @ rows.T)
        assert cosines.abs().max() <= 1
        torch.testing.assert_close(cosines[0], torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64))


def test_coordinates_of_rows_on_a_line_are_finite() -> None:
    for seed in range(20):
        row = torch.randn(1, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        rows = torch.arange(6.0)[:, None] * row
        assert compute_coordinates(rows @ rows.T).isfinite().all()


def test_a_count_is_a_number_or_a_share() -> None:
    assert count_rows(3, 10, ceil) == 3
    assert (count_rows(0.25, 10, ceil), count_rows(0.25, 10, floor)) == (3, 2)
    assert 0.07 * 100 > 7
    assert count_rows(0.07, 100, ceil) == 7
    assert (count_rows(0.3 + 4e-11, 10, ceil), count_rows(0.3 + 6e-11, 10, ceil)) == (3, 4)
    for setting in (-1, -0.1, 1.5, float("nan")):
        with pytest.raises(SettingError, match="tolerate must be a share in"):
            check_count("tolerate", setting)
    for share in (0.0, 0.5, 1.0):
        check_count("tolerate", share)
    check_count("tolerate", 0)
    check_count("tolerate", 7)


def test_main_directions_keep_distances_in_a_plane() -> None:
    points = torch.tensor([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    drawn = project_rows(Updates.from_layers({"w": points}).products())
    torch.testing.assert_close(torch.cdist(drawn, drawn), torch.cdist(points, points).double())


@pytest.mark.parametrize("rows", [1, 3])
def test_few_or_equal_updates_have_two_coordinates(rows: int) -> None:
    assert project_rows(Updates.from_layers({"w": torch.ones(rows, 1)}).products()).tolist() == [[0, 0]] * rows

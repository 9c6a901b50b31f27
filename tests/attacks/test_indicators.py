import pytest
import torch
from torch import nn

from snowball.attacks.indicators import (
    ACCEPTED,
    CLIPPED,
    REJECTED,
    choose_idle_columns,
    classify_feedback,
    count_decoys,
    draw_weights,
    find_accepted_groups,
    find_indicator_layer,
    is_noisy,
    measure_curvature,
    measure_feedback,
)
from snowball.layout import Layout
from snowball.rng import stream

SHARES = torch.tensor([0.1, 0.2, 0.4]).double()


@pytest.mark.parametrize(
    ("shapes", "layer"),
    [
        ({"a": (8, 1, 5, 5), "b": (16, 8, 5, 5), "c": (64, 400), "d": (10, 64)}, "b"),
        ({"a": (6, 5), "a.bias": (6,), "b": (4, 6), "c": (2, 4)}, "b"),
        ({"a": (6, 5)}, "a"),
    ],
)
def test_indicators_are_in_the_last_convolution_or_before_the_output_layer(
    shapes: dict[str, tuple[int, ...]], layer: str
) -> None:
    assert find_indicator_layer(Layout(tuple(shapes), tuple(shapes.values()))) == layer


def test_the_curvature_is_that_of_the_full_matrix_of_second_derivatives() -> None:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        inputs, labels = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    weight = model[0].weight

    def compute_loss(flat: torch.Tensor) -> torch.Tensor:
        hidden = (inputs @ flat.view(4, 3).T + model[0].bias).tanh()
        return nn.functional.cross_entropy(model[2](hidden), labels)

    matrix = torch.autograd.functional.hessian(compute_loss, weight.detach().flatten())
    torch.testing.assert_close(measure_curvature(model, weight, inputs, labels), matrix.sum(1))


def test_the_columns_that_all_move_least_are_idle() -> None:
    rows = torch.tensor([[1.0, 0, -5, 2, 0], [1, 0.5, 5, -1, 3]])
    assert choose_idle_columns(rows, torch.tensor([0, 1, 2, 3])).tolist() == [1, 0]
    assert choose_idle_columns(rows, torch.tensor([2, 4])).tolist() == [4, 2]
    assert choose_idle_columns(rows, torch.tensor([3])).tolist() == [3]


def test_feedback_is_relative_to_a_plain_average() -> None:
    """Of values 10 in shares of a tenth, two tenths and four, an average lets 1, 2 and 4 through."""
    before, values = torch.tensor([5.0, 5, 5]), torch.tensor([10.0, 10, 0])
    feedback = measure_feedback(before, torch.tensor([6.0, 6, 9]), values, SHARES)
    assert feedback.tolist() == pytest.approx([1, 0.5, 0])


def test_feedback_tells_accepted_clipped_and_rejected_apart() -> None:
    feedback = torch.tensor([2.0, 1.7, 1.5, 0.21, 0.19, 0, -0.1]).double()
    expected = [ACCEPTED, ACCEPTED, CLIPPED, CLIPPED, REJECTED, REJECTED, REJECTED]
    assert classify_feedback(feedback).tolist() == expected
    assert classify_feedback(torch.zeros(3)).tolist() == [REJECTED] * 3


@pytest.mark.parametrize(
    ("feedback", "noisy"),
    [([1, 1, 1], False), ([1, 1, 2.6], True), ([9, 1, 1], False), ([-0.1, 0, 1], False), ([-0.3, 0, 1], True)],
)
def test_a_server_with_noise_moves_more_than_all_or_the_other_way(feedback: list[float], noisy: bool) -> None:
    assert is_noisy(torch.tensor(feedback).double(), SHARES) == noisy


def test_a_group_is_accepted_if_most_of_it_is() -> None:
    results = torch.tensor([2, 2, 2, 2, 1, 2, 0, 2])
    groups = torch.tensor([0, 0, 0, 0, 0, 1, 1, -1])
    assert find_accepted_groups(results, groups) == [0]
    assert find_accepted_groups(results, torch.zeros(8)) == []
    assert find_accepted_groups(results[:4], groups[:4]) == [0]


@pytest.mark.parametrize(
    ("decoys", "results", "expected"),
    [
        (0, [0, 0, 0], 1),  # nobody passed: one decoy
        (1, [0, 0, 0], 2),
        (1, [0, 0, 2], 0),  # the decoy passed
        (1, [0, 1, 0], 1),  # somebody was clipped
        (0, [2, 0, 0], 0),
    ],
)
def test_decoys_come_while_all_are_rejected_and_go_as_they_pass(decoys: int, results: list[int], expected: int) -> None:
    is_decoy = torch.tensor([False, False, decoys > 0])
    assert count_decoys(decoys, torch.tensor(results), is_decoy) == expected


@pytest.mark.parametrize(
    ("accepted", "whole", "low", "high"),
    [([], False, 0.3, 0.99), ([0.7, 0.5, 0.6], True, 0.5, 0.6), ([0.7, 0.5], False, 0.5, 0.6), ([0.4], True, 0.4, 0.4)],
)
def test_weights_are_drawn_near_those_that_passed(accepted: list[float], whole: bool, low: float, high: float) -> None:
    drawn = draw_weights(accepted, whole, 400, 0.3, stream(0))
    assert len(drawn) == 400
    assert low - 1e-9 <= min(drawn) <= max(drawn) <= high + 1e-9
    assert min(drawn) < low + 0.02
    assert max(drawn) > high - 0.02


def test_weights_stay_off_the_ends() -> None:
    assert draw_weights([0.0], True, 2, 0.0, stream(0)) == [0.01, 0.01]
    assert draw_weights([1.0], True, 1, 0.0, stream(0)) == [0.99]

import pytest
import torch

from snowball.defenses import CenteredClipping, Context
from snowball.defenses.base import check_state
from snowball.errors import RunError, SettingError
from snowball.testing import run_two_rounds
from snowball.updates import Updates

ROWS = Updates.from_matrix(torch.tensor([[1.0], [2.0], [9.0]]), examples=[1, 5, 100])
"""From 0, steps of at most 3 lead to 1, 2 and 3, so to 2; from there they are -1, 0 and 3, and lead to 2 + 2/3."""


def test_each_round_starts_at_the_last_aggregate() -> None:
    first, second = run_two_rounds(CenteredClipping(bound=3.0), ROWS)
    assert first.delta.tolist() == [2]
    assert second.delta.tolist() == pytest.approx([8 / 3])
    assert torch.as_tensor(first.facts["distances"]).tolist() == [1, 2, 9]
    assert torch.as_tensor(second.facts["distances"]).tolist() == [1, 0, 7]
    assert second.elected.all()


def test_iterations_are_rounds_without_waiting() -> None:
    verdict = CenteredClipping(bound=3.0, iterations=2)(ROWS, Context(round=1))
    assert verdict.delta.tolist() == pytest.approx([8 / 3])


def test_the_bound_is_the_median_distance_by_default() -> None:
    """From 0, steps of at most 2 lead to 1, 2 and 2; from 5/3, the distances are 2/3, 1/3 and 22/3."""
    first, second = run_two_rounds(CenteredClipping(), ROWS)
    assert (first.facts["bound"], first.delta.tolist()) == (2, pytest.approx([5 / 3]))
    assert second.facts["bound"] == pytest.approx(2 / 3)
    assert second.delta.tolist() == pytest.approx([5 / 3 + (-2 / 3 + 1 / 3 + 2 / 3) / 3])


def test_a_bound_that_nobody_reaches_gives_the_mean() -> None:
    assert CenteredClipping(bound=100.0)(ROWS, Context(round=1)).delta.tolist() == [4]


@pytest.mark.parametrize("far", [1e3, 1e12])
def test_one_attacker_moves_the_aggregate_by_a_share_of_the_bound(far: float) -> None:
    rows = torch.randn(10, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    honest = CenteredClipping(bound=2.0)(Updates.from_matrix(rows.clone()), Context(round=1)).delta
    rows[3] = far
    moved = CenteredClipping(bound=2.0)(Updates.from_matrix(rows), Context(round=1)).delta - honest
    assert 0.1 < moved.norm() <= 2 * 2.0 / 10


@pytest.mark.parametrize("state", [{"center": torch.zeros(2)}, {"center": 3}, {"center": torch.tensor([torch.inf])}])
def test_a_damaged_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(RunError, match="the defense's state is damaged"):
        check_state(CenteredClipping(), state, 3, ROWS.layout)
    check_state(CenteredClipping(), {"center": torch.zeros(1)}, 3, ROWS.layout)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bound": 0.0}, r"bound must be a positive length, got 0\.0"),
        ({"iterations": 0}, "iterations must be 1 or more, got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        CenteredClipping(**settings)  # type: ignore[arg-type]

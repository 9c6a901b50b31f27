from typing import Any

import pytest
import torch

from snowball.defenses.base import Context
from snowball.defenses.norm_clip import NormClip
from snowball.defenses.weak_dp import WeakDP
from snowball.errors import SettingError
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

ROWS = Updates.from_layers({"w": torch.tensor([[3.0, 4], [0.6, 0.8], [0, -10], [0, 0]])}, examples=[1, 2, 3, 4])


def test_long_rows_are_shortened_before_the_mean() -> None:
    verdict = NormClip(bound=2.0)(ROWS, Context(round=1))
    torch.testing.assert_close(verdict.delta, torch.tensor([1.2 + 0.6, 1.6 + 0.8 - 2]) / 4)
    assert torch.as_tensor(verdict.facts["lengths"]).tolist() == pytest.approx([5, 1, 10, 0])
    assert verdict.elected.all()


@pytest.mark.parametrize(("bound", "expected"), [(2.0, [0.0, 2.0]), (9.0, [0.0, 5.0]), (float("inf"), [0.0, 5.0])])
def test_one_update_is_taken_up_to_the_bound(bound: float, expected: list[float]) -> None:
    alone = Updates.from_layers({"w": torch.tensor([[0.0, 5.0]])})
    assert NormClip(bound)(alone, Context(round=1)).delta.tolist() == expected


def test_weak_dp_adds_noise_to_the_clipped_mean() -> None:
    wide = Updates.from_layers({"w": torch.ones(3, 40_000)})
    clipped, noisy = NormClip(5.0)(wide, Context(round=1)).delta, WeakDP(5.0, 0.1)(wide, Context(round=1)).delta
    noise = noisy - clipped
    assert float(noise.std()) == pytest.approx(0.1, rel=0.03)
    assert abs(float(noise.mean())) < 0.003
    assert torch.equal(WeakDP(5.0, 0.0)(wide, Context(round=1)).delta, clipped)


def test_noise_differs_by_round_and_seed_alone() -> None:
    updates = make_toy_round()
    first, again, round, seed = (
        WeakDP()(updates, context).delta
        for context in (Context(round=1), Context(round=1), Context(round=2), Context(round=1, seed=1))
    )
    assert torch.equal(first, again)
    assert not torch.isclose(first, round).any()
    assert not torch.isclose(first, seed).any()


@pytest.mark.parametrize(
    ("defense", "settings", "sentence"),
    [
        (NormClip, {"bound": 0.0}, r"bound must be a positive length, got 0\.0"),
        (WeakDP, {"bound": -1.0}, r"bound must be a positive length, got -1\.0"),
        (WeakDP, {"noise": -0.1}, r"noise must be a standard deviation, zero or more, got -0\.1"),
        (WeakDP, {"noise": float("inf")}, "noise must be a standard deviation, zero or more, got inf"),
    ],
)
def test_settings_that_cannot_be_are_refused(defense: Any, settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        defense(**settings)


@pytest.mark.parametrize("defense", [NormClip(), WeakDP()])
def test_clipping_passes_every_check(defense: NormClip | WeakDP) -> None:
    check_defense(defense)

import numpy as np
import pytest
import torch

from snowball import products as module
from snowball.defenses import Context
from snowball.defenses.rlr import RLR
from snowball.errors import SettingError
from snowball.testing import make_toy_round
from snowball.updates import Updates

ROWS = [[1, -2, 0.5, 0], [2, 1, -0.5, 0], [1, -1, 0.5, -3], [3, 2, 1, 1], [-1, -1, 0.5, 2]]
ROUND = Updates.from_layers({"w": torch.tensor(ROWS)}, examples=[1, 1, 2, 1, 5])


def reversed_where_few_agree(updates: Updates, threshold: int) -> np.ndarray:
    rows, examples = updates.values.numpy(), updates.examples.numpy()
    agreement = np.abs(np.sign(rows).sum(0))
    return np.where(agreement >= threshold, 1, -1) * np.average(rows, axis=0, weights=examples)


@pytest.mark.parametrize(
    ("threshold", "expected", "share"),
    [
        (0, [0.3, -0.6, 0.45, 0.5], 0),
        (3, [0.3, 0.6, 0.45, -0.5], 0.5),
        (4, [-0.3, 0.6, -0.45, -0.5], 1),
    ],
)
def test_five_updates_by_hand(threshold: int, expected: list[float], share: float) -> None:
    verdict = RLR(threshold)(ROUND, Context(round=1))
    torch.testing.assert_close(verdict.delta, torch.tensor(expected))
    assert verdict.elected.all()
    assert verdict.facts == {"threshold": threshold, "reversed": share}


@pytest.mark.parametrize("block", [1, 7, 1 << 19])
def test_the_result_is_that_of_a_plain_computation_whatever_the_block(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = make_toy_round(clients=15, seed=3)
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", block)
    delta = RLR(5)(updates, Context(round=1)).delta
    np.testing.assert_allclose(delta, reversed_where_few_agree(updates, 5), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("rows", "threshold"), [(1, 1), (2, 1), (7, 1), (8, 2), (50, 10)])
def test_a_share_means_at_least_one_update(rows: int, threshold: int) -> None:
    assert RLR(0.2)(make_toy_round(clients=rows, infected=0), Context(round=1)).facts["threshold"] == threshold


def test_a_half_precision_sum_of_signs_is_exact() -> None:
    rows = torch.ones(301, 2, dtype=torch.bfloat16)  # which holds 300 and 302, but not 301
    rows[0, 1] = -1
    delta = RLR(300)(Updates.from_layers({"w": rows}), Context(round=1)).delta
    assert delta[0] > 0 > delta[1]


def test_a_threshold_that_would_reverse_everything_is_refused() -> None:
    with pytest.raises(SettingError, match="threshold of 6 reverses every coordinate of 5 updates"):
        RLR(6)(ROUND, Context(round=1))


@pytest.mark.parametrize("threshold", [-1, 1.5, float("nan")])
def test_what_is_no_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(SettingError, match="threshold must be a share"):
        RLR(threshold)

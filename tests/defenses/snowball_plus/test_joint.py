from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from snowball.defenses.snowball_plus.ballots import MAX_CHARGED_SHARE
from snowball.defenses.snowball_plus.evidence import POSITIONS, Recalled, gather_evidence
from snowball.defenses.snowball_plus.joint import find_bound, find_target, judge_together, score_traces, weigh_traces
from snowball.defenses.snowball_plus.memory import recall_suspects
from snowball.defenses.snowball_plus.statistics import compare_groups, standardise
from snowball.products import centre_products
from snowball.rng import stream

TRACES = {
    "length",
    "alignment",
    "lean",
    "misfit",
    "direction conv.weight",
    "inputs conv.weight",
    "direction hidden.weight",
    "inputs hidden.weight",
}


def recall(planted: Any) -> Recalled:
    """What is remembered of a made-up round's infected."""
    evidence = gather_evidence(planted.updates, planted.base, None)
    return recall_suspects(None, planted.updates, evidence, planted.infected)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("recalled", [False, True])
def test_a_charge_that_is_partly_wrong_is_put_right(make_round: Callable[..., Any], seed: int, recalled: bool) -> None:
    planted = make_round(seed, infected=15, together=0.6, undo=0.4, lean=0.05)
    evidence = gather_evidence(planted.updates, planted.base, recall(planted) if recalled else None)
    truth = planted.infected
    charged = truth.clone()
    charged[truth.nonzero().flatten()[:5]] = False
    charged[(~truth).nonzero().flatten()[:5]] = True
    judgement = judge_together(evidence, charged)
    assert torch.equal(judgement.suspects, truth)
    assert judgement.scores[truth].min() > judgement.scores[~truth].max()
    assert judgement.separation > 4
    assert judgement.weights.keys() >= TRACES
    assert ("recalled inputs conv.weight" in judgement.weights) == recalled
    assert judgement.weights["direction conv.weight"] > 1


@pytest.mark.parametrize("rows", [4, 8, 50])
def test_no_more_are_accused_than_may_be(make_round: Callable[..., Any], rows: int) -> None:
    for seed in range(30):
        planted = make_round(seed, rows=rows)
        charged = torch.randperm(rows, generator=stream(seed)) < max(1, int(MAX_CHARGED_SHARE * rows))
        judgement = judge_together(gather_evidence(planted.updates, planted.base, None), charged)
        assert 1 <= int(judgement.suspects.sum()) <= MAX_CHARGED_SHARE * rows


def test_a_charge_stands_where_nothing_can_be_told(make_round: Callable[..., Any]) -> None:
    planted = make_round(0)
    alike = planted.updates.replace_values(torch.zeros_like(planted.updates.values))
    charged = torch.arange(50) < 7
    judgement = judge_together(gather_evidence(alike, planted.base, None), charged)
    assert torch.equal(judgement.suspects, charged)
    assert judgement.scores.isfinite().all()


def test_traces_that_are_not_known_are_left_out(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15)
    evidence = gather_evidence(planted.updates, None, None)
    traces = score_traces(replace(evidence, leans=None), planted.infected)
    assert traces.keys() == TRACES - {"alignment", "lean", "misfit"}
    for each in traces.values():
        assert float(each.mean()) == pytest.approx(0, abs=1e-9)
        assert float(each.var(correction=0)) == pytest.approx(1)


def test_inputs_are_compared_about_their_mean(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15)
    evidence, suspects = gather_evidence(planted.updates, None, None), planted.infected
    shares = evidence.inputs["conv.weight"]
    expected = standardise(compare_groups(centre_products(shares @ shares.T), suspects))
    torch.testing.assert_close(score_traces(evidence, suspects)["inputs conv.weight"], expected)


def test_a_misfit_raises_the_suspects_class_unlike_the_model(make_round: Callable[..., Any]) -> None:
    planted = make_round(0, infected=15, lean=0.1)
    evidence, suspects = gather_evidence(planted.updates, planted.base, None), planted.infected
    assert evidence.fits is not None
    expected = standardise(-evidence.fits[:, 7])  # the class that they lean to
    torch.testing.assert_close(score_traces(evidence, suspects)["misfit"], expected)
    assert "misfit" not in score_traces(replace(evidence, fits=None), suspects)


def test_positions_are_a_trace_of_inputs_and_not_of_directions(make_image_round: Callable[..., Any]) -> None:
    planted = make_image_round(0, infected=12, rewired=2.0)
    evidence, suspects = gather_evidence(planted.updates, planted.base, None), planted.infected
    traces = score_traces(evidence, suspects)
    assert f"direction {POSITIONS}" not in traces
    shares = evidence.inputs[POSITIONS]
    expected = standardise(compare_groups(centre_products(shares @ shares.T), suspects))
    torch.testing.assert_close(traces[f"inputs {POSITIONS}"], expected)
    recalled = recall_suspects(None, planted.updates, evidence, suspects)
    assert recalled.directions.keys() == evidence.inputs.keys() - {POSITIONS}
    again = gather_evidence(planted.updates, planted.base, recalled)
    assert again.recalled_inputs.keys() == evidence.inputs.keys()
    torch.testing.assert_close(again.recalled_inputs[POSITIONS], shares @ recalled.inputs[POSITIONS])
    assert judge_together(again, suspects).weights[f"recalled inputs {POSITIONS}"] > 1


def test_the_target_is_the_class_that_suspects_lean_to() -> None:
    leans = torch.tensor([[0.1, 0.2, 0.9], [0.2, 0.8, 0.0], [0.1, 0.9, 0.3]], dtype=torch.float64)
    assert find_target(leans, torch.tensor([True, False, False])) == 2
    assert find_target(leans, torch.tensor([True, True, True])) == 1


def test_traces_weigh_by_hand() -> None:
    features = torch.tensor([[3.0, 0, 1], [5, 0, 1], [0, 1, 0], [0, 3, 0], [2, 2, 0]], dtype=torch.float64)
    weights = weigh_traces(features, torch.tensor([True, True, False, False, False]))
    apart, scatter = 4 - 2 / 3, (2 + 8 / 3) / 5
    assert weights.tolist() == pytest.approx([apart / scatter, 0, 1 / 0.05])  # the least spread, never below zero


@pytest.mark.parametrize(
    ("above", "bound"),
    [
        ([8.0, 10, 10, 12], 4.0),  # four deviations above the rest, and above 10 - 1.25 * 2 ** 0.5
        ([1.0, 3, 3, 5], 3 - 1.25 * 2**0.5),
    ],
)
def test_who_is_far_below_the_other_suspects_goes_free_unless_far_above_the_rest(
    above: list[float], bound: float
) -> None:
    scores = torch.tensor([-1.0, 1] * 5 + above, dtype=torch.float64)  # the rest have a mean of 0, a deviation of 1
    assert find_bound(scores, torch.arange(14) >= 10) == pytest.approx(bound, abs=1e-9)

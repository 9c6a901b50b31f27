from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel
from torch import Tensor

from snowball.defenses import Before, Context, InspectingDefense, NormClip
from snowball.defenses.flare import FLARE, compare_features, count_votes
from snowball.defenses.nnm import NNM
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

SAMPLES = torch.rand(12, 3, generator=stream(0, "samples"), dtype=torch.float64)


@dataclass
class Network:
    """Features are the samples times a matrix, which is the row."""

    def __call__(self, row: Tensor, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def random_inputs(self, count: int, rng: torch.Generator) -> Tensor:
        raise NotImplementedError

    def compute_features(self, row: Tensor, inputs: Tensor) -> Tensor:
        return inputs.to(row.dtype) @ row.view(3, -1)


BASE = torch.randn(9, generator=stream(0, "base"), dtype=torch.float64)
CONTEXT = Context(round=1, base=BASE, model=Network(), samples=SAMPLES)


def make_round(clients: int = 9, infected: int = 3) -> Updates:
    """Make a round in which the last clients see the samples differently."""
    rows = 0.3 * torch.randn(clients, 9, generator=stream(1, "rows"), dtype=torch.float64)
    rows[clients - infected :] += 2
    return Updates.from_layers({"w": rows})


def measure_discrepancy(one: np.ndarray, other: np.ndarray) -> float:
    """Measure the squared discrepancy with scikit-learn's kernel, whose default width is the number of features."""
    count = len(one)
    own, others, between = rbf_kernel(one), rbf_kernel(other), rbf_kernel(one, other)
    apart = ~np.eye(count, dtype=bool)
    return float(own[apart].mean() + others[apart].mean() - 2 * between.mean())


def test_discrepancies_are_those_of_scikit_learn() -> None:
    features = torch.randn(5, 12, 4, generator=stream(0, "features"), dtype=torch.float64)
    found = compare_features(features)
    for one in range(5):
        for other in range(5):
            expected = measure_discrepancy(features[one].numpy(), features[other].numpy()) if one != other else 0
            assert float(found[one, other]) == pytest.approx(expected, abs=1e-11)


def test_a_discrepancy_by_hand() -> None:
    """Of points 0, 1 and 0, 2 the kernels are e^-1 within the first, e^-4 in the other, 1, e^-4, e^-1, e^-1 between."""
    features = torch.tensor([[[0.0], [1.0]], [[0.0], [2.0]]]).double()
    near, far = np.exp(-1), np.exp(-4)
    expected = near + far - 2 * (1 + far + near + near) / 4
    assert float(compare_features(features)[0, 1]) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("weighting", ["exponential", "votes"])
def test_the_whole_round_is_that_of_numpy(weighting: Any) -> None:
    updates = make_round()
    verdict = FLARE(weighting=weighting, temperature=0.5)(updates, CONTEXT)
    features = [SAMPLES.numpy() @ (BASE + row).view(3, 3).numpy() for row in updates.values]
    votes = np.zeros(9)
    for one in range(9):
        distances = [(measure_discrepancy(features[one], features[other]), other) for other in range(9) if other != one]
        for _, other in sorted(distances)[:4]:
            votes[other] += 1
    np.testing.assert_array_equal(torch.as_tensor(verdict.facts["votes"]), votes)
    trust = np.exp(votes / (0.5 * votes.mean())) if weighting == "exponential" else votes
    np.testing.assert_allclose(torch.as_tensor(verdict.facts["weights"]), trust / trust.sum(), rtol=1e-9)
    np.testing.assert_allclose(verdict.delta, trust @ updates.values.numpy() / trust.sum(), rtol=1e-9)
    assert verdict.elected.tolist() == (trust > 0).tolist()
    assert verdict.suspects is None


def test_models_that_see_samples_differently_get_votes_from_each_other_only() -> None:
    """Three attackers vote for each other and for two more; six honest clients vote for four of their own."""
    votes = torch.as_tensor(FLARE()(make_round(), CONTEXT).facts["votes"])
    assert votes[6:].tolist() == [2, 2, 2]
    assert int(votes.sum()) == 9 * 4


def test_each_votes_for_the_nearest_others_and_the_lower_lot_breaks_ties() -> None:
    distances = torch.tensor([[0, 1, 2, 2], [1, 0, 1, 3], [2, 1, 0, 3], [2, 3, 2, 0]]).double()
    assert count_votes(distances, 1, torch.tensor([1, 2, 3, 4])).tolist() == [2, 2, 0, 0]
    assert count_votes(distances, 1, torch.tensor([4, 3, 2, 1])).tolist() == [0, 2, 2, 0]
    assert count_votes(distances, 3, torch.tensor([1, 2, 3, 4])).tolist() == [3, 3, 3, 3]


def test_examples_do_not_count() -> None:
    updates = make_round()
    other = Updates(updates.values, torch.arange(1.0, 10).double(), updates.clients, updates.layout)
    torch.testing.assert_close(FLARE()(updates, CONTEXT).delta, FLARE()(other, CONTEXT).delta)


def test_a_huge_model_gets_no_vote_from_others() -> None:
    updates = make_round(infected=0)
    updates.values[8] = 1e200
    verdict = FLARE(weighting="votes")(updates, CONTEXT)
    assert torch.as_tensor(verdict.facts["votes"])[8] == 0
    assert not verdict.elected[8]
    assert verdict.delta.abs().max() < 1


def test_one_update_has_nobody_to_vote_for() -> None:
    verdict = FLARE(weighting="votes")(make_round(1, 0), CONTEXT)
    assert verdict.elected.tolist() == [True]
    assert verdict.facts["votes"].tolist() == [0]  # type: ignore[union-attr]


def test_proportional_trust_passes_every_check() -> None:
    check_defense(FLARE(weighting="votes"), examples=5)


def test_flare_wants_samples_and_a_model() -> None:
    assert isinstance(FLARE(), InspectingDefense)
    assert not isinstance(NormClip(), InspectingDefense)
    mixed = Before(FLARE(inspected_examples=7), (NNM(),))
    assert isinstance(mixed, InspectingDefense)
    assert mixed.inspected_examples == 7
    for missing in ("model", "samples", "base"):
        with pytest.raises(SettingError, match=rf"flare needs Context\.{missing}"):
            FLARE()(make_toy_round(), replace(CONTEXT, **{missing: None}))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"inspected_examples": 1}, "inspected_examples must be 2 or more, got 1"),
        ({"nearest": 0.0}, r"nearest must be a share in \(0, 1\], got 0"),
        ({"nearest": 1.5}, "got 1.5"),
        ({"weighting": "linear"}, "weighting must be one of exponential, votes, got 'linear'"),
        ({"temperature": 0.0}, "temperature must be above 0 and finite, got 0"),
        ({"temperature": float("inf")}, "temperature must be above 0 and finite, got inf"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        FLARE(**settings)

from math import cos, pi, sqrt

import numpy as np
import pytest
import torch
from scipy.fft import dct
from sklearn.cluster import HDBSCAN
from sklearn.metrics.pairwise import cosine_distances

from snowball.defenses import Context
from snowball.defenses.freqfed import FreqFed, multiply_low_frequencies, transform_tensor
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing import make_toy_round
from snowball.updates import Updates

SHAPES = {"conv.weight": (4, 3, 2), "conv.bias": (7,), "fc.weight": (5, 9), "scale": ()}


def draw_updates(clients: int = 15) -> Updates:
    rng = stream(0, "rows")
    return Updates.from_layers({name: torch.randn(clients, *shape, generator=rng) for name, shape in SHAPES.items()})


def test_frequencies_by_hand() -> None:
    """Of (3, 1, 2), they are 6/sqrt(3), (3 - 2) cos(pi/6) sqrt(2/3) and (3/2 - 1 + 2/2) sqrt(2/3)."""
    vector = torch.tensor([3.0, 1, 2], dtype=torch.float64)
    expected = torch.tensor([6 / sqrt(3), cos(pi / 6) * sqrt(2 / 3), 1.5 * sqrt(2 / 3)], dtype=torch.float64)
    torch.testing.assert_close(transform_tensor(vector, (3,), 1.0), expected)
    torch.testing.assert_close(transform_tensor(vector, (3,), 0.5), expected[:2])  # 0 and 1 reach 1.5 at most


def test_of_a_matrix_the_corner_of_low_frequencies_is_kept() -> None:
    """Of [[3, 1], [2, 0]], half the sum is 3, the columns differ by 4/2 and the rows by 2/2."""
    matrix = torch.tensor([3.0, 1, 2, 0], dtype=torch.float64)
    assert transform_tensor(matrix, (2, 2), 1.0).round(decimals=9).tolist() == [3, 2, 1, 0]
    assert transform_tensor(matrix, (2, 2), 0.5).round(decimals=9).tolist() == [3, 2, 1]
    assert transform_tensor(matrix, (2, 2), 0.0).round(decimals=9).tolist() == [3]


@pytest.mark.parametrize(("shape", "kept"), [((4, 6), 4 + 3 + 2 + 1), ((6, 4), 10), ((3, 2, 4), 5 + 4 + 3), ((9,), 5)])
def test_how_many_frequencies_are_kept(shape: tuple[int, ...], kept: int) -> None:
    """Row plus column reach half of the longer side of a matrix of the first dimension by the rest: here 3, 3, 4, 4."""
    assert len(transform_tensor(torch.ones(int(np.prod(shape))), shape, 0.5)) == kept


def test_all_frequencies_have_the_inner_products_of_the_models_or_updates() -> None:
    updates = draw_updates()
    base = torch.randn(updates.layout.width, generator=stream(0, "base"))
    models, changes = (multiply_low_frequencies(updates, start, 2.0) for start in (base, None))
    torch.testing.assert_close(models, updates.products_about(-base))
    torch.testing.assert_close(changes, updates.products_about(torch.zeros(updates.layout.width)))


def test_frequencies_are_scipys_tensor_by_tensor() -> None:
    updates = draw_updates()
    products = np.zeros((15, 15))
    for name, shape in SHAPES.items():
        rows = updates.values[:, updates.layout.columns[name]].double().numpy()
        matrices = rows.reshape(15, shape[0] if len(shape) > 1 else 1, -1)
        found = dct(dct(matrices, norm="ortho", axis=2), norm="ortho", axis=1)
        low = np.add(*np.indices(found.shape[1:])) * 2 <= max(found.shape[1:])
        products += found[:, low] @ found[:, low].T
    np.testing.assert_allclose(multiply_low_frequencies(updates, None, 0.5), products)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_cluster_is_scikit_learns(seed: int) -> None:
    updates = make_toy_round(clients=21, infected=5, seed=seed, width=200)
    verdict = FreqFed(compared="updates")(updates, Context(round=1))
    names = {name: updates.values[:, columns].numpy() for name, columns in updates.layout.columns.items()}
    low = np.hstack([dct(names["first.weight"], norm="ortho")[:, :99], names["middle.bias"], names["last.weight"]])
    low[:, 99:] = dct(low[:, 99:].reshape(21, 2, 2), norm="ortho").reshape(21, 4)
    clusterer = HDBSCAN(min_cluster_size=11, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True)
    labels = clusterer.fit_predict(cosine_distances(low.astype(np.float64)))
    assert torch.as_tensor(verdict.facts["clusters"]).tolist() == labels.tolist()
    elected = labels == 0 if (labels == 0).any() else np.full(21, True)
    assert verdict.elected.tolist() == elected.tolist()
    weights = updates.examples.numpy() * elected
    np.testing.assert_allclose(verdict.delta, weights / weights.sum() @ updates.values.numpy(), rtol=1e-4, atol=1e-7)


def make_waves(high: float) -> Updates:
    """Five updates along one slow wave and two along another; of the fast waves, the first three share one."""
    angles = (torch.arange(32, dtype=torch.float64) + 0.5) * pi / 32
    slow, fast = torch.tensor([[1.0]] * 5 + [[3.0]] * 2), torch.tensor([[20.0]] * 3 + [[25.0]] * 4)
    own = torch.arange(4, 11)[:, None]  # a slow wave of its own for each update, so that no two are equal
    waves = torch.cos(slow * angles) + 0.1 * torch.cos(own * angles) + high * torch.cos(fast * angles)
    return Updates.from_layers({"w": waves})


@pytest.mark.parametrize("high", [0.0, 1.0, 100.0])
def test_high_frequencies_decide_nothing(high: float) -> None:
    verdict = FreqFed(compared="updates")(make_waves(high), Context(round=1))
    assert verdict.elected.tolist() == [True] * 5 + [False] * 2


def test_with_all_frequencies_they_do() -> None:
    verdict = FreqFed(2.0, "updates")(make_waves(100.0), Context(round=1))
    assert verdict.elected.tolist() == [False] * 3 + [True] * 4


@pytest.mark.parametrize("low", [-0.1, 2.1, float("nan")])
def test_bad_shares_are_refused(low: float) -> None:
    with pytest.raises(SettingError, match=r"low must lie in 0\.\.2, got"):
        FreqFed(low)


def test_models_are_compared_unless_set_otherwise() -> None:
    """Updates to both sides of a long model leave it almost where it is; the last two turn it."""
    base = torch.tensor([10.0, 0, 0, 0])
    rows = torch.tensor([[0.1, 0], [-0.1, 0], [0.1, 0.01], [-0.1, 0.01], [0.0, 3.0], [0.0, -3.0]])
    updates, context = Updates.from_layers({"w": torch.nn.functional.pad(rows, (0, 2))}), Context(round=1, base=base)
    assert FreqFed()(updates, context).elected.tolist() == [True] * 4 + [False] * 2
    assert FreqFed(compared="updates")(updates, context).elected.all()  # no four of these directions are alike
    with pytest.raises(SettingError, match=r"freqfed needs Context\.base"):
        FreqFed()(updates, Context(round=1))


def test_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(SettingError, match="compared must be one of models, updates, got 'both'"):
        FreqFed(compared="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_accepted(kind: torch.dtype) -> None:
    updates = make_waves(0.0)
    halves = updates.replace_values(updates.values.to(kind))
    verdict = FreqFed()(halves, Context(round=1, base=torch.zeros(32, dtype=kind)))
    assert verdict.elected.any()
    assert not verdict.elected[5:].any()

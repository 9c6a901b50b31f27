from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.cluster import HDBSCAN

from snowball.defenses import Context
from snowball.defenses.flame import FLAME
from snowball.errors import SettingError
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

MODELS = [[1, 0], [1, 0.03], [1, 0.09], [0.99, 0.12], [1.97, 0.35], [0.5, 0.87], [0.63, 1.36]]
BASE = torch.tensor([0.5, 0.0])
ROUND = Updates.from_layers({"w": torch.tensor(MODELS) - BASE})
CONTEXT = Context(round=1, base=BASE)


def test_the_published_variant_passes_every_check() -> None:
    check_defense(FLAME(variant="published"), examples=10)


def test_seven_models_by_hand() -> None:
    verdict = FLAME(noise=0)(ROUND, CONTEXT)
    assert verdict.facts["clusters"].tolist() == [0, 0, 0, 0, 0, -1, -1]
    assert verdict.elected.tolist() == [True] * 5 + [False] * 2
    norms = torch.tensor([0.5, 0.5009, 0.5080, 0.5045, 1.5111, 0.87, 1.3662], dtype=torch.float64)
    torch.testing.assert_close(verdict.facts["norms"], norms, rtol=0, atol=1e-4)
    assert verdict.facts["bound"] == pytest.approx(0.50804, abs=1e-5)
    torch.testing.assert_close(BASE + verdict.delta, torch.tensor([0.99684, 0.07153]), rtol=0, atol=1e-5)


def test_noise_is_as_strong_as_set_and_its_own_in_every_round() -> None:
    updates = make_toy_round(width=20_000)
    context = Context(round=1, base=torch.zeros(20_000))
    silent = FLAME(noise=0)(updates, context)
    noise = FLAME(noise=0.01)(updates, context).delta - silent.delta
    assert float(noise.std() / silent.facts["bound"]) == pytest.approx(0.01, rel=0.02)
    assert float(noise.mean() / noise.std()) == pytest.approx(0, abs=0.03)
    another = FLAME(noise=0.01)(updates, replace(context, round=2)).delta - silent.delta
    assert abs(float(torch.corrcoef(torch.stack([noise, another]))[0, 1])) < 0.03


def test_whole_models_are_compared_not_updates() -> None:
    base = torch.tensor([10.0, 0.0])
    rows = torch.tensor([[0.1, 0.0], [-0.1, 0.0], [0.1, 0.01], [-0.1, 0.01], [0.0, 3.0], [0.0, -3.0]])
    elected = FLAME()(Updates.from_layers({"w": rows}), Context(round=1, base=base)).elected
    assert elected.tolist() == [True, True, True, True, False, False]


def test_of_an_even_number_of_lengths_the_middle_two_are_averaged() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[1.0], [2.0], [3.0], [10.0]])})
    verdict = FLAME(noise=0)(updates, Context(round=1, base=torch.zeros(1)))
    assert verdict.facts["bound"] == 2.5
    assert verdict.delta.item() == (1 + 2 + 2.5 + 2.5) / 4


def test_example_counts_do_not_weigh() -> None:
    heavy = Updates(ROUND.values, torch.tensor([1000.0, 1, 1, 1, 1, 1, 1]), ROUND.clients, ROUND.layout)
    torch.testing.assert_close(FLAME()(heavy, CONTEXT).delta, FLAME()(ROUND, CONTEXT).delta)


def test_the_published_variant_by_hand() -> None:
    """A row's neighbourhood is half of the rows beside itself, so that the middle is denser than either end."""
    updates = Updates.from_layers({"w": torch.tensor([[-6.0], [-5], [-4], [4], [5]])})
    verdict = FLAME(0, "published")(updates, Context(round=1))
    assert verdict.elected.tolist() == [False, True, True, True, False]
    assert verdict.facts["bound"] == 4  # of the accepted; of all rows, it is 5
    assert verdict.delta.item() == pytest.approx((-4 - 4 + 4) / 3)


@pytest.mark.parametrize("seed", range(5))
def test_the_published_variant_is_scikit_learns_on_the_rows_themselves(seed: int) -> None:
    updates = make_toy_round(clients=21, infected=5, seed=seed, dtype=torch.float64)
    verdict = FLAME(0, "published")(updates, Context(round=1))
    rows = updates.values.numpy()
    labels = HDBSCAN(min_cluster_size=11, min_samples=12, allow_single_cluster=True, copy=True).fit_predict(rows)
    accepted = rows[labels == 0]
    norms = np.linalg.norm(accepted, axis=1)
    bound = np.median(norms)
    assert verdict.elected.tolist() == (labels == 0).tolist()
    assert verdict.facts["bound"] == pytest.approx(bound) != np.median(np.linalg.norm(rows, axis=1))
    np.testing.assert_allclose(verdict.delta, (accepted * np.minimum(1, bound / norms)[:, None]).mean(0))


@pytest.mark.parametrize("variant", ["original", "published"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_too_few_to_cluster_are_all_accepted(variant: str, rows: int) -> None:
    few = Updates.from_layers({"w": torch.eye(3)[:rows] * 4})
    verdict = FLAME(0, variant)(few, Context(round=1))
    assert verdict.elected.all()
    torch.testing.assert_close(verdict.delta, few.values.mean(0))


@pytest.mark.parametrize("variant", ["original", "published"])
def test_updates_beyond_measure_are_left_out(variant: str) -> None:
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.01
    rows[:, 0] += 1
    rows[6:, 1] = 1e18
    verdict = FLAME(variant=variant)(Updates.from_layers({"w": rows}), Context(round=1, base=torch.zeros(40)))
    assert not verdict.elected[6:].any()
    assert verdict.delta.abs().max() < 2


def test_the_original_needs_the_global_model() -> None:
    with pytest.raises(SettingError, match=r"flame needs Context\.base"):
        FLAME()(ROUND, Context(round=1))


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_what_is_no_noise_is_refused(noise: float) -> None:
    with pytest.raises(SettingError, match="noise must be 0 or more, got"):
        FLAME(noise)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(SettingError, match="one of original, published, got 'official'"):
        FLAME(variant="official")

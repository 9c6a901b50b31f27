import pytest
import torch

from snowball.defenses import Context, MultiMetrics
from snowball.defenses.multi_metrics import measure_differences, score_metrics, sum_manhattan_distances
from snowball.errors import SettingError
from snowball.testing import make_toy_round
from snowball.updates import Updates

MODEL = torch.tensor([1.0, -2.0])
UPDATES = Updates.from_matrix(torch.tensor([[2.0, 2.0], [-1.0, 6.0], [2.0, 6.0]]))
"""The models are (3, 0), (0, 4) and (3, 4), with cosines 0, 0.6 and 0.8, distances 7, 4 and 3, lengths 3, 4 and 5."""


def test_the_metrics_of_models_are_summed_over_all_others() -> None:
    expected = [[1 + 0.16, 7 + 4, 1 + 2], [1 + 0.04, 7 + 3, 1 + 1], [0.16 + 0.04, 4 + 3, 2 + 1]]
    torch.testing.assert_close(measure_differences(UPDATES, MODEL), torch.tensor(expected, dtype=torch.float64))


def test_manhattan_distances_are_summed_over_all_columns_and_pairs() -> None:
    updates = make_toy_round(9, width=700)
    values = updates.values.double()
    torch.testing.assert_close(sum_manhattan_distances(updates), torch.cdist(values, values, p=1).sum(1))


def test_scores_weigh_metrics_by_their_covariance() -> None:
    """Both metrics have variance 4 / 3 and no covariance: the score is three quarters of the sum of squares."""
    metrics = torch.tensor([[1.0, 1], [1, 3], [3, 1], [3, 3]], dtype=torch.float64)
    assert score_metrics(metrics).tolist() == pytest.approx([1.5, 7.5, 7.5, 13.5])
    assert score_metrics(metrics * torch.tensor([1e9, 1e-9])).tolist() == pytest.approx([1.5, 7.5, 7.5, 13.5])


def test_scores_are_those_of_the_inverse_covariance() -> None:
    metrics = torch.rand(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inverse = metrics.T.cov().inverse()
    expected = torch.einsum("ni,ij,nj->n", metrics, inverse, metrics)
    torch.testing.assert_close(score_metrics(metrics), expected)


def test_what_two_metrics_share_counts_once() -> None:
    metric = torch.tensor([[1.0], [1], [3], [3]], dtype=torch.float64)
    alone = torch.cat([metric, torch.full_like(metric, 7)], 1)  # a metric without variance counts nothing
    torch.testing.assert_close(score_metrics(metric.repeat(1, 2)), score_metrics(alone))
    assert score_metrics(alone).tolist() == pytest.approx([0.75, 0.75, 6.75, 6.75])


@pytest.mark.parametrize(("keep", "kept"), [(0.3, 6), (0.01, 1), (1.0, 20), (0.29, 5)])
def test_the_lowest_scores_are_averaged_by_examples(keep: float, kept: int) -> None:
    updates = make_toy_round(20, infected=4)
    verdict = MultiMetrics(keep)(updates, Context(round=1, base=torch.zeros(updates.layout.width)))
    scores = torch.as_tensor(verdict.facts["scores"])
    assert int(verdict.elected.sum()) == kept
    assert kept == 20 or scores[verdict.elected].max() < scores[~verdict.elected].min()
    torch.testing.assert_close(verdict.delta, updates.mean(updates.examples * verdict.elected))


@pytest.mark.parametrize("infected", [1, 4])
def test_far_rows_need_not_score_higher(infected: int) -> None:
    """What all sums have in common outweighs the far rows' deviation; the page explains why."""
    updates = make_toy_round(20, infected, distance=100.0)
    verdict = MultiMetrics()(updates, Context(round=1, base=torch.ones(updates.layout.width)))
    scores, far = torch.as_tensor(verdict.facts["scores"]), torch.arange(20) >= 20 - infected
    manhattan = torch.as_tensor(verdict.facts["manhattan"])
    assert manhattan[far].min() > 1.2 * manhattan[~far].max()
    assert scores[far].max() < scores[~far].max() < 2 * scores.min()


def test_lots_decide_between_equals() -> None:
    updates = Updates.from_matrix(torch.ones(5, 3))
    chosen = {MultiMetrics()(updates, Context(round=round, base=torch.ones(3))).names for round in range(1, 30)}
    assert len(chosen) == 5


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match=r"keep must be a share in \(0, 1\], got 0"):
        MultiMetrics(0)
    with pytest.raises(SettingError, match=r"multi-metrics needs Context\.base"):
        MultiMetrics()(UPDATES, Context(round=1))

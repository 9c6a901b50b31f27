import torch

from benchmarks.baselines.lloyd import run_plain_lloyd
from benchmarks.speed.elections import CLUSTERS
from benchmarks.speed.votes import count_steps, number_clusters
from snowball.defenses.snowball.bottom_up import choose_centroids


def test_steps_are_counted_until_nothing_moves() -> None:
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gram = rows @ rows.T
    starts = choose_centroids(gram, CLUSTERS)
    labels, steps, moved = count_steps(gram, starts)
    assert torch.equal(labels, run_plain_lloyd(gram, starts))
    assert 40 < steps < 40 * 20
    assert moved > 0
    assert count_steps(gram, starts[:3])[1] <= steps


def test_equal_partitions_have_equal_numbers() -> None:
    numbered = number_clusters(torch.tensor([[2, 0, 2, 1], [0, 1, 0, 2], [0, 0, 1, 1]]))
    assert numbered.tolist() == [[0, 1, 0, 3], [0, 1, 0, 3], [0, 0, 2, 2]]

"""The steps among many rows, one by one; test_kmeans.py holds whole runs against plain steps."""

import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball import moving_sums
from snowball.defenses.snowball.lloyd_step import Step, count_members, mark_members, step_plainly
from snowball.defenses.snowball.moving_sums import MovingSums


def start_from(gram: Tensor, members: Tensor, clusters: int) -> MovingSums:
    """Return the sums of these members."""
    return MovingSums(gram, Step(members, members, torch.zeros(members.shape)), clusters)


@pytest.mark.parametrize(("far", "elements"), [(1.0, 1 << 18), (1.0, 300), (1e9, 1 << 18)])
def test_sums_follow_the_rows_that_move(monkeypatch: pytest.MonkeyPatch, far: float, elements: int) -> None:
    monkeypatch.setattr(moving_sums, "TOTALS_ELEMENTS", elements)
    rng = torch.Generator().manual_seed(7)
    rows = torch.randn(150, 6, generator=rng, dtype=torch.float64)
    rows[3] *= far  # out of a cluster, it would leave rounding errors behind
    gram, members = rows @ rows.T, torch.randint(0, 5, (3, 150), generator=rng)
    sums = start_from(gram, members, 5)
    for _ in range(4):
        expected = step_plainly(gram, members, 5)
        done, least = sums.take()
        assert not done.any()
        assert torch.equal(sums.labels, expected.labels)
        assert bool(least.isnan().any()) == (far > 1)
        members = sums.labels.clone()
        marked = mark_members(members, 5, torch.float64)
        products = marked @ gram
        assert ((sums._products - products).abs() <= 1e-12 * products.abs().amax((0, 1))).all()
        torch.testing.assert_close(sums._squares, (marked * products).sum(2), rtol=1e-12, atol=1e-9)
        assert torch.equal(sums._sizes, count_members(members, 5))


def test_distances_to_the_own_centroid_are_measured() -> None:
    rows = torch.randn(140, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    members = torch.arange(140)[None] % 5
    _, least = start_from(rows @ rows.T, members, 5).take()
    means = torch.stack([rows[members[0] == cluster].mean(0) for cluster in range(5)])
    expected = (rows - means[members[0]]).square().sum(1)
    torch.testing.assert_close(least[0] + rows.square().sum(1), expected)


def test_the_last_starts_take_the_places_of_those_that_are_done() -> None:
    rng = torch.Generator().manual_seed(8)
    rows = torch.randn(150, 6, generator=rng, dtype=torch.float64)
    gram, members = rows @ rows.T, torch.randint(0, 5, (7, 150), generator=rng)
    sums = start_from(gram, members, 5)
    done = torch.tensor([True, False, True, False, False, True, False])
    kept = sums.drop(done)
    assert kept.tolist() == [4, 1, 6, 3]
    alone = start_from(gram, members[kept], 5)
    for _ in range(3):
        assert [part.tolist() for part in sums.take()] == [part.tolist() for part in alone.take()]
        assert torch.equal(sums.labels, alone.labels)
    assert sums.drop(torch.ones(4, dtype=torch.bool)).tolist() == []


@pytest.mark.parametrize(("last", "plain"), [(0.0, [1]), (0.25, [])])
def test_a_start_with_a_row_between_two_centroids_takes_a_plain_step(
    monkeypatch: pytest.MonkeyPatch, last: float, plain: list[int]
) -> None:
    rows = torch.tensor([1.0] * 65 + [-1.0] * 64 + [-2.0, last], dtype=torch.float64)[:, None]
    members = torch.tensor([[1] * 65 + [0] * 66])  # about 1 and, if the last row is zero, -1
    taken = []

    def note_step(gram: Tensor, members: Tensor, clusters: int) -> Step:
        taken.append(len(members))
        return step_plainly(gram, members, clusters)

    monkeypatch.setattr(moving_sums, "step_plainly", note_step)
    _, least = start_from(rows @ rows.T, members, 2).take()
    assert taken == plain
    assert bool(least.isnan().any()) == bool(plain)

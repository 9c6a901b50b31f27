import pytest
import torch

from snowball.defenses.snowball import lloyd_step
from snowball.defenses.snowball.lloyd_step import (
    PlainSteps,
    Step,
    count_members,
    mark_members,
    measure_to_centroids,
)


def test_members_are_marked_with_one() -> None:
    marked = mark_members(torch.tensor([[0, 2, 0]]), 3, torch.float64)
    assert marked.tolist() == [[[1, 0, 1], [0, 0, 0], [0, 1, 0]]]


def test_empty_clusters_take_the_first_of_equally_far_rows() -> None:
    gram, labels = torch.eye(100, dtype=torch.float64), torch.zeros(1, 100, dtype=torch.int64)
    members = lloyd_step._fill_empty(labels, measure_to_centroids(gram, labels, 3), gram)
    assert members.tolist() == [[1, 2, *[0] * 98]]
    assert not labels.any()


def test_empty_clusters_take_the_rows_farthest_from_their_own_centroids() -> None:
    rows = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]], dtype=torch.float64)
    gram, labels = rows @ rows.T, torch.tensor([[0, 0, 0, 1, 1, 1]])
    members = lloyd_step._fill_empty(labels, measure_to_centroids(gram, labels, 4), gram)
    assert members.tolist() == [[0, 0, 0, 3, 1, 2]]


@pytest.mark.parametrize(("square", "own", "filled"), [(100.0, 5e-11, 0), (100.0, 1.5e-10, 1), (0.0, 0.0, 0)])
def test_rows_that_coincide_but_for_rounding_fill_no_cluster(square: float, own: float, filled: int) -> None:
    gram, labels = torch.full((4, 4), square, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.int64)
    members = lloyd_step._fill_empty(labels, torch.full((1, 2, 4), own - square, dtype=torch.float64), gram)
    assert count_members(members, 2).tolist() == [[4 - filled, filled]]


def test_plain_steps_tell_what_was_measured_to_the_final_centroids() -> None:
    rows = torch.tensor([[0.0], [1.0], [10.0], [11.0]], dtype=torch.float64)
    gram, apart = rows @ rows.T, torch.tensor([0, 0, 1, 1])
    labels = torch.stack([apart, apart, torch.tensor([0, 1, 1, 1])])
    members = torch.stack([apart, torch.tensor([0, 1, 1, 1]), labels[2]])
    steps = PlainSteps(gram, Step(labels, members, torch.zeros(3, 4)), 2)
    done, least = steps.take()
    assert done.tolist() == [True, True, False]
    assert (least[0] + gram.diagonal()).tolist() == pytest.approx([0.25] * 4)
    assert least[1].isnan().all()  # the second row was a member of the other cluster
    assert steps.drop(done).tolist() == [2]
    assert torch.equal(steps.labels, apart[None])
    assert steps.take()[0].tolist() == [True]

import torch

from benchmarks.choices.references import WAYS, count_equal, find_clusters
from benchmarks.inputs.synthetic import make_updates


def test_few_rows_have_the_same_references_unless_they_are_drawn_again() -> None:
    updates = make_updates({"w": torch.randn(40, 700, generator=torch.Generator().manual_seed(1))})
    ranges = torch.ones(700, dtype=torch.float64)
    drawn = {way: draw(40, ranges, torch.Generator().manual_seed(2)) for way, draw in WAYS.items()}
    assert torch.equal(drawn["all"], drawn["ours"])
    assert not torch.isclose(drawn["all"], drawn["others"]).any()
    found = {way: find_clusters(updates, "w", WAYS[way], [3]) for way in ("all", "ours")}
    assert found["all"] == found["ours"]


def test_equal_numbers_are_counted() -> None:
    assert count_equal([3, 4, 5], [3, 5, 5]) == 2

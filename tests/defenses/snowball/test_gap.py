"""The parts of the Gap statistic, by hand; test_method.py holds both of its rules against scikit-learn."""

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball import gap
from snowball.defenses.snowball.gap import GapRule, find_clusters, find_log_scatter, measure_gap
from snowball.rng import stream
from snowball.updates import Updates


def make_groups(centres: int, rows: int = 60, width: int = 30) -> Updates:
    """Return rows in well-parted groups of equal size."""
    rng = torch.Generator().manual_seed(3)
    middle = torch.randn(centres, width, generator=rng) * 10
    return Updates.from_layers(
        {"w": middle[torch.arange(rows) % centres][:, None] + torch.randn(rows, 1, width, generator=rng)}
    )


def replace_gap(monkeypatch: pytest.MonkeyPatch, gaps: list[float], errors: list[float]) -> list[range]:
    """Let the gap and its error be these; return the list of searched ranges, which is filled later."""
    searched: list[range] = []

    def measure(updates: Updates, layer: str, counts: range, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        searched.append(counts)
        return torch.tensor(gaps[: len(counts)]), torch.tensor(errors[: len(counts)])

    monkeypatch.setattr(gap, "measure_gap", measure)
    return searched


@pytest.mark.parametrize("centres", [3, 7])
def test_well_parted_groups_are_found(centres: int) -> None:
    assert find_clusters(make_groups(centres), "w", 2, 9, stream(1), "first") == centres


@pytest.mark.parametrize(
    ("gaps", "errors", "first", "largest"),
    [
        ([1, 2, 3, 2, 9], [0, 0, 0, 0, 0], 4, 4),  # the number after the last is only compared with
        ([1, 2, 3, 4, 5], [0, 0, 0, 0, 0], 5, 5),  # nothing holds, so the largest number is left
        ([1, 2, 3, 4, 5], [9, 0, 1, 0, 0], 3, 5),  # within the error of the next, which may be just reached
        ([5, 2, 3, 4, 6], [0, 0, 0, 0, 0], 2, 2),
        ([1, 3, 3, 4, 5], [0, 0, 0, 0, 0], 3, 5),
    ],
)
def test_the_rules_by_hand(
    monkeypatch: pytest.MonkeyPatch, gaps: list[float], errors: list[float], first: int, largest: int
) -> None:
    replace_gap(monkeypatch, gaps, errors)
    for rule, expected in (("first", first), ("largest", largest)):
        found = find_clusters(make_groups(2), "w", 2, 5, stream(1), rule)  # type: ignore[arg-type]
        assert (found, type(found)) == (expected, int)


@pytest.mark.parametrize(("rows", "most", "searched"), [(20, 5, range(2, 7)), (6, 5, range(2, 6))])
def test_one_number_more_is_searched_but_never_as_many_as_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, most: int, searched: range
) -> None:
    ranges = replace_gap(monkeypatch, [0.0] * 9, [0.0] * 9)
    find_clusters(make_groups(2, rows), "w", 2, most, stream(1), "first")
    assert ranges == [searched]


@pytest.mark.parametrize("rule", ["first", "largest"])
def test_nothing_is_searched_where_one_number_is_left_or_all_rows_coincide(
    monkeypatch: pytest.MonkeyPatch, rule: GapRule
) -> None:
    searched = replace_gap(monkeypatch, [0.0] * 9, [0.0] * 9)
    assert find_clusters(make_groups(4), "w", 3, 3, stream(1), rule) == 3
    assert find_clusters(Updates.from_layers({"w": torch.ones(9, 4)}), "w", 3, 4, stream(1), rule) == 3
    assert searched == []
    short = make_groups(4)
    find_clusters(short.replace_values(short.values * 1e-4), "w", 3, 4, stream(1), rule)
    assert len(searched) == 1


def test_the_gap_and_its_error_follow_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    observed, drawn = np.array([3.0, 1.0]), np.arange(20.0).reshape(10, 2) ** 2
    scatters = iter(torch.from_numpy(np.stack([observed, *drawn])))
    monkeypatch.setattr(gap, "find_log_scatter", lambda gram, counts, rng: next(scatters))
    found, error = measure_gap(make_groups(2), "w", range(2, 4), stream(1))
    np.testing.assert_allclose(found, drawn.mean(0) - observed)
    np.testing.assert_allclose(error, drawn.std(0) * np.sqrt(1 + 1 / 10))
    assert next(scatters, None) is None


def test_references_spread_over_the_range_of_each_column() -> None:
    updates = Updates.from_layers({"a": torch.zeros(2, 3), "b": torch.tensor([[1.0, 5.0], [4.0, -5.0]])})
    ranges = gap._measure_ranges(updates, "b", stream(1))
    assert sorted(ranges.tolist()) == [3, 10]
    assert ranges.dtype == torch.float64
    gram = gap._draw_reference(2000, ranges, stream(1))
    assert float(gram.mean()) == pytest.approx(0, abs=1e-9)  # about the mean
    assert float(gram.diagonal().mean()) == pytest.approx((3**2 + 10**2) / 12, rel=0.05)


def test_wide_layers_are_sampled() -> None:
    updates = Updates.from_layers({"w": torch.arange(2 * (2**16 + 9)).reshape(2, -1).float()})
    assert len(gap._measure_ranges(updates, "w", stream(1))) == 2**16


@pytest.mark.parametrize(("rows", "starts"), [(4, 50), (200, 50), (400, 25), (2000, 10)])
def test_small_rounds_have_more_starts(monkeypatch: pytest.MonkeyPatch, rows: int, starts: int) -> None:
    seen: list[tuple[int, ...]] = []

    def cluster(gram: Tensor, starts: Tensor) -> Tensor:
        seen.append(tuple(starts.shape))
        return torch.zeros(1, len(gram), dtype=torch.int64)

    monkeypatch.setattr(gap, "run_lloyd", cluster)
    find_log_scatter(torch.eye(rows, dtype=torch.float64), range(2, 4), stream(1))
    assert seen == [(starts, 2), (starts, 3)]


def measure_scatter_of(updates: Updates, labels: Tensor) -> float:
    """Return the summed squared distances of rows to the means of their groups."""
    rows = updates.values.double()
    return sum(
        float((rows[labels == label] - rows[labels == label].mean(0)).square().sum()) for label in labels.unique()
    )


def test_the_least_scatter_over_the_starts_counts() -> None:
    updates = make_groups(4)
    found = find_log_scatter(updates.products("w"), range(4, 5), stream(1))
    assert float(found.exp()) == pytest.approx(measure_scatter_of(updates, torch.arange(60) % 4), rel=1e-9)


def test_the_scatter_of_rows_on_as_many_spots_as_clusters_has_a_logarithm() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[0.0], [0.0], [1.0], [1.0]])})
    assert find_log_scatter(updates.products("w"), range(2, 3), stream(1)).isfinite().all()

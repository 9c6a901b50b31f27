"""The parts of the Gap statistic, by hand; test_method.py holds both of its rules against scikit-learn."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball import gap
from snowball.defenses.snowball.gap import GapRule, Sample, find_clusters, measure_gaps
from snowball.defenses.snowball.kmeans import Clusterings, run_lloyd
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

    def measure(updates: Updates, layer: str, counts: range, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        searched.append(counts)
        pairs = zip(torch.tensor(gaps), torch.tensor(errors), strict=True)
        return islice(pairs, len(counts))

    monkeypatch.setattr(gap, "measure_gaps", measure)
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
    scatters = torch.from_numpy(np.stack([observed, *drawn]))  # (sample, count), the observed rows first
    samples: list[Sample] = []

    def draw(gram: Tensor, rng: torch.Generator) -> Sample:
        samples.append(Sample(gram, torch.tensor(len(samples))))
        return samples[-1]

    monkeypatch.setattr(Sample, "draw", draw)
    monkeypatch.setattr(Sample, "find_log_scatter", lambda sample, clusters: scatters[sample.order, clusters - 2])
    measured = measure_gaps(make_groups(2), "w", range(2, 4), stream(1))
    found, error = (torch.stack(part) for part in zip(*measured, strict=True))
    np.testing.assert_allclose(found, drawn.mean(0) - observed)
    np.testing.assert_allclose(error, drawn.std(0) * np.sqrt(1 + 1 / 10))
    assert len(samples) == 11


@pytest.mark.parametrize(("rows", "starts"), [(4, 50), (200, 50), (400, 25), (2000, 10)])
def test_small_rounds_have_more_starts(rows: int, starts: int) -> None:
    order = Sample.draw(torch.eye(rows, dtype=torch.float64), stream(1)).order
    assert order.shape == (starts, rows)
    assert torch.equal(order.sort(1).values, torch.arange(rows).expand(starts, -1))


def test_the_first_rule_searches_no_further_than_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def cluster(gram: Tensor, starts: Tensor) -> Clusterings:
        searched.append(starts.shape[1])
        return run_lloyd(gram, starts)

    monkeypatch.setattr(gap, "run_lloyd", cluster)
    assert find_clusters(make_groups(3), "w", 2, 9, stream(1), "first") == 3
    assert set(searched) == {2, 3, 4}


def measure_scatter_of(updates: Updates, labels: Tensor) -> float:
    """Return the summed squared distances of rows to the means of their groups."""
    rows = updates.values.double()
    return sum(
        float((rows[labels == label] - rows[labels == label].mean(0)).square().sum()) for label in labels.unique()
    )


def test_the_least_scatter_over_the_starts_counts() -> None:
    updates = make_groups(4)
    found = Sample.draw(updates.products("w"), stream(1)).find_log_scatter(4)
    assert float(found.exp()) == pytest.approx(measure_scatter_of(updates, torch.arange(60) % 4), rel=1e-9)


def test_the_scatter_of_rows_on_as_many_spots_as_clusters_has_a_logarithm() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[0.0], [0.0], [1.0], [1.0]])})
    assert Sample.draw(updates.products("w"), stream(1)).find_log_scatter(2).isfinite()

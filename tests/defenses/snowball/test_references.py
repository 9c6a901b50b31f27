"""The references of the Gap statistic, against columns that are all drawn and against moments by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball import references
from snowball.defenses.snowball.references import (
    WIDEST,
    count_equal_columns,
    draw_products,
    draw_reference,
    measure_ranges,
)
from snowball.products import BLOCK_ELEMENTS, centre_products
from snowball.rng import stream
from snowball.updates import Updates

UNEQUAL = torch.cat([torch.ones(3000), torch.full((200,), 3.0)]).double()


def multiply_plainly(rows: int, ranges: Tensor, rng: torch.Generator) -> Tensor:
    """Return the Gram matrix of rows of which every column is drawn."""
    drawn = torch.rand(rows, len(ranges), generator=rng, dtype=torch.float64) * ranges
    drawn -= drawn.mean(0)
    return drawn @ drawn.T


def average_draws(draw: Callable[[int, Tensor, torch.Generator], Tensor], rows: int, ranges: Tensor) -> Tensor:
    """Return the largest eigenvalue, the spread of squared lengths, and that of inner products, each on average."""
    rng, seen = stream(2), []
    for _ in range(15):
        gram = draw(rows, ranges, rng)
        apart = gram[~torch.eye(rows, dtype=torch.bool)]
        seen.append(torch.stack([torch.linalg.eigvalsh(gram)[-1], gram.diagonal().std(), apart.std()]))
    return torch.stack(seen).mean(0)


def test_ranges_are_those_of_the_layers_columns() -> None:
    updates = Updates.from_layers({"a": torch.zeros(2, 3), "b": torch.tensor([[1.0, 5.0], [4.0, -5.0]])})
    ranges = measure_ranges(updates, "b", stream(1))
    assert ranges.tolist() == [3, 10]
    assert ranges.dtype == torch.float64


def test_wide_layers_are_sampled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    width, read, sizes = 2**16 + 9, Updates.read_columns, []

    def note_size(updates: Updates, columns: Tensor) -> Tensor:
        sizes.append(len(updates) * len(columns))
        return read(updates, columns)

    monkeypatch.setattr(Updates, "read_columns", note_size)
    updates = Updates.from_layers({"w": torch.arange(20.0)[:, None] * torch.arange(1.0, width + 1)})
    ranges = measure_ranges(updates, "w", stream(1))
    assert len(ranges) == 2**16
    assert (ranges.diff() > 0).all()  # different columns, in order
    assert len(sizes) == 3
    assert max(sizes) <= BLOCK_ELEMENTS


@pytest.mark.parametrize(("rows", "columns"), [(127, 3200), (200, WIDEST)])
def test_every_column_of_few_rows_and_of_narrow_layers_is_drawn(rows: int, columns: int) -> None:
    gram = draw_reference(rows, UNEQUAL[:columns], stream(1))
    assert torch.equal(gram, multiply_plainly(rows, UNEQUAL[:columns], stream(1)))


def test_references_of_narrow_layers_spread_over_the_range_of_each_column() -> None:
    gram = draw_reference(500, torch.tensor([3.0, 10.0], dtype=torch.float64), stream(1))
    values = torch.linalg.eigvalsh(gram) / 500
    assert float(gram.mean()) == pytest.approx(0, abs=1e-9)  # about the mean
    assert values[-2:].tolist() == pytest.approx([3**2 / 12, 10**2 / 12], rel=0.1)
    assert values[:-2].abs().max() < 1e-9


@pytest.mark.parametrize("ranges", [torch.full((1600,), 0.1, dtype=torch.float64), UNEQUAL])
def test_references_of_wide_layers_are_as_if_every_column_were_drawn(ranges: Tensor) -> None:
    found, expected = (average_draws(draw, 130, ranges) for draw in (draw_reference, multiply_plainly))
    torch.testing.assert_close(found, expected, rtol=0.03, atol=0)


def test_references_of_wide_layers_have_the_moments_of_uniform_columns() -> None:
    rng, ranges = stream(1), torch.full((5000,), 2.0, dtype=torch.float64)
    drawn = torch.stack([draw_reference(160, ranges, rng) for _ in range(20)])
    traces, apart = drawn.diagonal(dim1=1, dim2=2), drawn[:, *torch.ones(160, 160).triu(1).nonzero().T]
    assert float(traces.mean()) == pytest.approx(5000 * 2**2 / 12 * 159 / 160, rel=1e-3)
    assert float(traces.var()) == pytest.approx(5000 * 2**4 / 180, rel=0.1)
    assert float(apart.var()) == pytest.approx(5000 * 2**4 / 144, rel=0.03)
    torch.testing.assert_close(drawn[0], centre_products(drawn[0]), rtol=0, atol=1e-9)


def test_inner_products_of_unequal_columns_have_the_means_and_variances_of_uniform_ones() -> None:
    rng, variances = stream(1), UNEQUAL**2 / 12
    drawn = torch.stack([draw_products(140, variances, rng) for _ in range(20)])
    squares, apart = drawn.diagonal(dim1=1, dim2=2), drawn[:, *torch.ones(140, 140).triu(1).nonzero().T]
    assert float(squares.mean()) == pytest.approx(float(variances.sum()), rel=2e-3)
    assert float(squares.var()) == pytest.approx(float(variances.square().sum()) * (9 / 5 - 1), rel=0.1)
    assert float(apart.mean()) == pytest.approx(0, abs=0.01 * float(apart.std()))
    assert float(apart.var()) == pytest.approx(float(variances.square().sum()), rel=0.03)


def test_columns_are_counted_by_their_share_of_the_variance() -> None:
    assert count_equal_columns(torch.full((7,), 1e-90, dtype=torch.float64)) == pytest.approx(7)
    assert count_equal_columns(torch.tensor([4.0, 1.0, 1.0])) == pytest.approx(36 / 18)
    assert count_equal_columns(torch.zeros(3)) == count_equal_columns(torch.zeros(0)) == 0


@pytest.mark.parametrize(
    ("wide", "alike", "found"),
    [(WIDEST, 520, True), (WIDEST, 511, False), (WIDEST + 40, 600, False), (0, WIDEST + 520, True)],
)
def test_columns_that_are_few_or_stand_out_are_drawn(
    monkeypatch: pytest.MonkeyPatch, wide: int, alike: int, found: bool
) -> None:
    taken: list[int] = []

    def note_rest(rows: int, variances: Tensor, rng: torch.Generator) -> Tensor:
        taken.append(len(variances))
        return torch.zeros(rows, rows, dtype=torch.float64)

    monkeypatch.setattr(references, "draw_products", note_rest)
    ranges = torch.cat([torch.ones(alike), torch.full((wide,), 50.0)]).double()
    gram = draw_reference(128, ranges, stream(1))
    drawn = ranges.sort(descending=True).values[: None if not found else WIDEST]
    assert bool(taken) == found
    assert float(gram.trace()) == pytest.approx(127 * float(drawn.square().sum()) / 12, rel=0.02)


def test_blocks_of_drawn_columns_are_small() -> None:
    blocks = list(references._draw_blocks(1000, torch.ones(1200, dtype=torch.float64), stream(1)))
    assert [block.shape[1] for block in blocks] == [524, 524, 152]
    assert all(block.abs().max() <= 0.5 for block in blocks)

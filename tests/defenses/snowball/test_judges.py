"""What each judge is given, learns and scores; test_top_down.py holds elections by them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from snowball.defenses.snowball.judges import JUDGES
from snowball.defenses.snowball.vae import VAESettings
from snowball.rng import stream
from snowball.updates import Updates

QUICK = VAESettings(first_epochs=20, tune_epochs=5, hidden=32, latent=8)
VAES = ["vae", "vae-updates", "vae-span"]


def appoint(name: str, rows: Any) -> Any:
    """Return a judge of rows, which are given as a matrix."""
    return JUDGES[name](Updates.from_layers({"w": torch.as_tensor(rows)[:, None]}), ("w",), QUICK, stream(1))


def draw_rows(count: int, width: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "batch", "bounded"), [("vae", 8, True), ("vae-updates", 8, True), ("vae-span", 64, False)]
)
def test_batches_and_outputs_of_each_vae(name: str, batch: int, bounded: bool) -> None:
    vae = appoint(name, draw_rows(5, 3)).vae
    assert (vae.batch, vae.bounded) == (batch, bounded)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_differences_in_the_span_have_a_mean_square_of_one(unit: float) -> None:
    rows = appoint("vae-span", unit * draw_rows(11, 30)).rows
    assert float(rows.square().mean(1).median()) == pytest.approx(0.5)  # centred: differences have twice as much


def test_the_span_of_rows_that_coincide_is_one_point() -> None:
    assert not appoint("vae-span", torch.ones(6, 4)).rows.any()


def test_a_far_row_is_brought_to_a_hundred_times_the_median_length() -> None:
    points = 3 * torch.tensor([[1.0], [2.0], [3.0], [4.0], [1e6]])  # lengths are from the third: the middle one
    rows = appoint("vae-span", points).rows
    lengths = (rows - rows[2]).norm(dim=1)
    torch.testing.assert_close(lengths / lengths[1], torch.tensor([2.0, 1, 0, 1, 100]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", VAES)
def test_rows_of_every_type_become_float32(name: str) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        assert appoint(name, draw_rows(5, 3).to(dtype)).rows.dtype == torch.float32


def test_one_selectee_picks_its_nearest_where_squares_overflow_float32() -> None:
    scores = appoint("vae", [[0.0], [3e25], [1e25]])(torch.tensor([0]), torch.tensor([1, 2]))
    assert scores.isfinite().all()
    assert scores[1] < scores[0]


def test_the_first_lesson_is_long_and_the_others_are_short() -> None:
    judge = appoint("vae", draw_rows(6, 3))
    epochs: list[int] = []
    judge.vae.learn = lambda rows, count: epochs.append(count)
    for _ in range(2):
        judge(torch.tensor([0, 1]), torch.tensor([2]))
    assert epochs == [20, 5, 5]


def test_a_row_is_scored_by_its_differences_in_both_directions() -> None:
    judge = appoint("vae", [[0.0], [1.0], [5.0]])
    judge.vae.learn = lambda rows, count: None
    judge.vae.errors = lambda rows: rows[:, 0] ** 2 + rows[:, 0]
    (score,) = judge(torch.tensor([0, 1]), torch.tensor([2])).tolist()
    assert score == pytest.approx((5**2 + 4**2) / 2)  # the odd part is gone


def test_codes_that_are_no_numbers_still_have_a_place() -> None:
    judge = appoint("vae", draw_rows(6, 3))
    judge.vae.codes = lambda rows: torch.full((len(rows), 8), torch.nan)
    places = judge.places(torch.arange(3))
    assert (places.dtype, places.tolist()) == (torch.float64, [[0, 0]] * 6)

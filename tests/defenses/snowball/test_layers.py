from math import ceil, floor
from typing import Any

import pytest

from snowball.defenses.snowball.layers import check_share, count_share, select_voting_layers
from snowball.errors import SettingError
from snowball.layout import Layout


def test_rounding_errors_of_a_share_do_not_count() -> None:
    assert 0.07 * 100 > 7
    assert count_share(0.07, 100, ceil) == 7


def test_a_share_stands_for_one_row_at_least() -> None:
    assert count_share(0.01, 10, floor) == 1


@pytest.mark.parametrize(("error", "rows"), [(4e-10, 3), (6e-10, 4)])
def test_shares_are_rounded_to_billionths_of_a_row(error: float, rows: int) -> None:
    assert count_share(3 + error, 1, ceil) == rows


def test_the_layers_that_vote() -> None:
    layout = Layout(("a", "b", "c", "d"), ((2, 2), (2,), (3, 3), (4, 4)))
    assert select_voting_layers(layout, "ends") == ("a", "d")
    assert select_voting_layers(layout, "all") == ("a", "c", "d")
    assert select_voting_layers(layout, ("b",)) == ("b",)
    assert select_voting_layers(layout, ["b", "a"]) == ("b", "a")  # type: ignore[arg-type]
    assert select_voting_layers(Layout(("a",), ((2, 2),)), "ends") == ("a",)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ("first", "layers must be 'ends', 'all' or names of layers, got 'first'"),
        ((), "layers must be"),
        (("a", "middle"), "layer 'middle' is not in the model, whose layers are a, b"),
    ],
)
def test_layers_that_no_model_has_are_refused(layers: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        select_voting_layers(Layout(("a", "b"), ((2, 2), (2,))), layers)


def test_a_share_is_more_than_nothing_and_at_most_everybody() -> None:
    check_share("first_share", 0.01)
    check_share("first_share", 1)
    for share in (0, -0.5, 1.01, float("nan")):
        with pytest.raises(SettingError, match=r"first_share must lie in \(0, 1\]"):
            check_share("first_share", share)

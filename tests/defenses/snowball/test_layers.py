from math import ceil, floor

from snowball.defenses.snowball.layers import count_share


def test_rounding_errors_of_a_share_do_not_count() -> None:
    assert 0.07 * 100 > 7
    assert count_share(0.07, 100, ceil) == 7


def test_a_share_stands_for_one_row_at_least() -> None:
    assert count_share(0.01, 10, floor) == 1

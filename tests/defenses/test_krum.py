import re
from typing import Any

import numpy as np
import pytest
import torch

from snowball.defenses import Context
from snowball.defenses.krum import Krum, compute_krum_scores, count_tolerated
from snowball.defenses.multi_krum import MultiKrum
from snowball.defenses.ops import compute_squared_distances
from snowball.errors import SettingError
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

POINTS = [(0, 0), (3, 0), (0, 2), (2, 2), (1, 1), (6, 6), (6.5, 6), (6, 7)]
ROUND = Updates.from_layers({"w": torch.tensor(POINTS)}, examples=[1, 2, 3, 4, 5, 6, 7, 8])
FIRST = Context(round=1)


def rows_of(mask: torch.Tensor) -> set[int]:
    return set(mask.nonzero().flatten().tolist())


def shuffled(updates: Updates, order: torch.Tensor) -> Updates:
    clients = tuple(updates.clients[row] for row in order)
    return Updates(updates.values[order], updates.examples[order], clients, updates.layout)


def scores_by_two_loops(rows: np.ndarray[Any, Any], neighbours: int) -> list[float]:
    scores = []
    for i, row in enumerate(rows):
        squares = [((row - other) ** 2).sum() for j, other in enumerate(rows) if j != i]
        scores.append(sum(sorted(squares)[:neighbours]))
    return scores


def test_scores_by_hand() -> None:
    squared = compute_squared_distances(ROUND.products())
    assert compute_krum_scores(squared, 4).tolist() == [23, 32, 23, 19, 11, 78.25, 86, 101.25]
    assert compute_krum_scores(squared, 2).tolist() == [6, 10, 6, 6, 4, 1.25, 1.5, 2.25]


@pytest.mark.parametrize(("clients", "neighbours"), [(2, 1), (5, 1), (9, 4), (30, 27), (30, 29)])
def test_scores_are_those_of_two_plain_loops(clients: int, neighbours: int) -> None:
    updates = make_toy_round(clients, infected=clients // 3, dtype=torch.float64)
    scores = compute_krum_scores(compute_squared_distances(updates.products()), neighbours)
    expected = scores_by_two_loops(updates.values.numpy(), neighbours)
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_there_is_one_neighbour_at_least_and_all_others_at_most() -> None:
    squared = compute_squared_distances(ROUND.products())
    before = squared.clone()
    assert torch.equal(compute_krum_scores(squared, -3), compute_krum_scores(squared, 1))
    assert torch.equal(compute_krum_scores(squared, 99), compute_krum_scores(squared, 7))
    assert compute_krum_scores(torch.zeros(1, 1), 1).tolist() == [0]
    assert torch.equal(squared, before)


def test_krum_takes_the_row_of_the_lowest_score() -> None:
    verdict = Krum(2)(ROUND, FIRST)
    assert verdict.delta.tolist() == [1, 1]
    assert rows_of(verdict.elected) == {4}
    assert verdict.facts["tolerated"] == 2
    assert torch.as_tensor(verdict.facts["scores"]).tolist() == [23, 32, 23, 19, 11, 78.25, 86, 101.25]


def test_three_colluders_win_where_more_are_tolerated_than_the_guarantee_allows() -> None:
    assert rows_of(Krum(4)(ROUND, FIRST).elected) == {5}


def test_a_share_is_rounded_up() -> None:
    assert Krum(0.2)(ROUND, FIRST).facts["tolerated"] == 2  # of 1.6
    assert Krum(0.25)(ROUND, FIRST).facts["tolerated"] == 2
    assert Krum()(ROUND, FIRST).facts["tolerated"] == 3  # of 2.4
    share, number = (Krum(tolerate)(ROUND, FIRST).facts["scores"] for tolerate in (0.25, 2))
    assert torch.equal(torch.as_tensor(share), torch.as_tensor(number))


@pytest.mark.parametrize("tolerate", [0.25, 2])
def test_the_published_variant_by_hand(tolerate: int | float) -> None:
    verdict = Krum(tolerate, variant="published")(ROUND, FIRST)
    scores = torch.tensor([4.4742, 4.0435, 3.9592, 3.3199, 3.5991, 4.5791, 4.8120, 5.1221], dtype=torch.float64)
    torch.testing.assert_close(torch.as_tensor(verdict.facts["scores"]), scores, rtol=0, atol=5e-5)
    assert rows_of(verdict.elected) == {1, 2, 3, 4}
    weighted = torch.tensor([2 * 3 + 4 * 2 + 5 * 1, 3 * 2 + 4 * 2 + 5 * 1]) / (2 + 3 + 4 + 5)
    torch.testing.assert_close(verdict.delta, weighted)


def test_the_published_variant_elects_as_many_as_the_published_tables_show() -> None:
    for clients, elected in ((50, 38), (100, 78)):
        assert Krum(0.2, variant="published")(make_toy_round(clients), FIRST).elected.sum() == elected
    assert Krum(0.3, variant="published")(make_toy_round(50), FIRST).elected.sum() == 33
    assert Krum(0.9, variant="published")(make_toy_round(10), FIRST).elected.sum() == 1


def test_multi_krum_by_hand() -> None:
    verdict = MultiKrum(2, elect=4)(ROUND, FIRST)
    assert rows_of(verdict.elected) == {0, 2, 3, 4}
    assert verdict.delta.tolist() == [0.75, 1.25]  # example counts do not weigh
    assert rows_of(MultiKrum(4, elect=4)(ROUND, FIRST).elected) == {4, 5, 6, 7}


def test_multi_krum_elects_as_many_as_have_a_say_unless_told() -> None:
    assert MultiKrum(2)(ROUND, FIRST).elected.sum() == 4
    assert MultiKrum(5)(ROUND, FIRST).elected.sum() == 1
    assert MultiKrum(0.25)(ROUND, FIRST).elected.sum() == 4
    assert MultiKrum(2, elect=0.3)(ROUND, FIRST).elected.sum() == 3  # of 2.4
    assert MultiKrum(2, elect=1e-12)(ROUND, FIRST).elected.sum() == 1
    assert MultiKrum(2, elect=1.0)(ROUND, FIRST).elected.all()


def test_multi_krum_of_one_is_krum() -> None:
    updates = make_toy_round()
    one, other = MultiKrum(elect=1)(updates, FIRST), Krum()(updates, FIRST)
    assert torch.equal(one.delta, other.delta)
    assert torch.equal(one.elected, other.elected)


def test_far_rows_are_left_out_however_far() -> None:
    for distance in (20.0, 1e6, 1e14):
        updates = make_toy_round(20, infected=5, distance=distance)
        for defense in (Krum(), MultiKrum(), Krum(variant="published")):
            assert not defense(updates, FIRST).elected[15:].any()


def test_far_rows_do_not_change_who_is_elected_among_the_near() -> None:
    near, far = make_toy_round(20, infected=5, distance=1e3), make_toy_round(20, infected=5, distance=1e14)
    assert torch.equal(MultiKrum()(near, FIRST).elected, MultiKrum()(far, FIRST).elected)


def test_equal_scores_go_by_lot() -> None:
    values = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
    updates = Updates.from_layers({"w": values}, examples=[1, 2, 2, 1], clients=["a", "c", "b", "d"])
    seated = [rows_of(Krum(1)(updates, Context(round=round)).elected) for round in range(1, 40)]
    assert seated == [{int(Context(round=round).draw_lots(updates.clients).argmin())} for round in range(1, 40)]
    assert {row for rows in seated for row in rows} == {0, 1, 2, 3}


@pytest.mark.parametrize("clients", [4, 13, 37, 101])
def test_two_that_are_each_others_only_neighbour_tie_to_the_bit(clients: int) -> None:
    updates = make_toy_round(clients, infected=0, width=300, dtype=torch.float64)
    verdict = Krum(clients - 3)(updates, FIRST)
    scores = torch.as_tensor(verdict.facts["scores"])
    closest = (scores == scores.min()).nonzero()[:, 0]
    assert len(closest) == 2
    assert verdict.elected[closest[FIRST.draw_lots(updates.clients)[closest].argmin()]]


@pytest.mark.parametrize("rows", [2, 7, 33])
@pytest.mark.parametrize("defense", [Krum(), Krum(variant="published"), MultiKrum()])
def test_row_order_does_not_matter_to_the_bit(defense: Krum | MultiKrum, rows: int) -> None:
    updates, order = make_toy_round(rows, infected=1), torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    here, there = defense(updates, FIRST), defense(shuffled(updates, order), FIRST)
    assert torch.equal(here.delta, there.delta)
    assert torch.equal(torch.as_tensor(here.facts["scores"]), torch.as_tensor(there.facts["scores"]))


@pytest.mark.parametrize("defense", [Krum(variant="published"), MultiKrum(1.0, elect=0.5)])
def test_every_check_is_passed(defense: Krum | MultiKrum) -> None:
    check_defense(defense)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_shares_are_cut_to_what_few_rows_allow(rows: int) -> None:
    for defense in (Krum(1.0), Krum(1.0, variant="published"), MultiKrum(1.0)):
        verdict = defense(make_toy_round(rows), FIRST)
        assert verdict.elected.sum() == 1
        assert torch.equal(verdict.delta, make_toy_round(rows).values[verdict.elected][0])
        assert verdict.facts["tolerated"] == max(rows - 3, 0)


def test_numbers_that_the_rows_do_not_allow_are_refused() -> None:
    updates = make_toy_round(6)
    for defense in (Krum(4), Krum(4, variant="published"), MultiKrum(4)):
        with pytest.raises(SettingError, match="tolerating 4 needs over 6 updates, got 6"):
            defense(updates, FIRST)
    assert Krum(3)(updates, FIRST).facts["tolerated"] == 3
    with pytest.raises(SettingError, match="electing 7 needs as many updates, got 6"):
        MultiKrum(1, elect=7)(updates, FIRST)
    assert MultiKrum(1, elect=6)(updates, FIRST).elected.all()


def test_what_several_times_the_tolerated_need() -> None:
    assert [count_tolerated(0.5, rows, each=4) for rows in (1, 6, 7, 10, 11)] == [0, 0, 1, 1, 2]
    assert count_tolerated(2, 11, each=4) == 2
    with pytest.raises(SettingError, match="tolerating 2 needs over 10 updates, got 10"):
        count_tolerated(2, 10, each=4)


@pytest.mark.parametrize("setting", [-1, -0.1, 1.5, float("nan")])
def test_settings_that_no_round_can_satisfy_are_refused(setting: int | float) -> None:
    refusal = re.escape("must be a share in [0, 1] or a whole number, got")
    with pytest.raises(SettingError, match=f"tolerate {refusal}"):
        Krum(setting)
    with pytest.raises(SettingError, match=f"tolerate {refusal}"):
        MultiKrum(setting)
    with pytest.raises(SettingError, match=f"elect {refusal}"):
        MultiKrum(elect=setting)


def test_nobody_and_unknown_variants_are_refused() -> None:
    for nobody in (0, 0.0):
        with pytest.raises(SettingError, match=f"elect must leave somebody to average, got {nobody}"):
            MultiKrum(elect=nobody)
    with pytest.raises(SettingError, match="variant 'official' is not one of original, published"):
        Krum(variant="official")  # type: ignore[arg-type]

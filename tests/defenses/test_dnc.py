import numpy as np
import pytest
import torch

from snowball.defenses import Context, dnc
from snowball.defenses.dnc import DnC, compute_drawn_gram, score_outliers
from snowball.errors import SettingError
from snowball.rng import stream
from snowball.testing import check_defense, make_toy_round
from snowball.updates import Updates

ROWS = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0], [4, 0, 0, 3]]
ROUND = Updates.from_layers({"w": torch.tensor(ROWS).float()}, examples=range(1, 7))  # which do not weigh


def test_a_few_columns_and_several_passes_pass_every_check() -> None:
    check_defense(DnC(columns=5, iterations=3), examples=10)


@pytest.mark.parametrize(("tolerate", "kept"), [(0, 6), (1, 5), (2, 4)])
def test_six_updates_by_hand(tolerate: int, kept: int) -> None:
    verdict = DnC(tolerate)(ROUND, Context(round=1))
    scores = torch.tensor([0.0378, 1.2260, 1.1871, 0.1089, 1.5010, 15.5734], dtype=torch.float64)
    torch.testing.assert_close(verdict.facts["scores"], scores, rtol=0, atol=1e-4)
    assert verdict.facts["removed"] == tolerate
    assert verdict.elected.tolist() == [row < kept for row in range(6)]
    torch.testing.assert_close(verdict.delta, ROUND.values[:kept].mean(0))


def singular_scores(rows: np.ndarray) -> np.ndarray:
    rows = rows - rows.mean(0)
    return (rows @ np.linalg.svd(rows)[2][0]) ** 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("columns", [1, 13, 40, 1000])
def test_scores_are_those_of_a_singular_value_decomposition(seed: int, columns: int) -> None:
    updates = make_toy_round(seed=seed)
    scores = score_outliers(compute_drawn_gram(updates, columns, stream(seed)))
    drawn = torch.randperm(40, generator=stream(seed))[:columns]
    np.testing.assert_allclose(scores, singular_scores(updates.values[:, drawn].double().numpy()), rtol=1e-6)


def test_what_all_updates_share_does_not_drown_their_differences() -> None:
    rows = 1e4 + torch.randn(9, 50, generator=stream(0), dtype=torch.float64) * 1e-4
    updates = Updates.from_layers({"w": rows})
    scores = score_outliers(compute_drawn_gram(updates, 49, stream(1)))
    drawn = torch.randperm(50, generator=stream(1))[:49]
    np.testing.assert_allclose(scores, singular_scores(rows[:, drawn].numpy()), rtol=1e-4)


@pytest.mark.parametrize("block", [1, 60, 1 << 19])
def test_each_column_is_drawn_once_at_most(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dnc, "BLOCK_ELEMENTS", block)
    powers = torch.stack([torch.zeros(20), 2.0 ** torch.arange(20)])  # whose squares are the digits of a number to 4
    gram = compute_drawn_gram(Updates.from_layers({"w": powers.double()}), 12, stream(0))
    number, digits = int(4 * gram[0, 0]), []
    while number:
        number, digit = divmod(number, 4)
        digits.append(digit)
    assert max(digits) == 1
    assert sum(digits) == 12


def test_what_acts_together_is_removed() -> None:
    verdict = DnC()(make_toy_round(clients=20, infected=4), Context(round=1))
    assert verdict.elected.tolist() == [row < 16 for row in range(20)]


def test_every_pass_draws_anew_and_only_what_all_keep_is_averaged() -> None:
    updates = make_toy_round(infected=0, seed=1)
    once, often = (DnC(columns=3, iterations=count)(updates, Context(round=1)).elected for count in (1, 4))
    assert (often <= once).all()
    assert often.sum() < once.sum() == 16


def test_passes_that_agree_on_nobody_leave_the_last_one_to_decide() -> None:
    updates = Updates.from_layers({"w": torch.tensor([[0.1, 5.0], [5.0, 0.1], [-5.0, -5.0]])})
    elected = [DnC(0.67, columns=1, iterations=6)(updates, Context(round=1, seed=seed)).elected for seed in range(10)]
    assert {int(mask.sum()) for mask in elected} == {1}
    assert {int(mask.nonzero()) for mask in elected} == {0, 1}


@pytest.mark.parametrize("columns", [20, 10_000])
def test_updates_that_all_agree_are_all_kept(columns: int) -> None:
    same = torch.rand(50, generator=stream(0)).repeat(11, 1)
    assert DnC(0.5, columns=columns)(Updates.from_layers({"w": same}), Context(round=1)).elected.all()


def test_updates_that_differ_in_all_directions_alike_are_chosen_by_who_they_are() -> None:
    clients = tuple("abcdefgh")
    updates = Updates.from_layers({"w": torch.eye(8)}, clients=clients)
    chosen = set()
    for seed in range(5):
        order = torch.randperm(8, generator=stream(seed)).tolist()
        moved = Updates(updates.values[order], updates.examples, tuple(clients[row] for row in order), updates.layout)
        elected = DnC()(moved, Context(round=1)).elected.tolist()
        chosen.add(frozenset(client for client, mask in zip(moved.clients, elected, strict=True) if mask))
    assert len(chosen) == 1


@pytest.mark.parametrize(
    ("settings", "rows", "removed"),
    [
        ({}, 1, 0),
        ({}, 3, 1),
        ({"tolerate": 0.5}, 6, 3),
        ({"tolerate": 0.5, "filter": 1.5}, 6, 4),
        ({"tolerate": 1.0}, 6, 5),
        ({"tolerate": 2, "filter": 0.7}, 6, 1),
    ],
)
def test_how_many_are_removed(settings: dict[str, float], rows: int, removed: int) -> None:
    verdict = DnC(**settings)(make_toy_round(clients=rows), Context(round=1))
    assert verdict.facts["removed"] == removed
    assert verdict.elected.sum() == rows - removed


def test_a_number_that_leaves_nobody_is_refused() -> None:
    with pytest.raises(SettingError, match="tolerating 4 needs over 6 updates, got 6"):
        DnC(4, filter=1.5)(ROUND, Context(round=1))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tolerate": 1.5}, "tolerate must be a share"),
        ({"columns": 0}, "got 0 columns, 1 iterations"),
        ({"iterations": 0}, "got 10000 columns, 0 iterations"),
        ({"filter": -1.0}, "filter must be 0 or more, got -1"),
        ({"filter": float("nan")}, "filter must be 0 or more, got nan"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        DnC(**settings)

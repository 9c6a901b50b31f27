"""Ties depend neither on a client's claims nor on the order of arrival, and over the rounds all clients win equally."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from snowball.defenses import DEFENSES, Bulyan, Context, DnC, Krum, MultiKrum, Snowball, SnowballMinus, VotingRandom
from snowball.testing import make_toy_round
from snowball.updates import Updates

ELECTING = [
    SnowballMinus(clusters=3),
    Snowball(clusters=3, grow_after=0),
    VotingRandom(0.3),
    DEFENSES["voting-center"](first_share=0.3),
    Krum(),
    Krum(variant="published"),
    MultiKrum(),
    Bulyan(),
    DnC(),
]


def tied_round(clients: int, alike: int, seed: int = 0) -> Updates:
    """A round in which every row stands `alike` times."""
    updates = make_toy_round(clients, infected=0, seed=seed)
    return updates.replace_values(updates.values[torch.arange(clients) // alike])


def claim(updates: Updates, examples: Tensor) -> Updates:
    return Updates(updates.values, examples.double(), updates.clients, updates.layout)


@settings(deadline=None, max_examples=15)
@given(
    st.integers(4, 16), st.integers(1, 6), st.lists(st.integers(1, 1000), min_size=16, max_size=16), st.integers(1, 9)
)
@pytest.mark.parametrize("defense", ELECTING, ids=repr)
def test_claimed_examples_decide_no_seat(
    defense: Snowball, clients: int, alike: int, claimed: list[int], round: int
) -> None:
    updates, context = tied_round(clients, alike, seed=round), Context(round=round, rounds=10)
    loud = claim(updates, torch.tensor(claimed[:clients]))
    assert torch.equal(defense(updates, context).elected, defense(loud, context).elected)


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(12)), st.integers(1, 6), st.integers(1, 9))
@pytest.mark.parametrize("defense", ELECTING, ids=repr)
def test_the_order_of_arrival_decides_no_seat(defense: Snowball, order: list[int], alike: int, round: int) -> None:
    updates, context = tied_round(12, alike, seed=round), Context(round=round, rounds=10)
    clients = tuple(updates.clients[row] for row in order)
    moved = Updates(updates.values[order], updates.examples[order], clients, updates.layout)
    assert torch.equal(defense(updates, context).elected, defense(moved, context).elected)


@pytest.mark.parametrize("defense", [SnowballMinus(clusters=3), Krum(), MultiKrum(elect=4), Bulyan(0)], ids=repr)
def test_over_the_rounds_all_who_tie_are_elected_alike(defense: Snowball) -> None:
    updates, rounds = tied_round(24, alike=24), 300
    if isinstance(defense, Bulyan):
        seats = torch.stack([first_pick(defense, updates, round) for round in range(1, rounds + 1)])
    else:
        seats = torch.stack([defense(updates, Context(round=round)).elected for round in range(1, rounds + 1)])
    won = seats.double().sum(0)
    share = won.sum() / (24 * rounds)
    spread = (rounds * share * (1 - share)).sqrt()
    assert (won - rounds * share).abs().max() < 4 * spread


def first_pick(defense: Bulyan, updates: Updates, round: int) -> Tensor:
    return torch.as_tensor(defense(updates, Context(round=round)).facts["order"]) == 0


def test_lots_are_keyed_by_seed_round_and_client_alone() -> None:
    lots = Context(round=3, seed=1).draw_lots(["a", "b", "c"])
    assert torch.equal(lots[[2, 0]], Context(round=3, seed=1).draw_lots(["c", "a"]))
    for other in (Context(round=4, seed=1), Context(round=3, seed=2)):
        assert not (lots == other.draw_lots(["a", "b", "c"])).any()


def test_a_lot_is_drawn_for_any_id() -> None:
    ids = ["", "\x1f", "\udc80", "\ud800", "é", "e\u0301", "7"]
    assert len(set(Context(round=1).draw_lots(ids).tolist())) == len(ids)


def test_ties_at_the_cut_are_among_the_facts() -> None:
    verdict = SnowballMinus(clusters=3)(tied_round(20, alike=20), Context(round=1))
    assert (verdict.facts["ties"], int(verdict.elected.sum())) == (20, 2)
    alone = torch.tensor([[0.0], [0.1], [0.2], [0.3], [9.0]])  # all but the last vote for each other
    assert (
        SnowballMinus(clusters=2, first_share=0.8)(Updates.from_layers({"w": alone}), Context(round=1)).facts["ties"]
        == 0
    )
    assert VotingRandom(0.5)(tied_round(9, 1), Context(round=1)).facts["ties"] > 0

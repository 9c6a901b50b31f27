"""Who steps together."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.rng import stream
from snowball.sim.engines.batching import Tasks, Turn, turns
from snowball.sim.training.sgd import batch_sizes


def test_full_batches_come_first_and_what_is_left_by_size() -> None:
    assert turns([[4, 4, 1], [4, 3], [4, 1], [2], []], 4) == [
        Turn(4, [0, 1, 2], [0, 0, 0]),
        Turn(4, [0], [4]),
        Turn(1, [0, 2], [8, 4]),
        Turn(2, [3], [0]),
        Turn(3, [1], [4]),
    ]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(2, 9), st.integers(1, 2))
def test_every_client_takes_its_batches_in_their_order(counts: list[int], batch: int, least: int) -> None:
    sizes = [batch_sizes(count, batch, least) for count in counts]
    taken: list[list[int]] = [[] for _ in counts]
    for turn in turns(sizes, batch):
        assert turn.members == sorted(set(turn.members))
        for client, begin in zip(turn.members, turn.starts, strict=True):
            assert begin == sum(taken[client])
            taken[client].append(turn.size)
    assert taken == sizes
    assert len(turns(sizes, batch)) <= max(map(len, sizes)) + batch  # and not a turn a client


def test_a_turn_takes_everybody_s_own_samples_in_the_order_that_it_draws_alone() -> None:
    counts, rngs = [5, 3], [stream(0, client) for client in range(2)]
    tasks = Tasks(torch.zeros(8, 1), torch.zeros(8), counts, rngs)
    alone = [stream(0, client) for client in range(2)]
    for _ in range(2):  # epochs
        first, second = (torch.randperm(count, generator=rng) for count, rng in zip(counts, alone, strict=True))
        orders = tasks.shuffled()
        assert orders[0].tolist() == first.tolist()
        assert Turn(2, [0, 1], [3, 1]).batch(orders).tolist() == [first[3:].tolist(), (second[1:] + 5).tolist()]

"""Grouping of batches that clients train together."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from snowball.rng import stream
from snowball.sim.engines.batching import BatchGroup, StackedSamples, group_batches
from snowball.sim.training.sgd import compute_batch_sizes


def test_full_batches_come_first_and_what_is_left_by_size() -> None:
    assert group_batches([[4, 4, 1], [4, 3], [4, 1], [2], []], 4) == [
        BatchGroup(4, [0, 1, 2], [0, 0, 0]),
        BatchGroup(4, [0], [4]),
        BatchGroup(1, [0, 2], [8, 4]),
        BatchGroup(2, [3], [0]),
        BatchGroup(3, [1], [4]),
    ]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(2, 9), st.integers(1, 2))
def test_every_client_takes_its_batches_in_their_order(counts: list[int], batch: int, least: int) -> None:
    sizes = [compute_batch_sizes(count, batch, least) for count in counts]
    taken: list[list[int]] = [[] for _ in counts]
    for turn in group_batches(sizes, batch):
        assert turn.members == sorted(set(turn.members))
        for client, begin in zip(turn.members, turn.starts, strict=True):
            assert begin == sum(taken[client])
            taken[client].append(turn.size)
    assert taken == sizes
    assert len(group_batches(sizes, batch)) <= max(map(len, sizes)) + batch  # and not one group per client


def test_a_turn_takes_everybody_s_own_samples_in_the_order_that_it_draws_alone() -> None:
    counts, rngs = [5, 3], [stream(0, client) for client in range(2)]
    samples = StackedSamples(torch.zeros(8, 1), torch.zeros(8), counts, rngs)
    alone = [stream(0, client) for client in range(2)]
    for _ in range(2):  # epochs
        first, second = (torch.randperm(count, generator=rng) for count, rng in zip(counts, alone, strict=True))
        orders = samples.shuffle()
        assert orders[0].tolist() == first.tolist()
        assert BatchGroup(2, [0, 1], [3, 1]).gather(orders).tolist() == [first[3:].tolist(), (second[1:] + 5).tolist()]

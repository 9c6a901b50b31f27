from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from snowball.data.partition import (
    PARTITIONS,
    Parts,
    partition_dirichlet_plain,
    partition_iid,
    partition_merged,
    partition_natural,
    partition_niid_bench,
    partition_pathological,
    partition_sized,
)
from snowball.errors import SettingError
from snowball.rng import numpy_stream

CLASSES = 10
BALANCED = torch.arange(5000) % CLASSES
VALUES = {
    "iid": BALANCED,
    "niid-bench": BALANCED,
    "dirichlet-plain": BALANCED,
    "pathological": BALANCED,
    "merged": torch.arange(5000) % 100,
}

some_labels = st.lists(st.integers(0, 5), min_size=1, max_size=300).map(lambda values: torch.tensor(values))
some_clients = st.integers(1, 25)
some_seeds = st.integers(0, 2**32)


def covers_once(parts: Parts, count: int) -> bool:
    """Return whether the parts hold every index below `count` once, each in ascending order."""
    ascending = all(torch.equal(part, part.sort().values) and part.dtype == torch.int64 for part in parts)
    return ascending and sorted(torch.cat(parts).tolist()) == list(range(count))


def histograms(parts: Parts, labels: Tensor) -> Tensor:
    """(clients, classes) samples of each class that a client holds."""
    return torch.stack([labels[part].bincount(minlength=CLASSES) for part in parts])


def same(first: Parts, second: Parts) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_table_holds_every_partition() -> None:
    assert list(PARTITIONS.values()) == [
        partition_iid,
        partition_niid_bench,
        partition_dirichlet_plain,
        partition_sized,
        partition_pathological,
        partition_natural,
        partition_merged,
    ]


@given(some_labels, some_clients, some_seeds)
def test_iid_deals_everything_out_evenly(labels: Tensor, clients: int, seed: int) -> None:
    if len(labels) < clients:
        with pytest.raises(SettingError, match="too few"):
            partition_iid(labels, clients, numpy_stream(seed))
        return
    parts = partition_iid(labels, clients, numpy_stream(seed))
    sizes = [len(part) for part in parts]
    assert covers_once(parts, len(labels))
    assert len(parts) == clients
    assert max(sizes) - min(sizes) <= 1
    assert same(parts, partition_iid(labels, clients, numpy_stream(seed)))


@settings(deadline=None)
@given(some_labels, some_clients, some_seeds, st.sampled_from([1e-9, 0.01, 0.1, 0.5, 1, 1e4]), st.integers(0, 12))
def test_plain_dirichlet_deals_everything_out_and_keeps_the_minimum(
    labels: Tensor, clients: int, seed: int, alpha: float, minimum: int
) -> None:
    if len(labels) < clients * minimum:
        with pytest.raises(SettingError, match=f"{len(labels)} samples are too few for {clients} clients"):
            partition_dirichlet_plain(labels, clients, numpy_stream(seed), alpha, minimum)
        return
    parts = partition_dirichlet_plain(labels, clients, numpy_stream(seed), alpha, minimum)
    assert covers_once(parts, len(labels))
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= minimum
    assert same(parts, partition_dirichlet_plain(labels, clients, numpy_stream(seed), alpha, minimum))


@given(some_labels, some_clients, some_seeds, st.integers(1, 6))
def test_pathological_gives_every_client_exactly_its_classes(
    labels: Tensor, clients: int, seed: int, per_client: int
) -> None:
    try:
        parts = partition_pathological(labels, clients, numpy_stream(seed), per_client)
    except SettingError:
        present = labels.bincount()[labels.bincount() > 0]
        holders = -(-clients * per_client // len(present))  # of the class with the most
        assert not per_client <= len(present) <= clients * per_client or present.min() < holders
        return
    assert covers_once(parts, len(labels))
    assert [len(labels[part].unique()) for part in parts] == [per_client] * clients
    assert same(parts, partition_pathological(labels, clients, numpy_stream(seed), per_client))


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.integers(1, 8))
def test_natural_keeps_whole_clients_or_none_of_them(owners: list[int], minimum: int) -> None:
    groups = torch.tensor(owners)
    counts = {owner: owners.count(owner) for owner in sorted(set(owners))}
    expected = [owner for owner, count in counts.items() if count >= minimum]
    if not expected:
        with pytest.raises(SettingError, match=f"none of the {len(counts)} natural clients has {minimum} samples"):
            partition_natural(groups, minimum)
        return
    parts = partition_natural(groups, minimum)
    assert [groups[part].unique().tolist() for part in parts] == [[owner] for owner in expected]
    assert [len(part) for part in parts] == [counts[owner] for owner in expected]


def test_natural_without_a_minimum_leaves_nothing_out() -> None:
    assert covers_once(partition_natural(torch.tensor([7, 3, 7, 9])), 4)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=90), some_clients, some_seeds)
def test_merged_puts_whole_clients_together_evenly(owners: list[int], clients: int, seed: int) -> None:
    groups, total = torch.tensor(owners), len(set(owners))
    if total < clients:
        with pytest.raises(SettingError, match=f"{total} natural clients cannot be merged into {clients}"):
            partition_merged(groups, clients, numpy_stream(seed))
        return
    parts = partition_merged(groups, clients, numpy_stream(seed))
    assert covers_once(parts, len(groups))
    held = [set(groups[part].tolist()) for part in parts]
    assert len(held) == clients
    assert sum(map(len, held)) == total  # nobody is in two clients
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert same(parts, partition_merged(groups, clients, numpy_stream(seed)))


@pytest.mark.parametrize("name", ["iid", "niid-bench", "dirichlet-plain", "pathological", "merged"])
def test_another_seed_deals_otherwise(name: str) -> None:
    first, second = (PARTITIONS[name](VALUES[name], 20, numpy_stream(seed)) for seed in (1, 2))
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_many_clients_and_a_small_alpha_end_at_the_minimum() -> None:
    parts = partition_dirichlet_plain(BALANCED, 200, numpy_stream(3), alpha=0.1, minimum=25)  # all that there is
    assert [len(part) for part in parts] == [25] * 200


def test_a_smaller_alpha_is_more_skewed_even_where_many_are_topped_up() -> None:
    def top_share(alpha: float) -> float:
        counts = histograms(
            partition_dirichlet_plain(BALANCED, 100, numpy_stream(5), alpha, minimum=10), BALANCED
        ).double()
        return float((counts.max(1).values / counts.sum(1)).mean())

    shares = [top_share(alpha) for alpha in (0.05, 0.1, 0.5, 5, 500)]
    assert all(smaller > larger + 0.02 for smaller, larger in pairwise(shares))
    assert shares[0] > 0.7  # of a client's samples are of one class
    assert shares[-1] < 0.2  # next to even, 0.1


def test_topping_up_takes_what_the_largest_has_most_of() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    for seed in range(20):
        before = histograms(partition_dirichlet_plain(labels, 2, numpy_stream(seed), 0.05, minimum=0), labels)
        after = histograms(partition_dirichlet_plain(labels, 2, numpy_stream(seed), 0.05, minimum=20), labels)
        small = int(before.sum(1).argmin())
        if before[small].sum() >= 20:
            assert torch.equal(before, after)
        else:
            assert after[small].sum() == 20
            assert (after[small] - before[small])[before[1 - small].argmax()] == 20 - before[small].sum()


def test_class_shares_have_the_moments_of_the_dirichlet_distribution() -> None:
    clients, alpha, draws = 5, 0.5, 400
    counts = torch.stack(
        [
            histograms(partition_dirichlet_plain(BALANCED, clients, numpy_stream(seed), alpha, minimum=0), BALANCED)
            for seed in range(draws)
        ]
    )
    shares = counts.double() / 500  # (draws, clients, classes)
    mean, variance = 1 / clients, (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    error = 4 * np.sqrt(variance / (draws * CLASSES))  # four standard errors
    assert (shares.mean((0, 2)) - mean).abs().max() < error
    assert shares.var(0, correction=0).mean().item() == pytest.approx(variance, rel=0.06)


def test_pathological_spreads_classes_and_pairs_them_at_random() -> None:
    counts = histograms(partition_pathological(BALANCED, 50, numpy_stream(1), 2), BALANCED)
    assert (counts > 0).sum(0).tolist() == [10] * CLASSES  # holders of each class
    assert len({tuple(row.nonzero().flatten().tolist()) for row in counts}) > 10


def test_iid_clients_look_like_the_whole() -> None:
    counts = histograms(partition_iid(BALANCED, 5, numpy_stream(1)), BALANCED)
    assert (counts - 100).abs().max() < 45


@settings(deadline=None)
@given(some_labels, some_clients, some_seeds, st.sampled_from([1e-9, 0.01, 0.1, 0.5, 1, 1e4]))
def test_niid_bench_deals_everything_out(labels: Tensor, clients: int, seed: int, alpha: float) -> None:
    try:
        parts = partition_niid_bench(labels, clients, numpy_stream(seed), alpha, minimum=0)
    except SettingError:
        assert alpha == 1e-9  # a single client takes a class, and it may be one that has its share already
        return
    assert covers_once(parts, len(labels))
    assert len(parts) == clients
    assert same(parts, partition_niid_bench(labels, clients, numpy_stream(seed), alpha, minimum=0))


def li_et_al(labels: np.ndarray, clients: int, alpha: float, minimum: int, rng: np.random.Generator) -> np.ndarray:
    """(clients, classes) counts of a split as Li et al. describe theirs, sample by sample."""
    while True:
        held: list[list[int]] = [[] for _ in range(clients)]
        for label in range(CLASSES):
            samples = rng.permutation(np.flatnonzero(labels == label))
            weights = rng.standard_gamma(alpha, clients)  # a Dirichlet draw once they are divided by their sum
            weights = [
                weight if len(own) < len(labels) / clients else 0 for weight, own in zip(weights, held, strict=True)
            ]
            edges = np.floor(np.cumsum(weights) / np.sum(weights) * len(samples)).astype(int)
            edges[-1] = len(samples)
            for own, start, stop in zip(held, [0, *edges[:-1]], edges, strict=True):
                own += [label] * (stop - start)
        if min(map(len, held)) >= minimum:
            return np.array([np.bincount(own, minlength=CLASSES) for own in held])


def describe_split(counts: np.ndarray) -> np.ndarray:
    """Return mean entropy, mean classes, and deviation and maximum of sizes, for counts (clients, classes)."""
    shares = counts / counts.sum(1, keepdims=True)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
    sizes = counts.sum(1)
    return np.array([entropy.mean(), (counts > 0).sum(1).mean(), sizes.std(), sizes.max()])


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_niid_bench_splits_as_an_independent_implementation_does(alpha: float) -> None:
    labels, clients, seeds = torch.arange(12_000) % CLASSES, 100, range(20)
    ours = [
        histograms(partition_niid_bench(labels, clients, numpy_stream(seed), alpha), labels).numpy() for seed in seeds
    ]
    theirs = [li_et_al(labels.numpy(), clients, alpha, 20, np.random.default_rng(seed)) for seed in seeds]
    plain = [
        histograms(partition_dirichlet_plain(labels, clients, numpy_stream(seed), alpha), labels).numpy()
        for seed in seeds
    ]
    found, expected, other = (np.array([describe_split(counts) for counts in some]) for some in (ours, theirs, plain))
    error = 4 * np.hypot(found.std(0), expected.std(0)) / np.sqrt(len(seeds))  # four standard errors
    assert (np.abs(found.mean(0) - expected.mean(0)) < error).all()
    assert (np.abs(other.mean(0) - expected.mean(0)) > error).all()  # which the plain split is not mistaken for
    assert min(counts.sum(1).min() for counts in ours) >= 20


def test_niid_bench_gives_no_more_to_who_has_its_share() -> None:
    labels = torch.arange(6000) // 600  # class by class, as they are dealt
    for seed in range(5):
        counts = histograms(partition_niid_bench(labels, 60, numpy_stream(seed), 0.5), labels)
        before = counts.cumsum(1) - counts  # what a client had when a class was dealt
        assert not counts[:-1][before[:-1] >= 100].any()  # the last client takes what rounding leaves over


def test_a_minimum_that_no_draw_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snowball.data.partition.MAX_DRAWS", 100)
    with pytest.raises(
        SettingError, match=r"no draw of 100 gave each of 100 clients 45 of the 5000 samples at alpha = 0\.1: lower"
    ):
        partition_niid_bench(BALANCED, 100, numpy_stream(1), 0.1, minimum=45)


@pytest.mark.parametrize("partition", [partition_niid_bench, partition_dirichlet_plain])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan"), 1e308])
def test_an_impossible_alpha_is_refused(partition: Callable[..., Parts], alpha: float) -> None:
    with pytest.raises(SettingError, match="clients must be positive and finite, got alpha"):
        partition(BALANCED, 20, numpy_stream(1), alpha)


@pytest.mark.parametrize("name", ["iid", "niid-bench", "dirichlet-plain", "pathological", "merged"])
@pytest.mark.parametrize("clients", [0, -3])
def test_nobody_to_deal_to_is_refused(name: str, clients: int) -> None:
    with pytest.raises(SettingError, match=r"clients (must be at least 1|cannot be merged)"):
        PARTITIONS[name](BALANCED, clients, numpy_stream(1))


def test_more_classes_than_clients_can_hold_is_refused() -> None:
    with pytest.raises(SettingError, match="4 clients of 2 classes each cannot cover 10 classes"):
        partition_pathological(BALANCED, 4, numpy_stream(1), 2)
    with pytest.raises(SettingError, match="too few for its"):
        partition_pathological(torch.tensor([0] * 100 + [1]), 3, numpy_stream(1), 2)


@settings(max_examples=60, deadline=None)
@given(labels=some_labels, sizes=st.lists(st.floats(1e-3, 1e300), min_size=1, max_size=12), seed=some_seeds)
def test_sized_parts_follow_their_sizes(labels: Tensor, sizes: list[float], seed: int) -> None:
    if len(labels) < len(sizes):
        with pytest.raises(SettingError, match="samples are too few"):
            partition_sized(labels, len(sizes), numpy_stream(seed), tuple(sizes))
        return
    parts = partition_sized(labels, len(sizes), numpy_stream(seed), tuple(sizes))
    assert covers_once(parts, len(labels))
    shares, free = np.array(sizes) / max(sizes), len(labels) - len(sizes)
    expected = 1 + free * shares / shares.sum()
    assert np.abs(np.array([len(part) for part in parts]) - expected).max() <= 1 + 1e-6


def test_sized_parts_are_skewed_by_alpha() -> None:
    sizes = (1, 2, 3, 4, 5, 6, 7, 94)
    skews = []
    for alpha in (0.1, 100.0):
        counts = histograms(partition_sized(BALANCED, 8, numpy_stream(1), sizes, alpha), BALANCED).double()
        skews.append(float((counts[6] / counts[6].sum()).max()))
    assert skews[0] > 0.4 > 0.2 > skews[1]


@pytest.mark.parametrize(
    "sizes", [(), (1, 2, 3), (1, 2, 3, 0), (1, 2, 3, -4), (1, 2, 3, float("nan")), (1, 2, 3, 1e999)]
)
def test_sizes_that_cannot_be_are_one_sentence(sizes: tuple[float, ...]) -> None:
    with pytest.raises(SettingError, match=r"data\.sizes (has|must be)"):
        partition_sized(BALANCED, 4, numpy_stream(1), sizes)

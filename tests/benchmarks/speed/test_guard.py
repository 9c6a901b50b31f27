"""The benchmark of a guard: all ways average the same arrays to the same model, and a case says what each costs."""

import numpy as np
import pytest
import torch

from benchmarks.speed.guard import (
    CASES,
    ELECTING,
    WAYS,
    elect_guarded,
    make_model,
    make_replies,
    stack_rows,
    time_averages,
    time_election,
)

MODEL = make_model(1000)
REPLIES = make_replies(MODEL, 10)
SIZES = ("k500 d1000000", "k10 d50000000")


def test_the_cases_keep_their_names() -> None:
    averages = [f"guard fedavg {size}" for size in ("k100 d1000000", "k10 d10000000", *SIZES)]
    elections = [f"guard {name} {size}" for name in ("snowball", "snowball-grown", "snowball-plus") for size in SIZES]
    assert list(CASES) == averages + elections


def test_all_ways_average_the_same_arrays() -> None:
    model = make_model(1000)
    replies = make_replies(model, 7)
    assert {name: array.shape for name, array in model.items()} == {"first": (100, 1), "last": (10, 90)}
    plain, flower, judged = (WAYS[way](model, replies) for way in ("plain", "flower", "guard"))
    assert len(judged.averaged) == 7
    for name, own in model.items():
        assert not np.array_equal(plain[name], own)
        np.testing.assert_allclose(judged.tensors[name].numpy(), plain[name], atol=1e-6)
        np.testing.assert_allclose(flower[name], plain[name], atol=1e-6)


def test_a_case_says_how_many_times_the_plain_mean_a_guard_costs() -> None:
    case = time_averages("small", 5, 1000)
    assert case["times_plain"] == pytest.approx(1 / case["ratio"])
    assert case["times_flower"] == pytest.approx(case["seconds"] / case["flower_seconds"])
    assert set(case["parts"]) == {"validation", "average", "hashes", "rest"}
    assert case["replies_mib"] == 5 * 1000 * 4 / 2**20
    assert case["difference"] < 1e-6


def test_a_round_that_elects_nobody_is_not_timed() -> None:
    with pytest.raises(RuntimeError, match="the guard kept the model: 6 clusters need over 6 updates, got 5"):
        time_election("small", ELECTING["snowball"](12), 5, 1000)


@pytest.mark.parametrize("name", ELECTING)
def test_every_election_fits_few_clients(name: str) -> None:
    elect_guarded(ELECTING[name](10), MODEL, REPLIES)


def test_an_election_is_timed_beside_a_plain_mean_and_a_product_of_the_same_rows() -> None:
    case = time_election("small", ELECTING["snowball"](12), 12, 1000)
    assert case["reference_seconds"] == pytest.approx(case["plain_seconds"] + case["gram_seconds"])
    assert case["times_both"] == pytest.approx(1 / case["ratio"])
    assert set(case["parts"]) == {"validation", "election", "hashes", "rest"}
    replies = make_replies(make_model(1000), 2)
    first, last = (torch.from_numpy(array).flatten() for array in replies[1].tensors.values())
    assert torch.equal(stack_rows(replies)[1], torch.cat([first, last]))

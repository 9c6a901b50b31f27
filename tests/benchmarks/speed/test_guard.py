"""The benchmark of a guard: all ways average the same arrays to the same model, and a case says what each costs."""

import numpy as np
import pytest

from benchmarks.speed.guard import NAMES, WAYS, make_model, make_replies, time_guard


def test_the_cases_keep_their_names() -> None:
    assert list(NAMES) == ["guard fedavg k100 d1000000", "guard fedavg k10 d10000000", "guard fedavg k500 d1000000"]


def test_all_ways_average_the_same_arrays() -> None:
    model = make_model(1000)
    replies = make_replies(model, 7)
    assert {name: len(array) for name, array in model.items()} == {"first": 100, "last": 900}
    plain, flower, judged = (WAYS[way](model, replies) for way in ("plain", "flower", "guard"))
    assert len(judged.averaged) == 7
    for name, own in model.items():
        assert not np.array_equal(plain[name], own)
        np.testing.assert_allclose(judged.tensors[name].numpy(), plain[name], atol=1e-6)
        np.testing.assert_allclose(flower[name], plain[name], atol=1e-6)


def test_a_case_says_how_many_times_the_plain_mean_a_guard_costs() -> None:
    case = time_guard("small", 5, 1000)
    assert case["times_plain"] == pytest.approx(1 / case["ratio"])
    assert case["times_flower"] == pytest.approx(case["seconds"] / case["flower_seconds"])
    assert set(case["parts"]) == {"validation", "average", "hashes", "rest"}
    assert case["replies_mib"] == 5 * 1000 * 4 / 2**20
    assert case["difference"] < 1e-6

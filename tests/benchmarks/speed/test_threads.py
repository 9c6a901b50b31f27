import pytest
import torch

from benchmarks.speed import threads
from snowball.defenses.snowball.vae import VAESettings

SMALL = VAESettings(hidden=16, latent=4)


def test_a_last_bit_is_a_difference() -> None:
    one = threads.train_and_score(40, 1, SMALL)
    assert threads.are_equal(one, threads.train_and_score(40, 1, SMALL))
    assert not threads.are_equal(one, [*one[:-1], torch.nextafter(one[-1], one[-1] + 1)])


def test_the_threads_that_change_something_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "train_and_score", lambda width, count, settings: [torch.tensor(count > 4)])
    assert threads.find_differing(40) == [16]


def test_a_step_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "measure_peak", lambda: 1e12)
    products, adam = threads.bound_step(40)
    weights = 2 * 40 * 256 + 2 * 256 * 256 + 3 * 64 * 256 + 40 + 4 * 256 + 128
    assert products == 2 * 8 * (3 * weights - 40 * 256) / 1e12
    assert adam > 0

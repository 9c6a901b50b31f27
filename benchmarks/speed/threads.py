"""Checks whether Snowball's VAE gives the same bits on several threads as on one, and times two threads.

    python -m benchmarks.speed.threads          (two minutes, on cores with nothing else to do)

It also says what a step takes at least on one thread: its products at the machine's peak, and Adam in the cache.

It trains and scores with the published VAE, at the widths of the voting layers of shipped networks and at an odd one.
Times are the medians of several trainings, on one and on two threads in turn.
"""

from dataclasses import replace
from math import ceil
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.measuring.operations import measure_peak
from benchmarks.measuring.timing import time_fastest
from snowball.defenses.snowball.judges import PUBLISHED_BATCH
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.defenses.snowball.vae_steps import Part, take_adam_step
from snowball.rng import stream
from snowball.threads import use_threads

WIDTHS = {
    "cnn-quarter, MNIST": 840,
    "cnn, MNIST": 3360,
    "cnn-quarter, FEMNIST": 4168,
    "cnn, FEMNIST": 16672,
    "odd": 12345,
}
THREADS = (2, 16)
EPOCHS, DIFFERENCES, SCALE = 3, 26, 0.02
"""The last batch has two differences: products of few rows may be rounded differently."""

TIMED_EPOCHS, REPEATS = 10, 8
CACHED = 1 << 16
"""Weights that fit a core's cache with Adam's averages of them and a gradient."""


def build_vae(width: int, threads: int, settings: VAESettings | None = None) -> VAE:
    """Return a published VAE for this number of threads."""
    settings = replace(settings or VAESettings(), cpu_threads=threads)
    return VAE(width, settings, stream(0, "threads", "vae"), PUBLISHED_BATCH, bounded=True)


def train_and_score(width: int, threads: int, settings: VAESettings | None = None) -> list[Tensor]:
    """Return all that a VAE has learned, its errors and its codes."""
    differences = SCALE * torch.randn(DIFFERENCES, width, generator=stream(0, "threads", width))
    vae = build_vae(width, threads, settings)
    with use_threads(1):
        vae.learn(differences, EPOCHS)
        return [*(each.detach() for each in vae.parameters()), vae.errors(differences), vae.codes(differences)]


def find_differing(width: int, settings: VAESettings | None = None) -> list[int]:
    """Return the numbers of threads whose results differ from those on one thread."""
    one = train_and_score(width, 1, settings)
    return [threads for threads in THREADS if not are_equal(one, train_and_score(width, threads, settings))]


def are_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    """Return whether all tensors are equal bit for bit."""
    return all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


def time_steps(width: int, threads: tuple[int, ...] = (1, 2)) -> list[float]:
    """Return the seconds of a step for each number of threads, measured in turn."""
    differences = SCALE * torch.randn(DIFFERENCES, width, generator=stream(0, "threads", width))
    vaes = {count: build_vae(width, count) for count in threads}
    seconds: dict[int, list[float]] = {count: [] for count in threads}
    for _ in range(REPEATS):
        for count, vae in vaes.items():
            start = perf_counter()
            vae.learn(differences, TIMED_EPOCHS)
            seconds[count].append((perf_counter() - start) / (TIMED_EPOCHS * ceil(DIFFERENCES / PUBLISHED_BATCH)))
    return [median(taken) for taken in seconds.values()]


def bound_step(width: int) -> tuple[float, float]:
    """Return the seconds of a step's products at the machine's peak, and of Adam with all its numbers in the cache."""
    weights = sum(parameter.numel() for parameter in build_vae(width, 1).parameters())
    products = 2 * PUBLISHED_BATCH * (3 * weights - width * VAESettings.hidden)  # the inputs need no gradient
    part, gradient = Part(torch.randn(CACHED)), torch.randn(CACHED)
    seconds, _ = time_fastest(lambda _: take_adam_step([(part, gradient)], VAESettings.lr), lambda: None, 100 * REPEATS)
    return products / measure_peak(), seconds * weights / CACHED


if __name__ == "__main__":
    for name, width in WIDTHS.items():
        one, two = time_steps(width)
        print(f"{name}, {width} columns: differs with {find_differing(width) or 'none'} of {THREADS} threads;", end=" ")
        print(f"a step {1e3 * one:.2g} ms on one, {1e3 * two:.2g} ms on two, ratio {one / two:.2f};", end=" ")
        products, adam = bound_step(width)
        print(f"at least {1e3 * products:.2g} ms for products and {1e3 * adam:.2g} ms for Adam", flush=True)

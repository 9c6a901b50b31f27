"""Checks whether Snowball's VAE gives the same bits on several threads as on one, and times two threads.

    python -m benchmarks.speed.threads          (two minutes, on cores with nothing else to do)

It trains and scores with the published VAE, at the widths of the voting layers of shipped networks and at an odd one.
Times are the medians of several optimiser steps, on one and on two threads in turn.
"""

from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from snowball.defenses.snowball.judges import PUBLISHED_BATCH
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.rng import stream
from snowball.threads import use_threads

WIDTHS = {
    "cnn-quarter, MNIST": 840,
    "cnn, MNIST": 3360,
    "cnn-quarter, FEMNIST": 4168,
    "cnn, FEMNIST": 16672,
    "odd": 12345,
}
THREADS = (2, 3, 4, 6, 8, 16)
EPOCHS, DIFFERENCES, SCALE = 3, 24, 0.02
TIMED_EPOCHS, REPEATS = 10, 8


def train_and_score(width: int, threads: int, settings: VAESettings | None = None) -> list[Tensor]:
    """Return all that a VAE has learned, its errors and its codes."""
    differences = SCALE * torch.randn(DIFFERENCES, width, generator=stream(0, "threads", width))
    vae = VAE(width, settings or VAESettings(), stream(0, "threads", "vae"), PUBLISHED_BATCH, bounded=True)
    with use_threads(threads):
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
    vae = VAE(width, VAESettings(), stream(0, "threads", "vae"), PUBLISHED_BATCH, bounded=True)
    seconds: dict[int, list[float]] = {count: [] for count in threads}
    for _ in range(REPEATS):
        for count in threads:
            with use_threads(count):
                vae.learn(differences, 1)  # wakes the threads
                start = perf_counter()
                vae.learn(differences, TIMED_EPOCHS)
                seconds[count].append((perf_counter() - start) / (TIMED_EPOCHS * DIFFERENCES / PUBLISHED_BATCH))
    return [median(taken) for taken in seconds.values()]


if __name__ == "__main__":
    for name, width in WIDTHS.items():
        one, two = time_steps(width)
        print(f"{name}, {width} columns: differs with {find_differing(width) or 'none'} of {THREADS} threads;", end=" ")
        print(f"a step {1e3 * one:.2g} ms on one, {1e3 * two:.2g} ms on two, ratio {one / two:.2f}", flush=True)

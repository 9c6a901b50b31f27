"""Describes how the two Dirichlet partitions split MNIST among 200 clients: `python -m benchmarks.choices.splits`."""

import numpy as np
import torch

from snowball.data import load_dataset
from snowball.data.partition import PARTITIONS, Parts
from snowball.rng import numpy_stream

CLIENTS, SEEDS = 200, range(3)


def describe_split(parts: Parts, labels: torch.Tensor) -> tuple[float, float, float]:
    """Return the mean label entropy in nats, the mean classes per client, and the standard deviation of their sizes."""
    counts = np.array([labels[part].bincount(minlength=10).numpy() for part in parts])
    shares = counts / counts.sum(1, keepdims=True)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(1)
    return float(entropy.mean()), float((counts > 0).sum(1).mean()), float(counts.sum(1).std())


def main() -> None:
    """Print one line per partition, alpha and seed."""
    labels = load_dataset("mnist").train.labels
    for name in ("niid-bench", "dirichlet-plain"):
        for alpha in (0.5, 1.0):
            for seed in SEEDS:
                parts = PARTITIONS[name](labels, CLIENTS, numpy_stream(seed), alpha)
                entropy, classes, deviation = describe_split(parts, labels)
                print(f"{name} alpha={alpha:g} seed={seed}: {entropy:.2f} nats, {classes:.1f} classes, {deviation:.0f}")


if __name__ == "__main__":
    main()

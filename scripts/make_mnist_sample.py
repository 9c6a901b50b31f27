"""Make the sample of MNIST that the package ships, from a complete copy in $SNOWBALL_DATA or the user's cache.

    python scripts/make_mnist_sample.py

The same samples, and with the same NumPy and zlib the same bytes, every time.
"""

from pathlib import Path

import numpy as np
import torch

from snowball.data import Split, load_dataset
from snowball.rng import numpy_stream

SAMPLE = Path(__file__).parents[1] / "src" / "snowball" / "data" / "sample" / "mnist.npz"
SEED = 0
TRAIN_PER_CLASS, TEST_PER_CLASS = 1200, 200
LIMIT = 3_000_000  # bytes; the sample is part of every installation


def balanced(split: Split, per_class: int, name: str) -> Split:
    """So many random samples of each class, shuffled."""
    rng = numpy_stream(SEED, "mnist-sample", name)
    labels = split.labels.numpy()
    chosen = [rng.choice(np.flatnonzero(labels == label), per_class, replace=False) for label in np.unique(labels)]
    return split[torch.from_numpy(rng.permutation(np.concatenate(chosen)))]


def write(path: Path, train: Split, test: Split) -> None:
    """The sample as a NumPy archive with the keys of the complete one."""
    arrays = {
        "x_train": train.inputs[:, 0].numpy(),
        "y_train": train.labels.to(torch.uint8).numpy(),
        "x_test": test.inputs[:, 0].numpy(),
        "y_test": test.labels.to(torch.uint8).numpy(),
    }
    np.savez_compressed(path, allow_pickle=False, **arrays)


def main() -> None:
    """Make the sample, and refuse to ship anything but a small part of the real thing."""
    mnist = load_dataset("mnist")
    if not mnist.provenance["complete"]:
        raise SystemExit("this copy of MNIST is not the complete one")
    write(SAMPLE, balanced(mnist.train, TRAIN_PER_CLASS, "train"), balanced(mnist.test, TEST_PER_CLASS, "test"))
    if (size := SAMPLE.stat().st_size) > LIMIT:
        raise SystemExit(f"{SAMPLE} has {size} bytes, the limit is {LIMIT}")


if __name__ == "__main__":
    main()

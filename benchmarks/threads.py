"""Whether Snowball's VAE comes to the same numbers, bit for bit, on several threads as on one.

    python benchmarks/threads.py          (a minute)

trains and scores with the published VAE at the widths of the voting layers of shipped networks, and at an odd one.
"""

import torch
from torch import Tensor

from snowball.defenses.snowball.judges import PUBLISHED_BATCH
from snowball.defenses.snowball.vae import Vae, VaeSettings
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


def learn_and_score(width: int, threads: int, settings: VaeSettings | None = None) -> list[Tensor]:
    """All that a VAE has learned, its errors and its codes."""
    differences = SCALE * torch.randn(DIFFERENCES, width, generator=stream(0, "threads", width))
    vae = Vae(width, settings or VaeSettings(), stream(0, "threads", "vae"), PUBLISHED_BATCH, bounded=True)
    with use_threads(threads):
        vae.learn(differences, EPOCHS)
        return [*(each.detach() for each in vae.parameters()), vae.errors(differences), vae.codes(differences)]


def find_differing(width: int, settings: VaeSettings | None = None) -> list[int]:
    """The numbers of threads with which anything differs from what one gives."""
    one = learn_and_score(width, 1, settings)
    return [threads for threads in THREADS if not same(one, learn_and_score(width, threads, settings))]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Whether all tensors are equal bit for bit."""
    return all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


if __name__ == "__main__":
    for name, width in WIDTHS.items():
        print(f"{name}, {width} columns: differs with {find_differing(width) or 'none'} of {THREADS} threads")

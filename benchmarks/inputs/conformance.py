"""Writes docs/conformance/vectors: small rounds with the exact result of each step of the elections.

    python -m benchmarks.inputs.conformance

The results come from `baselines/reference.py`, which shares no code with the package: scikit-learn voter by voter, and
the published auto-encoder in float64 with autograd. Every vector is written as JSON, and with the same names as
safetensors. docs/conformance/README.md describes the format.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.baselines.reference import (
    LATENT_SAMPLES,
    VAE,
    cast_ballots,
    choose_selectees,
    compute_differences,
    elect_bottom_up,
    grow_elected,
    scale_to_unit,
    score_candidate,
    train_vae,
)
from benchmarks.files import GOLDEN, ROOT

VECTORS = ROOT / "docs" / "conformance" / "vectors"
Vector = dict[str, Any]

ROUND, CLUSTERS = "mnist-k20-4-s1/12", 11
"""The stored round of twenty clients, four of them infected."""

HIDDEN, LATENT, WIDTH, DIFFERENCES = 4, 3, 6, 5
"""The sizes of the small auto-encoder whose loss and errors are stored with all of its weights."""

NOISE_SEED = 5


def make_vectors() -> Iterator[tuple[str, Vector]]:
    """Yield every vector with its name."""
    yield "votes-hand", count_votes(make_hand_layers(), 2)
    yield "votes-equal-scores", count_votes({"layer": make_pairs()}, 2)
    layers = read_layers()
    counted = count_votes(layers, CLUSTERS)
    yield "votes-real", counted
    totals = np.array(counted["totals"])
    first = sorted(choose_selectees(totals, 2))
    yield "selectees-real", {"function": "choose_selectees", "totals": totals, "count": 2, "selectees": first}
    for number, step in enumerate(grow(np.concatenate(list(layers.values()), 1), first), start=1):
        yield f"joining-real-{number}", step
    yield "loss", compute_loss(scale=1.0)
    yield "errors", compute_errors(scale=1.0)
    yield "errors-small-differences", compute_errors(scale=0.01)


def make_hand_layers() -> dict[str, np.ndarray]:
    """Make two layers of six rows that can be checked by hand: two groups, and a row between them."""
    first = [[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [10.0, 10.0], [10.0, 12.0], [5.0, 4.0]]
    last = [[1.0], [2.0], [4.0], [9.0], [8.0], [16.5]]
    return {"first": np.array(first), "last": np.array(last)}


def make_pairs() -> np.ndarray:
    """Make two pairs of rows: every voter finds the same two clusters, so that all scores are equal."""
    return np.array([[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0]])


def read_layers() -> dict[str, np.ndarray]:
    """Read the first and the last weight layer of the stored round, one row per client."""
    prefix = f"{ROUND}/layer/"
    found = {name.removeprefix(prefix): each for name, each in load_file(GOLDEN).items() if name.startswith(prefix)}
    return {name: each.flatten(1).numpy() for name, each in found.items()}


def count_votes(layers: Mapping[str, np.ndarray], clusters: int) -> Vector:
    """Hold the bottom-up election, and keep what each voter did in each layer."""
    totals = elect_bottom_up(list(layers.values()), clusters).totals
    steps = {}
    for name, layer in layers.items():
        votes, clarity = cast_ballots(layer.astype(np.float64), clusters)
        steps[name] = {"votes": votes.astype(np.int64), "clarity": clarity, "weights": scale_to_unit(clarity)}
    return {
        "function": "count_votes",
        "layers": dict(layers),
        "clusters": clusters,
        "by_layer": steps,
        "totals": totals,
    }


def grow(rows: np.ndarray, first: list[int], target: int = 7, step: int = 2) -> list[Vector]:
    """Let candidates join, scored by the published auto-encoder, and keep the scores of every step."""
    steps: list[Vector] = []
    differences = torch.from_numpy(rows)
    vae = VAE(rows.shape[1], 256, 64, torch.Generator().manual_seed(1))
    train_vae(vae, compute_differences(differences[first]), epochs=270)

    def score(elected: list[int], candidates: list[int]) -> list[float]:
        train_vae(vae, compute_differences(differences[elected]), epochs=30)
        scores = [score_candidate(vae, differences[elected], differences[row]) for row in candidates]
        wanted = min(step, target - len(elected))
        joining = sorted(np.argsort(scores, kind="stable")[:wanted].tolist())
        steps.append({"elected": elected.copy(), "candidates": candidates, "scores": scores, "wanted": wanted})
        steps[-1] |= {"function": "choose_joining", "joining": joining}
        return scores

    grow_elected(len(rows), first, target, step, score)
    return steps


def build_small_vae() -> VAE:
    """Build an auto-encoder in float64 whose biases are not zero either."""
    vae = VAE(WIDTH, HIDDEN, LATENT, torch.Generator().manual_seed(2)).double()
    rng = torch.Generator().manual_seed(3)
    for name, parameter in vae.named_parameters():
        if name.endswith("bias"):
            parameter.data.copy_(torch.randn(parameter.shape, generator=rng) / 4)
    return vae


def draw_differences(scale: float) -> Tensor:
    """Draw the differences that the small auto-encoder sees."""
    drawn = torch.randn(DIFFERENCES, WIDTH, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return scale * drawn


def draw_noise(shape: tuple[int, ...], draws: int = 1) -> Tensor:
    """Draw the noise that the auto-encoder draws after its generator is seeded again."""
    rng = torch.Generator().manual_seed(NOISE_SEED)
    return torch.cat([torch.randn(shape, generator=rng) for _ in range(draws)]).double()


def compute_loss(scale: float) -> Vector:
    """Compute the loss of one batch, and its gradients by autograd."""
    vae, differences = build_small_vae(), draw_differences(scale)
    vae.generator.manual_seed(NOISE_SEED)
    loss = vae.loss(differences.sigmoid())
    loss.backward()  # type: ignore[no-untyped-call]
    return {
        "function": "compute_loss",
        "weights": vae.state_dict(),
        "inputs": differences.sigmoid(),
        "noise": draw_noise((DIFFERENCES, LATENT)),
        "gradients": {name: parameter.grad for name, parameter in vae.named_parameters()},
        "loss": float(loss.detach()),
    }


def compute_errors(scale: float) -> Vector:
    """Compute the reconstruction error of each difference."""
    vae, differences = build_small_vae(), draw_differences(scale)
    errors = []
    for difference in differences:
        vae.generator.manual_seed(NOISE_SEED)
        errors.append(vae.error(difference))
    return {
        "function": "compute_errors",
        "weights": vae.state_dict(),
        "differences": differences,
        "noise": draw_noise((1, LATENT), LATENT_SAMPLES),
        "errors": errors,
    }


def convert_to_plain(value: Any) -> Any:
    """Return a value as plain JSON."""
    if isinstance(value, Mapping):
        return {name: convert_to_plain(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | Tensor) else value


def list_arrays(value: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield everything in a vector but its function's name as arrays, with names such as `weights/mean.bias`."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from list_arrays(each, f"{name}/{key}" if name else key)
    elif not isinstance(value, str):
        yield name, np.ascontiguousarray(value)


def write_vector(path: Path, vector: Vector) -> None:
    """Write a vector as JSON and as safetensors."""
    path.with_suffix(".json").write_text(json.dumps(convert_to_plain(vector)) + "\n", encoding="utf-8")
    save_file(dict(list_arrays(vector)), path.with_suffix(".safetensors"), {"function": vector["function"]})


def main(folder: Path = VECTORS) -> None:
    """Write all vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, vector in make_vectors():
        write_vector(folder / name, vector)


if __name__ == "__main__":
    main()

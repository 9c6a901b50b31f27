"""The package passes its own conformance vectors, and known faults do not."""

import json
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

from benchmarks.choices.copies import RawScores
from benchmarks.inputs.conformance import HIDDEN, LATENT, NOISE_SEED, WIDTH, list_arrays
from snowball.defenses.ops import rank_lowest
from snowball.defenses.snowball.bottom_up import count_ballots
from snowball.defenses.snowball.vae import VAE, VAESettings
from snowball.defenses.snowball.vae_steps import Layers, Learning
from snowball.threads import make_executor
from snowball.updates import Updates

FOLDER = Path(__file__).parent.parent / "docs" / "conformance"
VECTORS = sorted((FOLDER / "vectors").glob("*.json"))
PARTS = {
    "enter": ("encoder.0",),
    "encode": ("encoder.2",),
    "code": ("mean", "log_variance.0"),
    "decode": ("decoder.0",),
    "widen": ("decoder.2",),
    "leave": ("decoder.4",),
}
"""The layers of our auto-encoder, and the vectors' names of what they hold."""


class StoredNoise(VAE):
    """Our auto-encoder with the weights and the noise of a vector."""

    def __init__(self, weights: Mapping[str, Any], noise: Any) -> None:
        hidden, width = np.shape(weights["encoder.0.weight"])
        settings = VAESettings(hidden=hidden, latent=np.shape(noise)[1], samples=len(noise))
        super().__init__(width, settings, torch.Generator(), batch=8, bounded=True)
        self.double()
        for name, parts in PARTS.items():
            layer = getattr(self, name)
            for kind in ("weight", "bias"):
                parameter = getattr(layer, kind)
                parameter.data = torch.cat([torch.as_tensor(weights[f"{part}.{kind}"]).double() for part in parts])
        self.noise = torch.as_tensor(noise)

    def _noise(self, shape: Sequence[int]) -> Tensor:
        return self.noise[:, None]


def count_votes(layers: Sequence[np.ndarray], clusters: int) -> Tensor:
    updates = Updates.from_layers({str(number): layer for number, layer in enumerate(layers)})
    return count_ballots(updates, updates.layout.names, clusters).totals


def choose_joining(scores: np.ndarray, wanted: int) -> list[int]:
    return rank_lowest(torch.as_tensor(scores), torch.arange(len(scores)))[:wanted].tolist()


def compute_errors(weights: Mapping[str, Any], differences: np.ndarray, noise: np.ndarray) -> Tensor:
    return StoredNoise(weights, noise).errors(torch.as_tensor(differences))


def score_raw_differences(weights: Mapping[str, Any], differences: np.ndarray, noise: np.ndarray) -> list[float]:
    """The fault of a public copy: outputs are bounded, and inputs are not."""
    vae = RawScores(WIDTH, HIDDEN, LATENT, torch.Generator()).double()
    vae.load_state_dict({name: torch.as_tensor(each) for name, each in weights.items()})
    errors = []
    for difference in torch.as_tensor(differences):
        vae.generator.manual_seed(NOISE_SEED)
        errors.append(vae.error(difference))
    return errors


def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **functions: Any) -> tuple[int, str]:
    monkeypatch.setitem(sys.modules, "implementation", SimpleNamespace(**functions))  # type: ignore[arg-type]
    code = runpy.run_path(str(FOLDER / "check.py"))["main"]("implementation")
    return code, capsys.readouterr().out


def test_the_package_passes_every_vector_it_has_a_function_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    functions = {"count_votes": count_votes, "choose_joining": choose_joining, "compute_errors": compute_errors}
    functions["choose_selectees"] = lambda totals, count: choose_joining(-totals, count)
    code, printed = check(monkeypatch, capsys, **functions)
    assert code == 0
    assert printed.count("ok ") == len(VECTORS) - 1  # the loss has a test of its own


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("count_votes", lambda layers, clusters: count_votes(layers[:1], clusters)),
        ("choose_joining", lambda scores, wanted: choose_joining(-scores, wanted)),
        ("choose_selectees", lambda totals, count: choose_joining(-totals, count + 1)),
        ("compute_errors", score_raw_differences),
    ],
)
def test_faults_are_found(
    function: str, fault: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = check(monkeypatch, capsys, **{function: fault})
    assert code == 1
    assert "DIFFERS" in printed


def test_a_module_without_any_of_the_functions_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, capsys) == (1, "")


@pytest.mark.parametrize("arguments", [[], ["no_such_module"]])
def test_a_wrong_call_is_one_line(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, FOLDER / "check.py", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "usage: python check.py YOUR_MODULE, a module that can be imported here\n"


def test_our_first_step_goes_against_the_stored_gradients() -> None:
    """Adam's first step has the length of the learning rate in every number whose gradient is not tiny."""
    case = json.loads((FOLDER / "vectors" / "loss.json").read_text(encoding="utf-8"))
    vae = StoredNoise(case["weights"], case["noise"])
    before = {name: parameter.detach().clone() for name, parameter in vae.named_parameters()}
    layers = Layers(vae.enter, vae.encode, vae.code, vae.decode, vae.widen, vae.leave)
    with torch.no_grad(), make_executor(1) as executor:
        learning = Learning(layers, 1e-3, True, executor)
        learning.take_step(torch.tensor(case["inputs"], dtype=torch.float64), vae.noise)
        learning.finish()
    for name, parameter in vae.named_parameters():
        layer, kind = name.split(".")
        expected = np.concatenate([case["gradients"][f"{part}.{kind}"] for part in PARTS[layer]])
        clear = np.abs(expected) > 1e-4
        steps = (parameter.detach() - before[name]).numpy()
        np.testing.assert_allclose(steps[clear], -1e-3 * np.sign(expected[clear]), rtol=1e-3)


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_both_formats_hold_the_same_numbers(path: Path) -> None:
    stored = load_file(path.with_suffix(".safetensors"))
    plain = dict(list_arrays(json.loads(path.read_text(encoding="utf-8"))))
    assert stored.keys() == plain.keys()
    for name, array in stored.items():
        np.testing.assert_array_equal(array, plain[name], err_msg=name)

"""Models of a caller's own, good and bad."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snowball.errors import SettingError
from snowball.models import build_model
from snowball.models.own import (
    copy_own_model,
    describe_model,
    find_transfer_fault,
    pack_model,
    refuse_misfit,
    unpack_model,
)
from snowball.rng import stream

INPUTS = torch.zeros(2, 1, 8, 8)


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def copy(model: Any, seed: int = 1) -> nn.Module:
    return copy_own_model(model, stream(seed, "model"))


def test_a_module_keeps_its_weights_and_is_left_alone() -> None:
    own = make_network()
    copied = copy(own)
    assert all(map(torch.equal, copied.parameters(), own.parameters()))
    assert not {id(each) for each in copied.parameters()} & {id(each) for each in own.parameters()}


def test_the_seed_draws_the_weights_that_a_function_makes() -> None:
    before = torch.get_rng_state()
    first, again, other = (describe_model(copy(make_network, seed))["sha256"] for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), before)


def test_the_record_tells_models_apart() -> None:
    own = make_network()
    record = describe_model(own)
    assert (record["class"], record["parameters"]) == ("torch.nn.modules.container.Sequential", 260)
    same_weights = nn.Sequential(*own, nn.Tanh())
    assert describe_model(same_weights)["sha256"] != record["sha256"]
    assert describe_model(copy(own)) == record


class Failing(nn.Linear):
    """Fails, or returns a tuple."""

    def __init__(self, fails: bool = True) -> None:
        super().__init__(64, 4)
        self.fails = fails

    def forward(self, inputs: Tensor) -> Any:
        if self.fails:
            raise ValueError("no good\nsecond line")
        return (inputs,)


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("not twice")


frozen = make_network()
frozen[1].bias.requires_grad_(False)

FAULTS: dict[str, tuple[Any, str]] = {
    "wrong width": (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), r"shape \(2, 4\) .* 4 classes, got \(2, 10\)"),
    "fails": (Failing(), r"the model fails on a batch of float32 \(2, 1, 8, 8\): ValueError: no good$"),
    "other inputs": (nn.Linear(64, 4), "the model fails on a batch .*: RuntimeError: mat1 and mat2 shapes"),
    "returns a tuple": (Failing(False), "must return a tensor of class scores .*, got tuple"),
    "no parameters": (nn.Flatten(), "the model has no parameters, so there is nothing to train"),
    "empty": (nn.Sequential(), "the model has no parameters"),
    "frozen parameters": (frozen, r"parameters that are not trained, 1\.bias: make them buffers"),
    "double precision": (make_network().double(), r"the model's 1\.weight is float64, expected float32: call \.float"),
    "lazy": (nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), r"1\.weight has no shape yet: run the model on one batch"),
    "cannot be copied": (Uncopied(64, 4), "the model cannot be copied: RuntimeError: not twice"),
    "class with arguments": (nn.Linear, r"model\(\) failed, which must make a module: TypeError: "),
    "makes a number": (lambda: 3, r"model\(\) must make an nn\.Module, got int"),
    "number": (3, r"model must be an nn\.Module or a function that makes one, got int"),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_model_is_said_in_one_sentence(fault: str) -> None:
    model, sentence = FAULTS[fault]
    with pytest.raises(SettingError, match=sentence) as caught:
        refuse_misfit(copy(model), "the model", INPUTS, 4)
    assert "\n" not in str(caught.value)


def test_trying_a_model_draws_nothing() -> None:
    drawing, before = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.RReLU()), torch.get_rng_state()
    drawing.eval = lambda: drawing.train()  # type: ignore[method-assign]
    refuse_misfit(drawing, "the model", INPUTS, 4)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_worker_gets_the_same_model() -> None:
    own = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 4))
    assert describe_model(unpack_model(pack_model(own))) == describe_model(own)
    assert find_transfer_fault(own) == ""
    assert find_transfer_fault(Failing()) == ""


def test_a_class_of_a_notebook_or_a_function_inside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("__main__")
    notebook.Net = type("Net", (nn.Linear,), {"__module__": "__main__"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    assert find_transfer_fault(notebook.Net(2, 2)) == "Net is defined in this session and not in a module"
    notebook.__file__ = "script.py"
    assert find_transfer_fault(notebook.Net(2, 2)) == ""
    holding = make_network()
    holding.function = lambda: 0  # type: ignore[assignment]
    assert "lambda" in find_transfer_fault(holding)


def test_a_name_alone_is_not_a_model() -> None:
    with pytest.raises(SettingError, match=r"give it as snowball\.run\(\.\.\., model=\.\.\.\)"):
        build_model("own", (1, 8, 8), 4, stream(0))

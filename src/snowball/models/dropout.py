"""Dropout in several models at once, with the same masks that each model would draw alone.

A layer's mask depends on the shape and memory format of its input, so a model runs once alone to record both. Models
call torch's own functions and need no changes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
"""The functions that multiply their input with a noise that does not depend on its values."""


class DropoutCall(NamedTuple):
    """A call of dropout in a model: its function, ones in the layout of its input, and its probability."""

    function: Callable[..., Tensor]
    ones: Tensor
    probability: float

    def draw_noise(self) -> Tensor:
        """Draw the factors for the input from torch's global generator."""
        return self.function(self.ones, self.probability, training=True)


class DropoutRecorder(TorchFunctionMode):
    """Records the dropout calls of a model, and drops nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[DropoutCall] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, or record a dropout."""
        settings = kwargs or {}
        if function not in DROPOUTS or not settings["training"]:
            return function(*args, **settings)
        self.calls.append(DropoutCall(function, torch.ones_like(args[0].detach()), settings["p"]))
        return args[0]


class DropoutReplay(TorchFunctionMode):
    """Replays dropout with noises that were drawn before, in their order."""

    def __init__(self, noises: Sequence[Tensor]) -> None:
        super().__init__()
        self.noises = iter(noises)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, or multiply with the next noise instead of dropout."""
        settings = kwargs or {}
        if function not in DROPOUTS or not settings["training"]:
            return function(*args, **settings)
        return args[0].mul_(next(self.noises)) if settings["inplace"] else args[0] * next(self.noises)


def record_dropout_calls(model: nn.Module, inputs: Tensor) -> list[DropoutCall]:
    """Record the dropout calls of a model on samples of this shape."""
    recorder = DropoutRecorder()
    with recorder:
        model(inputs)
    return recorder.calls


class DropoutStreams:
    """The dropout noises of several models, each from its own seed, as `draw_from` with that seed would give them.

    They come from torch's global generator, whose state the caller must preserve.
    """

    def __init__(self, seeds: Sequence[int], device: str) -> None:
        self.generator = torch.default_generator
        if device != "cpu":
            self.generator = torch.cuda.default_generators[torch.cuda.current_device()]
        self.states = [self.generator.manual_seed(seed).get_state() for seed in seeds]

    def draw_noises(self, calls: Sequence[DropoutCall], members: Sequence[int]) -> list[Tensor]:
        """Draw the noise of each call for some of the models, (n, ...)."""
        own = [list(self._draw_own(calls, member)) for member in members] if calls else []
        return [torch.stack(noises) for noises in zip(*own, strict=True)]

    def _draw_own(self, calls: Sequence[DropoutCall], member: int) -> Iterator[Tensor]:
        self.generator.set_state(self.states[member])
        for call in calls:
            yield call.draw_noise()
        self.states[member] = self.generator.get_state()

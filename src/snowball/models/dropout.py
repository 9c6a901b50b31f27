"""Dropout of several models at once, each with the draws that it makes alone.

What a layer draws follows from the shape and the memory format of what it is given, so a model runs once by itself to
note both. Models call torch's own functions and know nothing of this.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
"""What drops by multiplying with a noise that does not look at what it is multiplied with."""


class Drop(NamedTuple):
    """A place in a model where it drops: by which function, from what is laid out like `ones`, with which chance."""

    function: Callable[..., Tensor]
    ones: Tensor
    chance: float

    def noise(self) -> Tensor:
        """What the samples are multiplied with there, drawn from torch's global generator."""
        return self.function(self.ones, self.chance, training=True)


class Noting(TorchFunctionMode):
    """Drops nothing, and notes where a model would."""

    def __init__(self) -> None:
        super().__init__()
        self.drops: list[Drop] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, or do without."""
        settings = kwargs or {}
        if function not in DROPOUTS or not settings["training"]:
            return function(*args, **settings)
        self.drops.append(Drop(function, torch.ones_like(args[0].detach()), settings["p"]))
        return args[0]


class Dropping(TorchFunctionMode):
    """Drops with the noises that were drawn before, one after the other."""

    def __init__(self, noises: Sequence[Tensor]) -> None:
        super().__init__()
        self.noises = iter(noises)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, or multiply in its place."""
        settings = kwargs or {}
        if function not in DROPOUTS or not settings["training"]:
            return function(*args, **settings)
        return args[0].mul_(next(self.noises)) if settings["inplace"] else args[0] * next(self.noises)


def drops_of(model: nn.Module, inputs: Tensor) -> list[Drop]:
    """Where a model drops when it is given such samples."""
    noting = Noting()
    with noting:
        model(inputs)
    return noting.drops


class Draws:
    """The draws of several models, each from a seed of its own: as those of `drawing_from` a generator with that seed.

    They come from torch's global generator, which the caller keeps.
    """

    def __init__(self, seeds: Sequence[int], device: str) -> None:
        self.generator = torch.default_generator
        if device != "cpu":
            self.generator = torch.cuda.default_generators[torch.cuda.current_device()]
        self.states = [self.generator.manual_seed(seed).get_state() for seed in seeds]

    def noises(self, drops: Sequence[Drop], members: Sequence[int]) -> list[Tensor]:
        """What some of the models multiply with (n, ...) at each place."""
        own = [list(self._own(drops, member)) for member in members] if drops else []
        return [torch.stack(noises) for noises in zip(*own, strict=True)]

    def _own(self, drops: Sequence[Drop], member: int) -> Iterator[Tensor]:
        self.generator.set_state(self.states[member])
        for drop in drops:
            yield drop.noise()
        self.states[member] = self.generator.get_state()

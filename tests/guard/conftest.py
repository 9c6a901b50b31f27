"""A small federation: a model with batch normalisation, honest replies to it, and hostile ones."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from snowball.guard import Reply

MODEL = {
    "first.weight": torch.linspace(-1, 1, 12).view(4, 3),
    "norm.running_mean": torch.zeros(4),
    "norm.running_var": torch.ones(4),
    "norm.num_batches_tracked": torch.tensor(7),
    "last.weight": torch.linspace(1, -1, 8).view(2, 4),
    "last.bias": torch.zeros(2),
}

Tensors = dict[str, Tensor]


def make_honest_reply(number: int, model: Mapping[str, Tensor] = MODEL) -> Reply:
    """Return a client's reply after a little training; clients are site-00, site-01, ..."""
    rng = torch.Generator().manual_seed(number)
    tensors = {
        name: tensor + 0.05 * torch.rand(tensor.shape, generator=rng) if tensor.is_floating_point() else tensor + 2
        for name, tensor in model.items()
    }
    return Reply(f"site-{number:02}", 20 + number, tensors)


def change_reply(reply: Reply, **changes: Any) -> Reply:
    """Return a reply with some tensors changed; an underscore stands for each dot in their names."""
    names = {name.replace(".", "_"): name for name in reply.tensors}
    return Reply(reply.client, reply.examples, {**reply.tensors, **{names[key]: new for key, new in changes.items()}})


class Raising(Mapping[str, Any]):
    """A mapping that raises on every access."""

    def __getitem__(self, name: str) -> Any:
        raise ZeroDivisionError(name)

    def __iter__(self) -> Iterator[str]:
        raise OSError("the stream broke off")

    def __len__(self) -> int:
        raise ValueError("no length")


class Unspeakable(Exception):  # noqa: N818
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Silent(Raising):
    """A mapping that raises an exception without a text."""

    def __iter__(self) -> Iterator[str]:
        raise Unspeakable


class Named(dict[str, Any]):
    """A mapping with the right names and no values."""

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)


def make_sparse() -> Tensor:
    return torch.eye(4)[:, :3].to_sparse()


WEIGHT = MODEL["first.weight"]
HUGE = np.full((4, 3), 1e300)
HOSTILE_TENSORS: dict[str, tuple[str, Callable[[Tensors], Any]]] = {
    "None": ("names", lambda own: None),
    "a list": ("names", lambda own: list(own.values())),
    "bytes": ("names", lambda own: b"\x80\x04pickle"),
    "an empty dict": ("names", lambda own: {}),
    "a missing tensor": ("names", lambda own: {name: own[name] for name in list(own)[1:]}),
    "an extra tensor": ("names", lambda own: {**own, "x" * 10**6: WEIGHT}),
    "names that are no text": ("names", lambda own: {**own, 7: WEIGHT, None: WEIGHT}),
    "a mapping that raises": ("error", lambda own: Raising()),
    "a mapping that raises what cannot be said": ("error", lambda own: Silent()),
    "a mapping without values": ("error", lambda own: Named(own)),
    "another shape": ("shape", lambda own: {**own, "first.weight": WEIGHT.T}),
    "a shape that broadcasts": ("shape", lambda own: {**own, "first.weight": WEIGHT[:1]}),
    "no length": ("shape", lambda own: {**own, "first.weight": torch.zeros(0)}),
    "a number": ("shape", lambda own: {**own, "first.weight": 1.5}),
    "NaN": ("not-finite", lambda own: {**own, "last.bias": torch.tensor([0, torch.nan])}),
    "Inf": ("not-finite", lambda own: {**own, "last.bias": np.array([0, -np.inf])}),
    "NaN in a statistic": ("not-finite", lambda own: {**own, "norm.running_mean": torch.full((4,), torch.nan)}),
    "float64 that overflows": ("not-finite", lambda own: {**own, "first.weight": HUGE}),
    "1e30 weights": ("norm", lambda own: {**own, "first.weight": torch.full((4, 3), 1e30)}),
    "1e6 weights": ("norm", lambda own: {**own, "first.weight": torch.full((4, 3), 1e6)}),
    "a statistic of 1e9": ("norm", lambda own: {**own, "norm.running_mean": torch.full((4,), 1e9)}),
    "a statistic far off": ("range", lambda own: {**own, "norm.running_mean": torch.full((4,), 50.0)}),
    "a variance far off": ("range", lambda own: {**own, "norm.running_var": torch.full((4,), 50.0)}),
    "a negative variance": ("range", lambda own: {**own, "norm.running_var": -torch.ones(4)}),
    "a counter that jumps": ("range", lambda own: {**own, "norm.num_batches_tracked": torch.tensor(1 << 62)}),
    "a counter that jumps back": ("range", lambda own: {**own, "norm.num_batches_tracked": torch.tensor(-(1 << 40))}),
    "complex": ("dtype", lambda own: {**own, "first.weight": WEIGHT.to(torch.complex64)}),
    "text": ("dtype", lambda own: {**own, "first.weight": "weights"}),
    "texts": ("dtype", lambda own: {**own, "first.weight": np.full((4, 3), "1.0")}),
    "objects": ("dtype", lambda own: {**own, "first.weight": np.full((4, 3), None)}),
    "bools": ("dtype", lambda own: {**own, "first.weight": WEIGHT > 0}),
    "nothing": ("dtype", lambda own: {**own, "first.weight": None}),
    "ragged lists": ("dtype", lambda own: {**own, "first.weight": [[1.0], [1.0, 2.0]]}),
    "a sparse tensor": ("dtype", lambda own: {**own, "first.weight": make_sparse()}),
    "a meta tensor": ("dtype", lambda own: {**own, "first.weight": torch.empty(4, 3, device="meta")}),
    "a floating counter": ("dtype", lambda own: {**own, "norm.num_batches_tracked": torch.tensor(9.0)}),
}
"""Hostile tensors: the reason to drop them, and a function that makes them from an honest client's."""

HOSTILE_EXAMPLES: list[Any] = [
    0, -3, 1e12, float("nan"), float("inf"), -float("inf"), True, "10", 10**400, -(10**400), 10**5000, None, 1j, b"1",
    [10], np.int64(0), np.float32("nan"), np.bool_(True), np.str_("10"), np.array([3, 4]), np.array([]), np.array(1e12),
    torch.tensor(-1), torch.tensor([5, 6]), torch.tensor(True), torch.tensor(torch.nan), {"count": 10}, 1 << 54,
]  # fmt: skip


@pytest.fixture
def replies() -> list[Reply]:
    return [make_honest_reply(number) for number in range(8)]

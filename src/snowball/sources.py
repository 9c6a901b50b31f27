"""Reads the rows of a round from what a caller passes: a matrix, layers or models."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snowball.arrays import FLOATS, check_mapping, convert_to_tensor, is_finite
from snowball.buffers import Buffers
from snowball.differences import Differences
from snowball.errors import UpdateError
from snowball.layout import Layout, select_parameters


def check_rows(values: Tensor | Differences, examples: Tensor, clients: Sequence[str], layout: Layout) -> None:
    """Refuse rows, example counts and client ids that do not fit together."""
    if isinstance(values, Tensor) and (values.ndim != 2 or values.dtype not in FLOATS):
        shape, dtype = tuple(values.shape), values.dtype
        raise UpdateError(f"updates must be a floating-point matrix of clients by columns, got {dtype} {shape}")
    rows, width = len(values), values.shape[1] if isinstance(values, Tensor) else values.layout.width
    if not rows:
        raise UpdateError("there are no updates to elect from")
    if not width:
        raise UpdateError(f"the {rows} updates have no columns to compare")
    if width != layout.width:
        raise UpdateError(f"rows have {width} columns, the layout has {layout.width}")
    if examples.shape != (rows,) or len(clients) != rows:
        counts = f"{examples.numel()} and {len(clients)}"
        raise UpdateError(f"{rows} updates need as many example counts and client ids, got {counts}")
    if len(set(clients)) != rows:
        twice = next(client for client in clients if clients.count(client) > 1)
        raise UpdateError(f"client {twice!r} sent more than one of the {rows} updates")


def number_clients(count: int) -> list[str]:
    """Return ids for unnamed clients that sort in the order of their numbers: 00, 01 and so on."""
    return [str(number).zfill(len(str(count - 1))) for number in range(count)]


def read_state(state: Any, model: Mapping[str, Tensor], owner: str) -> dict[str, Tensor]:
    """Return the tensors of a client's model; their names and shapes must be those of the global model."""
    check_mapping(state, f"the state of {owner}")
    tensors = {name: convert_to_tensor(tensor, f"{name!r} of {owner}") for name, tensor in state.items()}
    Layout.from_tensors(model).check(tensors, owner)
    return tensors


def stack_layers(layers: Any) -> tuple[Tensor, Layout]:
    """Return the (n, d) matrix of one stacked tensor per layer; a single two-dimensional layer is used in place."""
    check_mapping(layers, "layers")
    if not layers:
        raise UpdateError("updates need at least one layer")
    tensors = {name: convert_to_tensor(layer, f"layer {name!r}") for name, layer in layers.items()}
    for name, tensor in tensors.items():
        if not tensor.ndim:
            raise UpdateError(f"layer {name!r} is a single number, with no entry for each update")
    first, count = next((name, len(tensor)) for name, tensor in tensors.items())
    for name, tensor in tensors.items():
        if len(tensor) != count:
            raise UpdateError(f"layer {name!r} has {len(tensor)} updates, layer {first!r} has {count}")
    layout = Layout(tuple(tensors), tuple(tuple(tensor.shape[1:]) for tensor in tensors.values()))
    flat = [tensor.reshape(count, prod(tensor.shape[1:])) for tensor in tensors.values()]
    return flat[0] if len(flat) == 1 else torch.cat(flat, 1), layout


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of models, with what belongs to them.

    Attributes:
        values: (n, d) local minus global parameters.
        layout: the columns of a row.
        buffers: (n) the buffers of the clients' models.
    """

    values: Tensor
    layout: Layout
    buffers: list[Buffers]


def subtract_states(base: Any, states: Any, clients: Sequence[str] | None, buffers: Collection[str]) -> Rows:
    """Return the differences of models' states from the global model's."""
    check_mapping(base, "the global model")
    if isinstance(states, Mapping | Tensor | np.ndarray | nn.Module):
        raise UpdateError(f"states must be a list with one state per client, got {type(states).__name__}")
    model = {name: convert_to_tensor(tensor, f"{name!r} of the global model") for name, tensor in base.items()}
    kept = select_parameters(model, buffers)
    layout = Layout.from_tensors(kept)
    origin = layout.to_row(kept)
    if not is_finite(origin):
        raise UpdateError("the global model holds NaN or infinite numbers")
    received = list(states)
    names = number_clients(len(received)) if clients is None else list(clients)
    if len(names) != len(received):
        raise UpdateError(f"{len(received)} updates need as many client ids, got {len(names)}")
    read = [read_state(state, model, f"client {name!r}") for state, name in zip(received, names, strict=True)]
    values = layout.subtract(origin, ({name: state[name] for name in kept} for state in read), len(read))
    rest = [{name: state[name].to(own.dtype) for name, own in model.items() if name not in kept} for state in read]
    return Rows(values, layout, rest)

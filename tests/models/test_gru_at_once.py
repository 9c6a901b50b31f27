"""The recurrence of several models at once equals that of each."""

import pytest
import torch
from torch.func import vmap

from snowball.models.gru import Recurrence
from snowball.rng import stream


@pytest.mark.parametrize("shared", ["nothing", "texts", "weights"])
def test_several_models_at_once_are_each_alone(shared: str) -> None:
    rng = stream(6)
    gates = torch.randn(3, 5, 4, 12, generator=rng, dtype=torch.float64, requires_grad=True)  # of three models
    weights = torch.randn(3, 4, 12, generator=rng, dtype=torch.float64, requires_grad=True)
    given, weight = gates[0] if shared == "texts" else gates, weights[0] if shared == "weights" else weights
    dims = (None if shared == "texts" else 0, None if shared == "weights" else 0)
    together = vmap(lambda *inputs: Recurrence.apply(*inputs)[0], dims)(given, weight)
    alone = torch.stack(
        [
            Recurrence.apply(given if dims[0] is None else given[model], weight if dims[1] is None else weight[model])[
                0
            ]
            for model in range(3)
        ]
    )
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-14)
    ways = torch.randn(alone.shape, generator=rng, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((together * ways).sum(), [gates, weights]),
        torch.autograd.grad((alone * ways).sum(), [gates, weights]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)

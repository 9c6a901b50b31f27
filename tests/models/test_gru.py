"""Our recurrence equals torch's own."""

import pytest
import torch
from torch import Tensor, nn

from snowball.models import TextGRU
from snowball.models.gru import Recurrence, compute_last_states, join_directions
from snowball.rng import stream


def made(channels: int, width: int) -> nn.GRU:
    gru = nn.GRU(width, channels, bias=False, batch_first=True, bidirectional=True).double()
    for weight in gru.parameters():
        nn.init.normal_(weight, std=0.5, generator=stream(0, "weights"))
    return gru


def torchs(gru: nn.GRU, inputs: Tensor) -> Tensor:
    _, ends = gru(inputs)
    return torch.cat([ends[0], ends[1]], 1)


@pytest.mark.parametrize(("rows", "tokens", "channels", "width"), [(1, 1, 1, 1), (3, 25, 4, 7), (10, 6, 16, 30)])
def test_states_and_gradients_are_torch_s(rows: int, tokens: int, channels: int, width: int) -> None:
    gru, rng = made(channels, width), stream(1)
    inputs = torch.randn(rows, tokens, width, generator=rng, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(rows, 2 * channels, generator=rng, dtype=torch.float64)
    expected, ours = torchs(gru, inputs), compute_last_states(gru, inputs)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-13)
    wanted = [inputs, *gru.parameters()]
    for one, other in zip(
        torch.autograd.grad((ours * weights).sum(), wanted),
        torch.autograd.grad((expected * weights).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_derivative_is_the_one_of_finite_differences() -> None:
    rng = stream(2)
    gates = torch.randn(3, 2, 6, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 6, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Recurrence.apply, (gates, weight))


def test_directions_are_joined_without_touching_each_other() -> None:
    onward, backward = torch.arange(1.0, 13).view(6, 2), -torch.arange(1.0, 13).view(6, 2)
    weight = join_directions(onward, backward)  # (4, 12)
    assert weight[:, :4].tolist() == [[1, 3, 0, 0], [2, 4, 0, 0], [0, 0, -1, -3], [0, 0, -2, -4]]
    assert weight[:, 8:].tolist() == [[9, 11, 0, 0], [10, 12, 0, 0], [0, 0, -9, -11], [0, 0, -10, -12]]


def test_what_goes_in_is_left_as_it_is() -> None:
    gates = torch.randn(3, 2, 6, generator=stream(3))
    before = gates.clone()
    Recurrence.apply(gates, torch.randn(2, 6, generator=stream(4)))
    assert torch.equal(gates, before)


def test_the_order_of_the_words_matters_and_the_order_of_the_texts_does_not() -> None:
    model = TextGRU((4, 8), (5, 3), 2)
    texts = torch.randn(6, 5, 3, generator=stream(5))
    torch.testing.assert_close(model(texts.flip(0)), model(texts).flip(0))
    assert not torch.allclose(model(texts.flip(1)), model(texts))

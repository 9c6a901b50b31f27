"""Our layer equals torch's own."""

import pytest
import torch
from torch import Tensor, nn

from snowball.models import TextGRU
from snowball.models.gru import LastStates
from snowball.rng import stream


def make_layer(channels: int, width: int) -> nn.GRU:
    gru = nn.GRU(width, channels, bias=False, batch_first=True, bidirectional=True).double()
    for weight in gru.parameters():
        nn.init.normal_(weight, std=0.5, generator=stream(0, "weights"))
    return gru


def make_texts(rows: int, tokens: int, width: int) -> Tensor:
    """Make texts of which the later ones end in padding."""
    texts = torch.randn(rows, tokens, width, generator=stream(1), dtype=torch.float64)
    for row, text in enumerate(texts):
        text[tokens - row :] = 0
    return texts.requires_grad_()


def run_layer(gru: nn.GRU, texts: Tensor) -> Tensor:
    states: Tensor = LastStates.apply(texts, *gru.parameters())  # type: ignore[no-untyped-call]
    return states


@pytest.mark.parametrize(("rows", "tokens", "channels", "width"), [(1, 1, 1, 1), (3, 25, 4, 7), (10, 6, 16, 30)])
def test_states_and_gradients_are_torch_s(rows: int, tokens: int, channels: int, width: int) -> None:
    gru, texts = make_layer(channels, width), make_texts(rows, tokens, width)
    weights = torch.randn(rows, 2 * channels, generator=stream(2), dtype=torch.float64)
    expected, ours = gru(texts)[1].transpose(0, 1).flatten(1), run_layer(gru, texts)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-13)
    wanted = [texts, *gru.parameters()]
    for one, other in zip(
        torch.autograd.grad((ours * weights).sum(), wanted),
        torch.autograd.grad((expected * weights).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_derivative_is_the_one_of_finite_differences() -> None:
    gru, texts = make_layer(2, 3), make_texts(2, 3, 3)
    assert torch.autograd.gradcheck(LastStates.apply, (texts, *gru.parameters()))


def test_a_derivative_belongs_to_its_own_texts_and_can_be_asked_for_again() -> None:
    gru, texts = make_layer(2, 3), make_texts(2, 3, 3)
    first, second = run_layer(gru, texts).sum(), run_layer(gru, 2 * texts).sum()
    one, again, other = (
        torch.autograd.grad(states, list(gru.parameters()), retain_graph=True) for states in (first, first, second)
    )
    assert all(map(torch.equal, one, again))
    assert not any(map(torch.equal, one, other))


def test_a_derivative_of_the_derivative_is_refused() -> None:
    gru, texts = make_layer(2, 3), make_texts(2, 3, 3)
    (gradient,) = torch.autograd.grad((run_layer(gru, texts) ** 2).sum(), texts, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_order_of_the_words_matters_and_the_order_of_the_texts_does_not() -> None:
    model = TextGRU((4, 8), (5, 3), 2)
    texts = torch.randn(6, 5, 3, generator=stream(5))
    before = texts.clone()
    torch.testing.assert_close(model(texts.flip(0)), model(texts).flip(0))
    assert not torch.allclose(model(texts.flip(1)), model(texts))
    assert torch.equal(texts, before)

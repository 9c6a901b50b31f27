"""Hand-written gradients of several models at once, compared with torch's of each."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from snowball.models import CNN, TextGRU, stacked
from snowball.models.stacked import StackedGradients, make_stacked_gradients
from snowball.rng import stream


class TorchGRU(TextGRU):
    """The same network, run and differentiated by torch."""

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.fc2(relu(self.fc1(self.gru(inputs)[1].transpose(0, 1).flatten(1))))
        return scores


Batch = tuple[list[Tensor], Tensor, Tensor]


def make_batch(models: int, rows: int, tokens: int, width: int, channels: int, dtype: torch.dtype) -> Batch:
    """Make weights of several models, and texts and labels for each; the later texts end in padding."""
    rng, shapes = stream(7), [parameter.shape for parameter in make_model(width, channels).parameters()]
    weights = [torch.randn(models, *shape, generator=rng) * 0.4 for shape in shapes]
    texts = torch.randn(models, rows, tokens, width, generator=rng)
    for row in range(rows):
        texts[:, row, tokens - row :] = 0
    return [weight.to(dtype) for weight in weights], texts.to(dtype), torch.randint(2, (models, rows), generator=rng)


def make_model(width: int, channels: int) -> nn.Module:
    return TorchGRU((channels, 16 * channels), (25, width), 2)


def compute_stacked(gradients: StackedGradients, batch: Batch, models: slice = slice(None)) -> list[Tensor]:
    """Compute the gradients of some models, in memory that held something else before."""
    weights, texts, labels = batch
    chosen = [weight[models].clone() for weight in weights]
    into = [torch.full_like(weight, 9.0) for weight in chosen]
    gradients(chosen, texts[models].clone(), labels[models].clone(), into)
    return into


def make_gradients() -> StackedGradients:
    gradients = make_stacked_gradients(TextGRU((4, 64), (25, 3), 2))
    assert gradients
    return gradients


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("models", "rows", "tokens"), [(1, 1, 1), (1, 10, 25), (3, 4, 25), (5, 10, 3)])
def test_gradients_are_torch_s(dtype: torch.dtype, tolerance: float, models: int, rows: int, tokens: int) -> None:
    batch = make_batch(models, rows, tokens, 6, 4, dtype)
    ours = compute_stacked(make_gradients(), batch)
    for number in range(models):
        model = make_model(6, 4).to(dtype)
        for parameter, weight in zip(model.parameters(), batch[0], strict=True):
            parameter.data.copy_(weight[number])
        cross_entropy(model(batch[1][number]), batch[2][number]).backward()
        for parameter, gradient in zip(model.parameters(), ours, strict=True):
            torch.testing.assert_close(gradient[number], parameter.grad, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rows", [10, 9, 7, 3, 1])
@pytest.mark.parametrize(("width", "channels"), [(50, 16), (300, 16), (25, 16), (50, 4), (25, 4)])
def test_a_model_has_the_same_gradients_alone_and_beside_others_to_the_last_bit(
    rows: int, width: int, channels: int
) -> None:
    gradients, batch = make_gradients(), make_batch(5, rows, 25, width, channels, torch.float32)
    together = compute_stacked(gradients, batch)
    for models in (slice(1, 2), slice(2, 5)):
        for one, other in zip(compute_stacked(gradients, batch, models), together, strict=True):
            assert torch.equal(one, other[models])


def test_nothing_remains_of_the_batch_before() -> None:
    gradients, batch = make_gradients(), make_batch(3, 4, 5, 6, 4, torch.float32)
    expected = compute_stacked(gradients, batch)
    compute_stacked(gradients, ([-weight for weight in batch[0]], batch[1].flip(0), batch[2]))
    compute_stacked(gradients, make_batch(3, 2, 5, 6, 4, torch.float32))
    assert all(map(torch.equal, compute_stacked(gradients, batch), expected))


def test_only_the_very_classes_of_the_table_have_gradients_of_their_own() -> None:
    assert make_stacked_gradients(CNN((2, 2, 2), (1, 28, 28), 10)) is None
    assert make_stacked_gradients(make_model(6, 4)) is None  # a subclass may compute something else
    assert list(stacked.STACKED_GRADIENTS) == [TextGRU]

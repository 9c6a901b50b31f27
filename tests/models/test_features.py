"""The features of samples in any model: what enters its last layer."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from snowball.errors import SettingError
from snowball.layout import Layout, select_parameters
from snowball.models import MODELS, build_model
from snowball.models.features import compute_features
from snowball.rng import stream

SHAPES = {("channels", "height", "width"): (1, 28, 28), ("tokens", "width"): (7, 12)}


def read_features(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    return compute_features(model, Layout.from_tensors(select_parameters(model)), inputs)


@pytest.mark.parametrize("name", MODELS)
def test_the_last_layer_makes_the_scores_from_the_features(name: str) -> None:
    shape = SHAPES[MODELS[name].inputs]  # type: ignore[index]
    model = build_model(name, shape, 5, stream(0)).eval()
    inputs = torch.randn(3, *shape, generator=stream(1))
    features, scores = read_features(model, inputs)
    weights = dict(model.named_parameters())
    last = Layout.from_tensors(weights).weights[-1]
    assert features.shape == (3, weights[last].shape[1])
    assert torch.equal(scores, model(inputs))
    bias = weights.get(last.replace("weight", "bias"))  # residual networks have one
    torch.testing.assert_close(linear(features, weights[last], bias), scores)


def test_a_layer_with_a_bias_and_no_trace_of_the_reading() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    inputs = torch.randn(5, 4, generator=stream(0))
    features, _ = read_features(model, inputs)
    assert torch.equal(features, torch.tanh(model[0](inputs)))
    assert not model[2]._forward_pre_hooks


class Twice(nn.Module):
    """A network that uses its last layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.fc(inputs))
        return scores


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 1, 1)), "and 2 is not one"),
        (nn.Bilinear(2, 2, 2), "and the model is not one"),
        (Twice(), "once per batch, which fc does not do"),
        (nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 2)), "once per batch, which 1 does not do"),
    ],
)
def test_models_without_a_last_dense_layer_are_refused(model: nn.Module, fault: str) -> None:
    with pytest.raises(SettingError, match=fault):
        read_features(model, torch.zeros(5, 4))

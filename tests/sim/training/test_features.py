from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from snowball.defenses import FLARE
from snowball.errors import SettingError
from snowball.models import MODELS, build_model
from snowball.rng import stream
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, rehearse_round, select_inspected_samples, simulate
from snowball.sim.training.evaluation import FederatedModel
from snowball.sim.training.features import compute_features

MakeExperiment = Callable[..., Experiment]

SHAPES = {"gru": (25, 8), "gru-quarter": (25, 8), "cifar-cnn": (3, 32, 32), "cifar-cnn-quarter": (3, 32, 32)}


@pytest.mark.parametrize("name", MODELS.own_entries)
def test_the_output_layer_of_every_model_turns_features_into_scores(name: str) -> None:
    shape = SHAPES.get(name, (1, 28, 28))
    model = build_model(name, shape, 10, stream(0, "model")).eval()
    inputs = torch.randn(3, *shape, generator=stream(0, "inputs"))
    features = compute_features(model, inputs)
    *_, last = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    assert features.shape == (3, last.in_features)
    with torch.no_grad():
        torch.testing.assert_close(last(features), model(inputs))


class Crossed(nn.Module):
    """A model that defines its layers in another order than it runs them, and returns one feature per token."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 1)
        self.first = nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.out(self.first(inputs)).squeeze(2)
        return scores


def test_the_layer_that_runs_last_counts_and_its_inputs_are_flattened() -> None:
    model, inputs = Crossed(), torch.randn(4, 2, 5, generator=stream(0, "inputs"))
    with torch.no_grad():
        expected = model.first(inputs).flatten(1)
    assert torch.equal(compute_features(model, inputs), expected)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_model_without_a_linear_layer_is_refused_and_keeps_no_hooks() -> None:
    with pytest.raises(SettingError, match="Sequential runs no linear layer"):
        compute_features(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), torch.zeros(2, 1, 3, 3))


def test_features_of_a_federations_model_are_of_raw_samples_in_batches(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny())
    model, row = FederatedModel(federation), build_first_state(federation).base
    inputs = federation.dataset.test.inputs[:205]
    features = model.compute_features(row, inputs)
    output = federation.layout.split(row)[federation.layout.weights[-1]]
    torch.testing.assert_close(features @ output.T, model(row, inputs))
    assert not torch.equal(model.compute_features(row / 2, inputs), features)


def test_a_run_inspects_models_on_samples_of_the_server(tiny: MakeExperiment) -> None:
    federation = Federation.build(tiny("defense.name=flare", "defense.inspected_examples=5"))
    samples = select_inspected_samples(federation, FLARE(inspected_examples=5))
    assert samples is not None
    assert len(samples) == 5
    once, again = (list(simulate(federation)) for _ in range(2))
    assert [record["facts"] for record in once] == [record["facts"] for record in again]
    assert all(set(record["facts"]) == {"votes", "weights"} for record in once)


def test_more_samples_than_there_are_are_refused_before_the_run(tiny: MakeExperiment) -> None:
    with pytest.raises(SettingError, match=r"defense\.inspected_examples = 100000 is more than"):
        rehearse_round(Federation.build(tiny("defense.name=flare", "defense.inspected_examples=100000")))

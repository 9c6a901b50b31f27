"""SDBA: which recurrent weights may change, and that only they do."""

import pytest
import torch
from torch import nn

from snowball.attacks import SDBA
from snowball.errors import SettingError
from snowball.layout import Layout, select_parameters
from snowball.models import build_model
from snowball.rng import stream
from snowball.sim.training.client import LocalTraining
from snowball.testing import ToySession
from snowball.testing.federations import ToyFederation, make_toy_federation
from snowball.testing.toys import RECURRENT_LAYOUT

LAYOUT = Layout(
    ("rnn.weight_ih_l0", "rnn.weight_hh_l0_reverse", "rnn.bias_ih_l0", "fc.weight"), ((5,), (4,), (2,), (2,))
)
GRADIENT = torch.tensor([-0.5, 0.1, 0.3, -0.2, 0.4, 1.0, -2.0, 3.0, -4.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.2, 1.0), [1, 5, 6, 7, 8]),  # one of five, and all of four; biases and dense layers never
        ((0.6, 0.5), [1, 2, 3, 5, 6]),
        ((0.0, 0.3), [5]),  # int(1.2) of four
        ((1.0, 0.0), [0, 1, 2, 3, 4]),
    ],
)
def test_the_smallest_gradients_are_chosen_layer_by_layer(shares: tuple[float, float], expected: list[int]) -> None:
    allowed = SDBA(input_share=shares[0], recurrent_share=shares[1]).select_weights(GRADIENT, LAYOUT)
    assert allowed.nonzero().flatten().tolist() == expected


def test_of_equal_gradients_the_first_are_chosen() -> None:
    allowed = SDBA(input_share=0.4, recurrent_share=0.0).select_weights(torch.zeros(13), LAYOUT)
    assert allowed.nonzero().flatten().tolist() == [0, 1]


def test_nothing_but_the_chosen_weights_moves_and_not_beyond_the_ball() -> None:
    session = ToySession(RECURRENT_LAYOUT)
    chosen = SDBA().select_weights(session.compute_gradient(clean=True), session.layout)
    assert chosen.sum() == int(0.2 * 12) + 12
    moved = SDBA(radius=1e6).train(session) - session.start
    assert torch.equal(moved != 0, chosen)
    assert (SDBA(radius=0.25).train(session) - session.start).norm().item() == pytest.approx(0.25, rel=1e-4)


class TextFederation(ToyFederation):
    """A toy federation with a quarter of the paper's network for texts."""

    def build_model(self) -> nn.Module:
        return build_model("gru-quarter", self.dataset.input_shape, 2, stream(0))


def test_the_papers_network_is_poisoned_in_both_directions_of_its_gru() -> None:
    toy = make_toy_federation(SDBA())
    federation = TextFederation(
        experiment=toy.experiment, dataset=toy.dataset, parts=toy.parts, attack=SDBA(), attack_setup=toy.attack_setup
    )
    training = LocalTraining(federation)
    base = federation.layout.flatten(select_parameters(federation.build_model()))
    moved = federation.layout.split(training(base, 0, 1, None, {}).row != 0)
    counts = {name: int(tensor.sum()) for name, tensor in moved.items()}
    inputs, recurrent = 12 * 8, 12 * 4  # three gates of four channels; words have eight numbers
    assert {name: count for name, count in counts.items() if "hh" in name} == dict.fromkeys(
        ("gru.weight_hh_l0", "gru.weight_hh_l0_reverse"), recurrent
    )
    for name in ("gru.weight_ih_l0", "gru.weight_ih_l0_reverse"):
        assert 0 < counts[name] <= int(0.2 * inputs)  # a weight of a word that no text has may stay
    assert not moved["fc1.weight"].any()
    assert not moved["fc2.weight"].any()


def test_only_recurrent_models_can_be_attacked() -> None:
    fault = (
        r"sdba poisons a recurrent layer \(GRU, LSTM or RNN\), and the model's layers are first.weight, middle.bias,"
    )
    with pytest.raises(SettingError, match=fault):
        SDBA().train(ToySession())

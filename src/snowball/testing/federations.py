"""A toy federation in the simulator, for testing the training of attackers."""

from collections import OrderedDict
from math import prod

import torch
from torch import Tensor, nn

from snowball.attacks import Attack, set_up_attack
from snowball.data import TextDataset
from snowball.models import draw_from
from snowball.rng import stream
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.testing.toys import make_toy_data

CLIENT_COUNT, SAMPLES_PER_CLIENT = 2, 40


class ToyFederation(Federation):
    """A federation of attackers whose network has dropout."""

    def is_attacking(self, client: int, round: int) -> bool:
        """Return True: every client attacks in every round."""
        return True

    def build_model(self) -> nn.Module:
        """Build a dense network with dropout that has the layers of a `make_toy_round`; for texts also a GRU."""
        shape = self.dataset.input_shape
        texts = isinstance(self.dataset, TextDataset)
        with draw_from(stream(self.experiment.seed, "model")):
            layers = {
                "flatten": nn.Identity() if texts else nn.Flatten(),
                "first": nn.Linear(shape[-1] if texts else prod(shape), 16, bias=False),
                **({"recurrent": LastState(16)} if texts else {}),
                "dropout": nn.Dropout(),
                "middle": nn.Linear(16, 16),
                "relu": nn.ReLU(),
                "last": nn.Linear(16, self.dataset.classes, bias=False),
            }
        return nn.Sequential(OrderedDict(layers))


class LastState(nn.Module):
    """The last state of a GRU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, bias=False, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the state after the last word (n, width) of words (n, tokens, width)."""
        states: Tensor = self.gru(inputs)[0]
        return states[:, -1]


def make_toy_federation(attack: Attack) -> ToyFederation:
    """Make a federation in which all clients attack, on toy data that can carry the attack's trigger."""
    settings = {
        "rounds": 1,
        "cohort": CLIENT_COUNT,
        "data": {"name": "mnist-sample", "clients": CLIENT_COUNT},  # any known name; the samples are toy data
        "model": {"name": "cnn"},
        "defense": {"name": "fedavg"},
    }
    dataset = make_toy_data(attack)
    parts = torch.split(torch.arange(CLIENT_COUNT * SAMPLES_PER_CLIENT), SAMPLES_PER_CLIENT)
    return ToyFederation(
        experiment=Experiment.parse(settings),
        dataset=dataset,
        parts=parts,
        attack=attack,
        attack_setup=set_up_attack(attack, dataset),
    )

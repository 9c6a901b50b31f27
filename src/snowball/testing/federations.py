"""A made-up federation in the simulator, to train attackers in."""

from collections import OrderedDict
from math import prod

import torch
from torch import nn

from snowball.attacks import Attack, plot_of
from snowball.models import drawing_from
from snowball.rng import stream
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.testing.scenes import toy_data

CLIENTS, EXAMPLES = 2, 40
"""How many clients there are, and how many samples each of them holds."""


class ToyFederation(Federation):
    """A federation of attackers whose network has dropout."""

    def attacks(self, client: int, round: int) -> bool:
        """Everybody attacks, always."""
        return True

    def model(self) -> nn.Module:
        """Dense layers with dropout, among them those of a `toy_round`."""
        with drawing_from(stream(self.experiment.seed, "model")):
            layers = {
                "flatten": nn.Flatten(),
                "first": nn.Linear(prod(self.dataset.input_shape), 16, bias=False),
                "dropout": nn.Dropout(),
                "middle": nn.Linear(16, 16),
                "relu": nn.ReLU(),
                "last": nn.Linear(16, self.dataset.classes, bias=False),
            }
        return nn.Sequential(OrderedDict(layers))


def toy_federation(attack: Attack) -> ToyFederation:
    """A federation in which all clients attack, on made-up data that the attack's trigger can be put on."""
    settings = {
        "rounds": 1,
        "cohort": CLIENTS,
        "data": {"name": "mnist-sample", "clients": CLIENTS},  # a name that is known; the samples are others
        "model": {"name": "cnn"},
        "defense": {"name": "fedavg"},
    }
    dataset = toy_data(attack)
    parts = torch.split(torch.arange(CLIENTS * EXAMPLES), EXAMPLES)
    return ToyFederation(Experiment.parse(settings), dataset, parts, attack, plot_of(attack, dataset))

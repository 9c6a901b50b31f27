"""Defenses: callables that take a round's updates and elect those to average."""

from snowball.defenses.base import Context, Defense, State, Verdict
from snowball.defenses.fedavg import FedAvg
from snowball.defenses.ideal import Ideal
from snowball.defenses.snowball import Snowball, SnowballMinus, VaeSettings, VotingCenter, VotingRandom

DEFENSES: dict[str, type[Defense]] = {
    "fedavg": FedAvg,
    "ideal": Ideal,
    "voting-random": VotingRandom,
    "voting-center": VotingCenter,
    "snowball-minus": SnowballMinus,
    "snowball": Snowball,
}

__all__ = [
    "DEFENSES",
    "Context",
    "Defense",
    "FedAvg",
    "Ideal",
    "Snowball",
    "SnowballMinus",
    "State",
    "VaeSettings",
    "Verdict",
    "VotingCenter",
    "VotingRandom",
]

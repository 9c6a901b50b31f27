"""Defenses: callables that take a round's updates and elect those to average."""

from snowball.defenses.base import (
    REJECTED,
    Context,
    Defense,
    Lesson,
    LocalDefense,
    Model,
    PredictionDefense,
    State,
    TrustingDefense,
    Verdict,
)
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
    "REJECTED",
    "Context",
    "Defense",
    "FedAvg",
    "Ideal",
    "Lesson",
    "LocalDefense",
    "Model",
    "PredictionDefense",
    "Snowball",
    "SnowballMinus",
    "State",
    "TrustingDefense",
    "VaeSettings",
    "Verdict",
    "VotingCenter",
    "VotingRandom",
]

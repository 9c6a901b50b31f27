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
    check_calls,
)
from snowball.defenses.bulyan import Bulyan
from snowball.defenses.crfl import Crfl
from snowball.defenses.deepsight import DeepSight
from snowball.defenses.dnc import Dnc
from snowball.defenses.fedavg import FedAvg
from snowball.defenses.flame import Flame
from snowball.defenses.fldetector import FlDetector
from snowball.defenses.flip import Flip, InversionSettings
from snowball.defenses.fltrust import FlTrust
from snowball.defenses.foolsgold import FoolsGold
from snowball.defenses.ideal import Ideal
from snowball.defenses.intersection import Intersection
from snowball.defenses.krum import Krum
from snowball.defenses.median import Median
from snowball.defenses.multi_krum import MultiKrum
from snowball.defenses.norm_clip import NormClip
from snowball.defenses.rfa import Rfa
from snowball.defenses.rlr import Rlr
from snowball.defenses.snowball import Snowball, SnowballMinus, VaeSettings, VotingCenter, VotingRandom
from snowball.defenses.snowball_plus import SnowballPlus
from snowball.defenses.trimmed_mean import TrimmedMean
from snowball.defenses.weak_dp import WeakDp
from snowball.registry import Registry, require_dataclass

BUILT_IN: dict[str, type[Defense]] = {
    "fedavg": FedAvg,
    "ideal": Ideal,
    "krum": Krum,
    "crfl": Crfl,
    "rlr": Rlr,
    "fldetector": FlDetector,
    "dnc": Dnc,
    "flame": Flame,
    "flip": Flip,
    "voting-random": VotingRandom,
    "voting-center": VotingCenter,
    "snowball-minus": SnowballMinus,
    "snowball": Snowball,
    "snowball-plus": SnowballPlus,
    "multi-krum": MultiKrum,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "bulyan": Bulyan,
    "rfa": Rfa,
    "fltrust": FlTrust,
    "foolsgold": FoolsGold,
    "norm-clip": NormClip,
    "weak-dp": WeakDp,
    "deepsight": DeepSight,
    "intersection": Intersection,
}

for defense in BUILT_IN.values():
    if "__call__" in vars(defense):
        check_calls(defense)

DEFENSES: Registry[type[Defense]] = Registry(
    "snowball.defenses", BUILT_IN, required_attributes=("__call__",), adapt=require_dataclass
)

__all__ = [
    "DEFENSES",
    "REJECTED",
    "Bulyan",
    "Context",
    "Crfl",
    "DeepSight",
    "Defense",
    "Dnc",
    "FedAvg",
    "FlDetector",
    "FlTrust",
    "Flame",
    "Flip",
    "FoolsGold",
    "Ideal",
    "Intersection",
    "InversionSettings",
    "Krum",
    "Lesson",
    "LocalDefense",
    "Median",
    "Model",
    "MultiKrum",
    "NormClip",
    "PredictionDefense",
    "Rfa",
    "Rlr",
    "Snowball",
    "SnowballMinus",
    "SnowballPlus",
    "State",
    "TrimmedMean",
    "TrustingDefense",
    "VaeSettings",
    "Verdict",
    "VotingCenter",
    "VotingRandom",
    "WeakDp",
]

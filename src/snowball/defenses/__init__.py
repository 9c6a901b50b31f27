"""Defenses: callables that take the updates of a round and elect those to average."""

from snowball.defenses.base import (
    REJECTED,
    ClientTask,
    Context,
    Defense,
    LocalDefense,
    Model,
    PredictionDefense,
    State,
    TrustingDefense,
    Verdict,
    check_calls,
)
from snowball.defenses.bulyan import Bulyan
from snowball.defenses.crfl import CRFL
from snowball.defenses.deepsight import DeepSight
from snowball.defenses.dnc import DnC
from snowball.defenses.fedavg import FedAvg
from snowball.defenses.flame import FLAME
from snowball.defenses.fldetector import FLDetector
from snowball.defenses.flip import FLIP, InversionSettings
from snowball.defenses.fltrust import FLTrust
from snowball.defenses.foolsgold import FoolsGold
from snowball.defenses.ideal import Ideal
from snowball.defenses.intersection import Intersection
from snowball.defenses.krum import Krum
from snowball.defenses.median import Median
from snowball.defenses.multi_krum import MultiKrum
from snowball.defenses.norm_clip import NormClip
from snowball.defenses.rfa import RFA
from snowball.defenses.rlr import RLR
from snowball.defenses.snowball import Snowball, SnowballMinus, VAESettings, VotingCenter, VotingRandom
from snowball.defenses.snowball_plus import SnowballPlus
from snowball.defenses.trimmed_mean import TrimmedMean
from snowball.defenses.weak_dp import WeakDP
from snowball.registry import Registry, require_dataclass

BUILT_IN: dict[str, type[Defense]] = {
    "fedavg": FedAvg,
    "ideal": Ideal,
    "krum": Krum,
    "crfl": CRFL,
    "rlr": RLR,
    "fldetector": FLDetector,
    "dnc": DnC,
    "flame": FLAME,
    "flip": FLIP,
    "voting-random": VotingRandom,
    "voting-center": VotingCenter,
    "snowball-minus": SnowballMinus,
    "snowball": Snowball,
    "snowball-plus": SnowballPlus,
    "multi-krum": MultiKrum,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "bulyan": Bulyan,
    "rfa": RFA,
    "fltrust": FLTrust,
    "foolsgold": FoolsGold,
    "norm-clip": NormClip,
    "weak-dp": WeakDP,
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
    "CRFL",
    "DEFENSES",
    "FLAME",
    "FLIP",
    "REJECTED",
    "RFA",
    "RLR",
    "Bulyan",
    "ClientTask",
    "Context",
    "DeepSight",
    "Defense",
    "DnC",
    "FLDetector",
    "FLTrust",
    "FedAvg",
    "FoolsGold",
    "Ideal",
    "Intersection",
    "InversionSettings",
    "Krum",
    "LocalDefense",
    "Median",
    "Model",
    "MultiKrum",
    "NormClip",
    "PredictionDefense",
    "Snowball",
    "SnowballMinus",
    "SnowballPlus",
    "State",
    "TrimmedMean",
    "TrustingDefense",
    "VAESettings",
    "Verdict",
    "VotingCenter",
    "VotingRandom",
    "WeakDP",
]

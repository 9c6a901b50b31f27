"""Defenses: callables that take the updates of a round and elect those to average."""

from snowball.defenses.alignins import AlignIns
from snowball.defenses.arc import ARC
from snowball.defenses.base import (
    REJECTED,
    ClientTask,
    Context,
    Defense,
    InspectingDefense,
    LocalDefense,
    Model,
    PredictionDefense,
    State,
    TrustingDefense,
    Verdict,
    check_calls,
)
from snowball.defenses.before import Before
from snowball.defenses.bucketing import Bucketing
from snowball.defenses.bulyan import Bulyan
from snowball.defenses.caf import CAF
from snowball.defenses.centered_clipping import CenteredClipping
from snowball.defenses.crfl import CRFL
from snowball.defenses.deepsight import DeepSight
from snowball.defenses.dnc import DnC
from snowball.defenses.fedavg import FedAvg
from snowball.defenses.fedsurrogate import FedSurrogate
from snowball.defenses.flame import FLAME
from snowball.defenses.flare import FLARE
from snowball.defenses.fldetector import FLDetector
from snowball.defenses.flip import FLIP, InversionSettings
from snowball.defenses.fltrust import FLTrust
from snowball.defenses.foolsgold import FoolsGold
from snowball.defenses.freqfed import FreqFed
from snowball.defenses.ideal import Ideal
from snowball.defenses.intersection import Intersection
from snowball.defenses.krum import Krum
from snowball.defenses.lfighter import LFighter
from snowball.defenses.median import Median
from snowball.defenses.mesas import MESAS
from snowball.defenses.mixing import Mixing
from snowball.defenses.multi_krum import MultiKrum
from snowball.defenses.multi_metrics import MultiMetrics
from snowball.defenses.nnm import NNM
from snowball.defenses.norm_clip import NormClip
from snowball.defenses.rfa import RFA
from snowball.defenses.rflbat import RFLBAT
from snowball.defenses.rlr import RLR
from snowball.defenses.roseagg import RoseAgg
from snowball.defenses.signguard import SignGuard
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
    "alignins": AlignIns,
    "multi-metrics": MultiMetrics,
    "signguard": SignGuard,
    "centered-clipping": CenteredClipping,
    "caf": CAF,
    "freqfed": FreqFed,
    "mesas": MESAS,
    "lfighter": LFighter,
    "rflbat": RFLBAT,
    "roseagg": RoseAgg,
    "fedsurrogate": FedSurrogate,
    "flare": FLARE,
    "intersection": Intersection,
}

MIXINGS: dict[str, type[Mixing]] = {"nnm": NNM, "bucketing": Bucketing, "arc": ARC}
"""What the setting `defense.before` chooses from."""

check_calls(Before)
for defense in BUILT_IN.values():
    if "__call__" in vars(defense):
        check_calls(defense)

DEFENSES: Registry[type[Defense]] = Registry(
    "snowball.defenses", BUILT_IN, required_attributes=("__call__",), adapt=require_dataclass
)

__all__ = [
    "ARC",
    "CAF",
    "CRFL",
    "DEFENSES",
    "FLAME",
    "FLARE",
    "FLIP",
    "MESAS",
    "MIXINGS",
    "NNM",
    "REJECTED",
    "RFA",
    "RFLBAT",
    "RLR",
    "AlignIns",
    "Before",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "ClientTask",
    "Context",
    "DeepSight",
    "Defense",
    "DnC",
    "FLDetector",
    "FLTrust",
    "FedAvg",
    "FedSurrogate",
    "FoolsGold",
    "FreqFed",
    "Ideal",
    "InspectingDefense",
    "Intersection",
    "InversionSettings",
    "Krum",
    "LFighter",
    "LocalDefense",
    "Median",
    "Mixing",
    "Model",
    "MultiKrum",
    "MultiMetrics",
    "NormClip",
    "PredictionDefense",
    "RoseAgg",
    "SignGuard",
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

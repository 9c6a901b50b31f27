"""Snowball: client updates elect each other, so that backdoors stay out of federated learning.

Every public name is imported when it is first used: `import snowball` loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snowball.api import RehearsalResult, RunResult, rehearse, report, run, simulate, sweep
    from snowball.data import OwnData
    from snowball.defenses import (
        ARC,
        CAF,
        CRFL,
        FLAME,
        FLARE,
        FLIP,
        MESAS,
        NNM,
        RFA,
        RFLBAT,
        RLR,
        AlignIns,
        Before,
        Bucketing,
        Bulyan,
        CenteredClipping,
        Context,
        DeepSight,
        DnC,
        FedAvg,
        FedSurrogate,
        FLDetector,
        FLTrust,
        FoolsGold,
        FreqFed,
        Ideal,
        Intersection,
        Krum,
        LFighter,
        Median,
        MultiKrum,
        MultiMetrics,
        NormClip,
        RoseAgg,
        SignGuard,
        Snowball,
        SnowballMinus,
        SnowballPlus,
        TrimmedMean,
        Verdict,
        VotingCenter,
        VotingRandom,
        WeakDP,
    )
    from snowball.guard import Guard, Reply
    from snowball.sim.presets import load_experiment
    from snowball.updates import Updates

    __version__: str

__all__ = [
    "ARC",
    "CAF",
    "CRFL",
    "FLAME",
    "FLARE",
    "FLIP",
    "MESAS",
    "NNM",
    "RFA",
    "RFLBAT",
    "RLR",
    "AlignIns",
    "Before",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "Context",
    "DeepSight",
    "DnC",
    "FLDetector",
    "FLTrust",
    "FedAvg",
    "FedSurrogate",
    "FoolsGold",
    "FreqFed",
    "Guard",
    "Ideal",
    "Intersection",
    "Krum",
    "LFighter",
    "Median",
    "MultiKrum",
    "MultiMetrics",
    "NormClip",
    "OwnData",
    "RehearsalResult",
    "Reply",
    "RoseAgg",
    "RunResult",
    "SignGuard",
    "Snowball",
    "SnowballMinus",
    "SnowballPlus",
    "TrimmedMean",
    "Updates",
    "Verdict",
    "VotingCenter",
    "VotingRandom",
    "WeakDP",
    "__version__",
    "load_experiment",
    "rehearse",
    "report",
    "run",
    "simulate",
    "sweep",
]

_MODULES = {
    "Guard": "snowball.guard",
    "OwnData": "snowball.data",
    "RehearsalResult": "snowball.api",
    "Reply": "snowball.guard",
    "RunResult": "snowball.api",
    "Updates": "snowball.updates",
    "load_experiment": "snowball.api",
    "rehearse": "snowball.api",
    "run": "snowball.api",
    "simulate": "snowball.api",
    "sweep": "snowball.api",
}
"""The modules of the public names that are not in `snowball.defenses`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("snowball-fl")
    elif name == "report":
        value = import_module("snowball.report")  # the package, which can be called
    else:
        value = getattr(import_module(_MODULES.get(name, "snowball.defenses")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

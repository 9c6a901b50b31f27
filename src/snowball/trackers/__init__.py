"""Trackers: where else the rounds of a run go, beside its own records.

A tracker's tool is imported when the tracker is made, so an installed one that nobody asks for costs nothing.
"""

from collections.abc import Iterable

from snowball.errors import SettingError
from snowball.registry import Registry, make_instance, suggest_or_list
from snowball.trackers.base import Tracker, identify_run, select_numbers
from snowball.trackers.csv import CSV
from snowball.trackers.mlflow import MLflow
from snowball.trackers.session import track_run
from snowball.trackers.tensorboard import TensorBoard
from snowball.trackers.wandb import WandB

TRACKERS: Registry[type[Tracker]] = Registry(
    "snowball.trackers",
    {"csv": CSV, "tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB},
    required_attributes=("start", "log", "finish"),
)

__all__ = ["TRACKERS", "Tracker", "build_trackers", "identify_run", "select_numbers", "track_run"]


def build_trackers(names: Iterable[str]) -> dict[str, Tracker]:
    """Make the trackers of these names, each once; a name may be `module:Class`."""
    return {name: build_tracker(name) for name in names}


def build_tracker(name: str) -> Tracker:
    """Make the tracker of this name."""
    if name not in TRACKERS:
        raise SettingError(f"{name!r} is not a tracker{suggest_or_list(name, TRACKERS)}")
    tracker: Tracker = make_instance(name, TRACKERS[name])
    return tracker

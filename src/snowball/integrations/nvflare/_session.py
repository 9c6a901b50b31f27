"""Connects NVFlare's results to a guard; the guarded aggregator and the guarded controller hold a session."""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from snowball.arrays import Arrays
from snowball.defenses import DEFENSES, Defense
from snowball.defenses.build import make_defense
from snowball.guard import Dropped, Guard, Judgement
from snowball.guard.alerts import check_listeners
from snowball.guard.arguments import refuse_bad_history, refuse_lone_key
from snowball.integrations._bookkeeping import resume_guard, save_state
from snowball.integrations.nvflare._metrics import average_metrics
from snowball.integrations.nvflare._results import read_results
from snowball.settings import require_known

logger = getLogger("snowball")

Mode = Literal["enforce", "monitor"]
LowTurnout = Literal["keep", "aggregate"]

GUARD_SETTINGS = (
    "mode",
    "min_elected",
    "max_examples",
    "max_share",
    "buffers",
    "seed",
    "min_answers",
    "low_turnout",
    "on_other_state",
    "patience",
)
"""Attributes of a component that are settings of its guard."""

GUARD_FILES = ("audit", "audit_key", "names", "decisions", "models")
"""Attributes of a component that are paths for its guard; empty for none."""


class GuardSession:
    """The guard of a component, which is made twice: where the job is written, to check the settings, and in its run.

    Only the server has the files and the listeners' ports, so they are opened in the run. A relative path is inside the
    run's folder.

    Attributes:
        component: the aggregator or controller; it has the guard's settings as attributes, as NVFlare wants.
        rounds: the total number of rounds, if it is known.
    """

    def __init__(self, component: Any, rounds: int | None = None) -> None:
        self.component, self.rounds = component, rounds
        self.folder: Path | None = None
        check_listeners(component.listeners)
        refuse_bad_history(component.models or None, component.keep_models)
        refuse_lone_key(component.audit or None, component.audit_key or None)
        self.guard = self._build_guard({})

    def open_files(self, folder: Path, rounds: int | None = None) -> None:
        """Open the files once, in the run's folder, which only the server knows; `rounds` are those to come."""
        if self.folder is not None:
            return
        found = {name: getattr(self.component, name) for name in GUARD_FILES}
        files: dict[str, Any] = {name: folder / path for name, path in found.items() if path}
        if "models" in files:
            files["keep_models"] = self.component.keep_models
        self.guard = self._build_guard({**files, "listeners": self.component.listeners})
        state = self.component.state
        resume_guard(self.guard, folder / state if state else None, logger)
        if rounds is not None and self.guard.rounds is None:
            self.guard.rounds = self.guard.round + rounds
        self.folder = folder

    def _build_guard(self, files: Mapping[str, Any]) -> Guard:
        settings = {name: getattr(self.component, name) for name in GUARD_SETTINGS}
        defense = build_defense(self.component.defense, self.component.settings)
        return Guard(defense, rounds=self.rounds, **settings, **files)

    def write_no_models(self) -> None:
        """Write no files of global models, because only their changes are known."""
        if self.guard.models.folder is not None:
            logger.warning("No global model is written to %s: NVFlare does not keep it", self.guard.models.folder)
            self.guard.models.folder = None

    def judge(
        self,
        base: Arrays,
        models: Iterable[FLModel],
        asked: Iterable[str] | None = None,
        failed: Iterable[Dropped] = (),
    ) -> Judgement:
        """Let the guard judge a round's results, and write the audit and the guard's state."""
        replies, unreadable = read_results(models, base)
        judgement = self.guard(base, replies, asked, [*failed, *unreadable])
        state = self.component.state
        path = self.folder / state if state and self.folder is not None else None
        save_state(self.guard, path, judgement.entry)
        return judgement


def build_defense(name: str, settings: Mapping[str, Any] | None) -> Defense:
    """Build a defense from its name in the table and settings of plain types."""
    return make_defense("settings", require_known("defense", name, DEFENSES), dict(settings or {}))


def build_result(
    judgement: Judgement, base: Arrays, kind: ParamsType, models: Sequence[FLModel], current_round: int | None = None
) -> FLModel:
    """Return a round's outcome as NVFlare's model, with the averaged clients' metrics."""
    return FLModel(
        params_type=kind,
        params=match_array_library(judgement.tensors, base),
        metrics=average_metrics(models, judgement.averaged),
        current_round=current_round,
        meta={"nr_aggregated": len(judgement.averaged), "current_round": current_round},
    )


def match_array_library(tensors: Mapping[str, Tensor], base: Arrays) -> dict[str, Any]:
    """Return tensors as NumPy arrays where the global model holds NumPy arrays."""
    return {name: tensor if isinstance(base[name], Tensor) else tensor.numpy() for name, tensor in tensors.items()}

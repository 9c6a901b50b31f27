"""Connects NVFlare's results to a guard; the guarded aggregator and the guarded controller hold a session."""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from snowball.defenses import DEFENSES, Defense
from snowball.defenses.build import make_defense
from snowball.guard import AuditLog, Dropped, Guard, Judgement
from snowball.guard.alerts import build_listeners, check_listeners
from snowball.integrations._bookkeeping import resume_guard, save_state
from snowball.integrations.nvflare._metrics import average_metrics
from snowball.integrations.nvflare._results import read_results
from snowball.settings import require_known
from snowball.updates import Arrays

logger = getLogger("snowball")

Mode = Literal["enforce", "monitor"]


class GuardSession:
    """A guard and its files.

    Attributes:
        audit: the file that gets one line per round; a relative path is inside the run's folder; empty for none.
        state: the file that the guard continues from and saves its state to; likewise.
        listeners: names and settings of the guard's listeners, which are built on the server only.
    """

    def __init__(self, guard: Guard, audit: str, state: str, listeners: Any) -> None:
        check_listeners(listeners)
        self.guard, self.audit, self.state, self.listeners = guard, audit, state, listeners
        self.folder: Path | None = None

    def open_files(self, folder: Path, rounds: int | None = None) -> None:
        """Open the files once, in the run's folder, which only the server knows; `rounds` are those to come."""
        if self.folder is not None:
            return
        if self.audit:
            self.guard.log = AuditLog(folder / self.audit)
        self.guard.alerts.listeners = build_listeners(self.listeners)
        resume_guard(self.guard, folder / self.state if self.state else None, logger)
        if rounds is not None and self.guard.rounds is None:
            self.guard.rounds = self.guard.round + rounds
        self.folder = folder

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
        state = self.folder / self.state if self.state and self.folder is not None else None
        save_state(self.guard, state, judgement.entry)
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

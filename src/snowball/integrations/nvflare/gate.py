"""Between NVFlare's results and the guard: what the guarded aggregator and the guarded controller have in common."""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from torch import Tensor

from snowball.defenses import DEFENSES, Defense
from snowball.defenses.build import defense_of
from snowball.guard import AuditLog, Dropped, Guard, Judgement
from snowball.integrations.nvflare.metrics import metrics_of
from snowball.integrations.nvflare.results import read
from snowball.records.audit import count_clients
from snowball.settings import require
from snowball.updates import Arrays

logger = getLogger("snowball")

Mode = Literal["enforce", "monitor"]


class Gate:
    """A guard, its files, and what NVFlare's results are to it.

    Attributes:
        audit: the file that gets a line a round; a relative path is inside the run's folder, an empty one none.
        state: the file that the guard goes on from and leaves its state in, likewise.
    """

    def __init__(self, guard: Guard, audit: str, state: str) -> None:
        self.guard, self.audit, self.state = guard, audit, state
        self.folder: Path | None = None

    def start(self, folder: Path, rounds: int | None = None) -> None:
        """Open the files, once: where the run's folder is, only the server knows. `rounds` are those to come."""
        if self.folder is not None:
            return
        if self.audit:
            self.guard.log = AuditLog(folder / self.audit)
        if self.state and self.guard.load(folder / self.state):
            logger.info("The guard goes on after round %d, from %s", self.guard.round, folder / self.state)
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
        """Let the guard judge a round's results, write it down, and keep the guard's state."""
        replies, unreadable = read(models, base)
        judgement = self.guard(base, replies, asked, [*failed, *unreadable])
        try:
            if self.state and self.folder is not None:
                self.guard.save(self.folder / self.state)
        except Exception as error:  # the federation is worth more than its books
            logger.warning("The guard's state after round %d is not saved: %s", self.guard.round, error)
        entry = judgement.entry
        logger.info("guard: round %d, %s: %s", entry["round"], entry["outcome"], count_clients(entry))
        return judgement


def elector(name: str, settings: Mapping[str, Any] | None) -> Defense:
    """A defense by its name in the table, with settings of plain types."""
    return defense_of("settings", require("defense", name, DEFENSES), dict(settings or {}))


def result_of(
    judgement: Judgement, base: Arrays, kind: ParamsType, models: Sequence[FLModel], current_round: int | None = None
) -> FLModel:
    """A round's outcome as NVFlare takes it, with the metrics of those in it."""
    return FLModel(
        params_type=kind,
        params=like(judgement.tensors, base),
        metrics=metrics_of(models, judgement.averaged),
        current_round=current_round,
        meta={"nr_aggregated": len(judgement.averaged), "current_round": current_round},
    )


def like(tensors: Mapping[str, Tensor], base: Arrays) -> dict[str, Any]:
    """Tensors as the global model's are: NumPy's arrays, or torch's."""
    return {name: tensor if isinstance(base[name], Tensor) else tensor.numpy() for name, tensor in tensors.items()}

"""The guarded aggregator, for NVFlare's recipes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants

from snowball.errors import UpdateError
from snowball.guard import Dropped, Guard
from snowball.integrations.nvflare.gate import Gate, Mode, elector, result_of
from snowball.integrations.nvflare.layout import LAYOUT, layout_of, zeros
from snowball.integrations.nvflare.results import client_of
from snowball.updates import Arrays

UNKNOWN: Arrays = {"unknown": torch.zeros(1)}
"""What stands for a global model that nobody knows."""

WHOLE = "it sent a whole model, and the global one is not known"
NO_LAYOUT = "the global model is not known, and no more than half of the clients sent the same tensors"


class GuardedAggregator(ModelAggregator):
    """An aggregator for NVFlare's recipes: the average of those that a guard elects.

    The global model is what NVFlare keeps in its context. Where it keeps none, results have to be differences, and
    their names, shapes and types are those of the last round, or in the first one of more than half of those who
    answer. Clients that fail do not get here, nor into the audit: `GuardedFedAvg` has them.

    Attributes:
        defense: who elects, by name.
        settings: the defense's settings.
        mode, min_elected, max_examples, rounds, buffers, seed: as the guard's.
        audit: the file that gets a line a round; a relative path is inside the run's folder on the server.
        state: the file that keeps the guard's state for the next run; likewise, and better an absolute path.
    """

    def __init__(
        self,
        defense: str = "snowball-plus",
        settings: dict[str, Any] | None = None,
        mode: Mode = "enforce",
        min_elected: int = 1,
        max_examples: float | None = None,
        rounds: int | None = None,
        audit: str = "",
        state: str = "",
        buffers: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.defense, self.settings, self.mode = defense, settings, mode
        self.min_elected, self.max_examples, self.rounds = min_elected, max_examples, rounds
        self.audit, self.state, self.buffers, self.seed = audit, state, buffers, seed
        guard = Guard(
            elector(defense, settings), mode, min_elected, max_examples, rounds=rounds, buffers=buffers, seed=seed
        )
        self.gate = Gate(guard, audit, state)
        self.layout: LAYOUT | None = None
        self.models: list[FLModel] = []

    def reset_stats(self) -> None:
        """Forget the round's results."""
        self.models = []

    def accept_model(self, model: FLModel) -> None:
        """Take a client's result; it is judged with the others."""
        self.models.append(model)

    def aggregate_model(self) -> FLModel:
        """The new global model, or, where the old one is not known, what changes in it."""
        self.gate.start(run_folder(self.fl_ctx))
        models, base = list(self.models), self._global()
        if base is None:
            return self._changes(models)
        return result_of(self.gate.judge(base, models), base, ParamsType.FULL, models)

    def _changes(self, models: Sequence[FLModel]) -> FLModel:
        """What changes in a global model that is not known: the guard takes the differences for moves from zero."""
        changes = [model for model in models if model.params_type == ParamsType.DIFF]
        failed = [Dropped(client_of(model), "error", WHOLE) for model in models if model not in changes]
        layout = self.layout or layout_of(changes)
        try:
            base = zeros(layout or ())
            judgement = self.gate.judge(base, changes, failed=failed)
        except UpdateError:  # there is nothing in common, or nothing that is trained
            failed += [Dropped(client_of(model), "names", NO_LAYOUT) for model in changes]
            self.gate.judge(UNKNOWN, [], failed=failed)
            return FLModel(ParamsType.DIFF, {})
        self.layout = self.layout if judgement.kept else layout
        return result_of(judgement, base, ParamsType.DIFF, changes)

    def _global(self) -> Arrays | None:
        """The global model that was sent out, as NVFlare keeps it."""
        learnable = self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) if self.fl_ctx else None
        weights: Arrays | None = learnable.get(ModelLearnableKey.WEIGHTS) if isinstance(learnable, Mapping) else None
        return weights or None


def run_folder(fl_ctx: FLContext | None) -> Path:
    """The folder of the run on the server; the working directory outside of a run."""
    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT) if fl_ctx else None
    return Path(workspace.get_run_dir(fl_ctx.get_job_id()) if fl_ctx and workspace else "")

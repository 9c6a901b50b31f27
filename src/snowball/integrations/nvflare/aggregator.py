"""The guarded aggregator, for NVFlare's recipes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants

from snowball.arrays import Arrays
from snowball.errors import SnowballError, UpdateError
from snowball.guard import Dropped
from snowball.guard.state import OnOtherState
from snowball.guard.turnout import MIN_ANSWERS
from snowball.integrations.nvflare._formats import ModelFormat, find_majority_format, make_zeros
from snowball.integrations.nvflare._results import get_client
from snowball.integrations.nvflare._session import GuardSession, LowTurnout, Mode, build_result

PLACEHOLDER_MODEL: Arrays = {"unknown": torch.zeros(1)}
"""Stands for a global model that the server does not know."""

WHOLE_MODEL_SENT = "it sent a whole model, and the global one is not known"
NO_MAJORITY = "the global model is not known, and no more than half of the clients sent the same tensors"


class GuardedAggregator(ModelAggregator):
    """An aggregator for NVFlare's recipes, which averages the results that a guard elects.

    NVFlare keeps the global model in its context. If it keeps none, results have to be differences, with the names,
    shapes and types of the last round, or in the first round those of more than half of the clients that answer.
    NVFlare does not tell an aggregator which clients failed, so the audit lacks them; that of `GuardedFedAvg` has them.

    Attributes:
        defense: the defense's name.
        settings: the defense's settings.
        mode, min_elected, max_examples, max_share, rounds, buffers, seed: as in `Guard`.
        min_answers, low_turnout, on_other_state: likewise.
        audit: the file that gets one line per round; a relative path is inside the run's folder on the server.
        state: the file that keeps the guard's state; likewise, so the next run needs an absolute path.
        names, decisions: files that an operator edits on the server; likewise.
        models, keep_models: the folder and the number of the last global models; likewise.
        listeners: names and settings, e.g. {"webhook": {"url": "$WEBHOOK"}}; they are built on the server.
        patience: as in `Guard`.
        audit_key: the file of the key that signs the audit, as in `Guard`; give an absolute path on the server.
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
        max_share: float | None = None,
        min_answers: float = MIN_ANSWERS,
        low_turnout: LowTurnout = "keep",
        names: str = "",
        decisions: str = "",
        models: str = "",
        keep_models: int = 0,
        on_other_state: OnOtherState = "refuse",
        listeners: dict[str, Any] | Sequence[Any] = (),
        patience: int = 3,
        audit_key: str = "",
    ) -> None:
        super().__init__()
        self.defense, self.settings, self.mode = defense, settings, mode
        self.min_elected, self.max_examples, self.rounds = min_elected, max_examples, rounds
        self.audit, self.state, self.buffers, self.seed = audit, state, buffers, seed
        self.max_share, self.min_answers, self.low_turnout = max_share, min_answers, low_turnout
        self.on_other_state, self.listeners, self.patience = on_other_state, listeners, patience
        self.names, self.decisions, self.models, self.keep_models = names, decisions, models, keep_models
        self.audit_key = audit_key
        self.guard_session = GuardSession(self, rounds)
        self.model_format: ModelFormat | None = None
        self.results: list[FLModel] = []

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the guard's files when the run starts; end the run with a sentence if they cannot be used."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            try:
                self.guard_session.open_files(find_run_folder(fl_ctx))
            except SnowballError as error:
                self.system_panic(f"the guard cannot start: {error}", fl_ctx)

    def reset_stats(self) -> None:
        """Forget the round's results."""
        self.results = []

    def accept_model(self, model: FLModel) -> None:
        """Store a client's result until all are judged."""
        self.results.append(model)

    def aggregate_model(self) -> FLModel:
        """Return the new global model, or its changes if the old one is not known."""
        self.guard_session.open_files(find_run_folder(self.fl_ctx))
        models, base = list(self.results), self._find_global_model()
        if base is None:
            return self._aggregate_changes(models)
        return build_result(self.guard_session.judge(base, models), base, ParamsType.FULL, models)

    def _aggregate_changes(self, models: Sequence[FLModel]) -> FLModel:
        """Return the changes of a global model that is not known, which the guard takes for a model of zeros."""
        self.guard_session.write_no_models()
        changes = [model for model in models if model.params_type == ParamsType.DIFF]
        failed = [Dropped(get_client(model), "error", WHOLE_MODEL_SENT) for model in models if model not in changes]
        found = self.model_format or find_majority_format(changes)
        try:
            base = make_zeros(found or ())
            judgement = self.guard_session.judge(base, changes, failed=failed)
        except UpdateError:  # no common format, or nothing that is trained
            failed += [Dropped(get_client(model), "names", NO_MAJORITY) for model in changes]
            self.guard_session.judge(PLACEHOLDER_MODEL, [], failed=failed)
            return FLModel(ParamsType.DIFF, {})
        self.model_format = self.model_format if judgement.kept else found
        return build_result(judgement, base, ParamsType.DIFF, changes)

    def _find_global_model(self) -> Arrays | None:
        """Return the global model that was sent out, if NVFlare keeps it."""
        learnable = self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL) if self.fl_ctx else None
        weights: Arrays | None = learnable.get(ModelLearnableKey.WEIGHTS) if isinstance(learnable, Mapping) else None
        return weights or None


def find_run_folder(fl_ctx: FLContext | None) -> Path:
    """Return the run's folder on the server, or the working directory outside a run."""
    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT) if fl_ctx else None
    return Path(workspace.get_run_dir(fl_ctx.get_job_id()) if fl_ctx and workspace else "")

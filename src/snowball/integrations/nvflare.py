"""NVFlare: a guard in front of its averaging. Needs nvflare 2.9 or later.

`GuardedAggregator` goes into a recipe, `FedAvgRecipe(..., aggregator=GuardedAggregator(...))`. `GuardedFedAvg` is a
controller of its own for the job API: it also goes on when sites fail or do not answer.

NVFlare rebuilds both on the server from their constructors' parameters and the attributes of the same names. So all
are named one by one and of plain types: the defense by its name in `snowball.defenses.DEFENSES`, its settings as a
dict. Clients cannot raise.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from snowball.errors import MissingExtra, UpdateError
from snowball.guard import Dropped, Guard, Judgement
from snowball.updates import Arrays

try:
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.app_common.abstract.model import ModelLearnableKey
    from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
    from nvflare.app_common.app_constant import AppConstants
    from nvflare.app_common.app_event_type import AppEventType
    from nvflare.app_common.workflows.base_fedavg import BaseFedAvg
except ImportError as error:
    raise MissingExtra(
        f"NVFlare's aggregators need nvflare 2.9 or later, {error}: pip install 'snowball-fl[nvflare]'"
    ) from error

from snowball.integrations.nvflare_gate import LAYOUT, Gate, client_of, defense_of, layout_of, like, metrics_of, zeros

Mode = Literal["enforce", "monitor"]

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
        defense: str = "snowball",
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
            defense_of(defense, settings), mode, min_elected, max_examples, rounds=rounds, buffers=buffers, seed=seed
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


class GuardedFedAvg(BaseFedAvg):
    """FedAvg whose average is that of those that a guard elects; sites may fail, or not answer in time.

    Attributes:
        num_clients, num_rounds, start_round, persistor_id: as FedAvg's.
        timeout: seconds for a round's results; zero waits for all.
        defense, settings, mode, min_elected, max_examples, audit, state, buffers, seed: as `GuardedAggregator`'s.
    """

    def __init__(
        self,
        num_clients: int = 3,
        num_rounds: int = 5,
        start_round: int = 0,
        persistor_id: str = AppConstants.DEFAULT_PERSISTOR_ID,
        timeout: int = 0,
        defense: str = "snowball",
        settings: dict[str, Any] | None = None,
        mode: Mode = "enforce",
        min_elected: int = 1,
        max_examples: float | None = None,
        audit: str = "",
        state: str = "",
        buffers: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        super().__init__(
            num_clients=num_clients,
            num_rounds=num_rounds,
            start_round=start_round,
            persistor_id=persistor_id,
            ignore_result_error=True,  # or a site that fails ends the run
        )
        self.timeout, self.defense, self.settings, self.mode = timeout, defense, settings, mode
        self.min_elected, self.max_examples = min_elected, max_examples
        self.audit, self.state, self.buffers, self.seed = audit, state, buffers, seed
        guard = Guard(defense_of(defense, settings), mode, min_elected, max_examples, buffers=buffers, seed=seed)
        self.gate = Gate(guard, audit, state)
        self.codes: dict[str, str] = {}

    def run(self) -> None:
        """Run the rounds."""
        self.gate.start(Path(self.get_run_dir()), self.num_rounds)
        self.fl_ctx.set_prop(AppConstants.NUM_ROUNDS, self.num_rounds, private=True, sticky=False)
        model = self.load_model()
        model.start_round, model.total_rounds = self.start_round, self.num_rounds
        for number in range(self.num_rounds):
            self.current_round = self.start_round + number
            model = self._round(model)
            if model is None:
                return
            self.save_model(model)
            self._maybe_cleanup_memory()

    def _round(self, model: FLModel) -> FLModel | None:
        """Ask, judge and update; nothing where the run is aborted."""
        model.current_round = self.current_round
        self.fl_ctx.set_prop(AppConstants.CURRENT_ROUND, self.current_round, private=True, sticky=False)
        self.event(AppEventType.ROUND_STARTED)
        clients = self.sample_clients(self.num_clients)
        self.codes = {}
        models = self.send_model_and_wait(data=model, targets=clients, timeout=self.timeout)
        if self.abort_signal.triggered:
            return None
        self.event(AppEventType.BEFORE_AGGREGATION)
        result = self.judged(model, clients, models)
        self.fire_event_with_data(AppEventType.AFTER_AGGREGATION, self.fl_ctx, AppConstants.AGGREGATION_RESULT, result)
        return self.update_model(model, result)

    def judged(self, model: FLModel, clients: Sequence[str], models: Sequence[FLModel]) -> FLModel:
        """The global model after a round: what the guard makes of the results of the clients that were asked."""
        read = {client_of(result) for result in models}
        failed = [Dropped(client, "error", code) for client, code in self.codes.items() if client not in read]
        judgement = self.gate.judge(model.params, models, clients, failed)
        return result_of(judgement, model.params, ParamsType.FULL, models, self.current_round)

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        """Note how each client answered: whoever did, and is not among the results, sent what cannot be read."""
        accepted: bool = super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task)
        if not is_unknown_task:
            self.codes[client_name] = "its result cannot be read" if accepted else str(result.get_return_code())[:200]
        return accepted


def run_folder(fl_ctx: FLContext | None) -> Path:
    """The folder of the run on the server; the working directory outside of a run."""
    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT) if fl_ctx else None
    return Path(workspace.get_run_dir(fl_ctx.get_job_id()) if fl_ctx and workspace else "")


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

"""The guarded controller, for NVFlare's job API."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg

from snowball.errors import SnowballError
from snowball.guard import Dropped
from snowball.guard.reply import MAX_DETAIL_CHARS
from snowball.guard.state import OnOtherState
from snowball.guard.turnout import MIN_ANSWERS
from snowball.integrations.nvflare._results import get_client
from snowball.integrations.nvflare._session import GuardSession, LowTurnout, Mode, build_result


class GuardedFedAvg(BaseFedAvg):
    """FedAvg over the results that a guard elects; sites may fail, or not answer in time.

    Attributes:
        num_clients, num_rounds, start_round, persistor_id: as in NVFlare's FedAvg.
        timeout: seconds to wait for a round's results; zero waits for all.
        defense, settings, mode, min_elected, max_examples, audit, state, buffers, seed: as in `GuardedAggregator`.
        max_share, min_answers, low_turnout, names, decisions, models, keep_models, on_other_state, listeners,
            patience, audit_key: likewise.
    """

    def __init__(
        self,
        num_clients: int = 3,
        num_rounds: int = 5,
        start_round: int = 0,
        persistor_id: str = AppConstants.DEFAULT_PERSISTOR_ID,
        timeout: int = 0,
        defense: str = "snowball-plus",
        settings: dict[str, Any] | None = None,
        mode: Mode = "enforce",
        min_elected: int = 1,
        max_examples: float | None = None,
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
        super().__init__(
            num_clients=num_clients,
            num_rounds=num_rounds,
            start_round=start_round,
            persistor_id=persistor_id,
            ignore_result_error=True,  # otherwise a site that fails ends the run
        )
        self.timeout, self.defense, self.settings, self.mode = timeout, defense, settings, mode
        self.min_elected, self.max_examples = min_elected, max_examples
        self.audit, self.state, self.buffers, self.seed = audit, state, buffers, seed
        self.max_share, self.min_answers, self.low_turnout = max_share, min_answers, low_turnout
        self.on_other_state, self.listeners, self.patience = on_other_state, listeners, patience
        self.names, self.decisions, self.models, self.keep_models = names, decisions, models, keep_models
        self.audit_key = audit_key
        self.guard_session = GuardSession(self)
        self.failures: dict[str, str] = {}

    def run(self) -> None:
        """Run the rounds, or end the run with a sentence if the guard's files cannot be used."""
        try:
            self.guard_session.open_files(Path(self.get_run_dir()), self.num_rounds)
        except SnowballError as error:
            self.panic(f"the guard cannot start: {error}")
            return
        self.fl_ctx.set_prop(AppConstants.NUM_ROUNDS, self.num_rounds, private=True, sticky=False)
        model = self.load_model()
        model.start_round, model.total_rounds = self.start_round, self.num_rounds
        for number in range(self.num_rounds):
            self.current_round = self.start_round + number
            model = self._run_round(model)
            if model is None:
                return
            self.save_model(model)
            self._maybe_cleanup_memory()

    def _run_round(self, model: FLModel) -> FLModel | None:
        """Ask clients, judge their results and return the new model; None if the run is aborted."""
        model.current_round = self.current_round
        self.fl_ctx.set_prop(AppConstants.CURRENT_ROUND, self.current_round, private=True, sticky=False)
        self.event(AppEventType.ROUND_STARTED)
        clients = self.sample_clients(self.num_clients)
        self.failures = {}
        models = self.send_model_and_wait(data=model, targets=clients, timeout=self.timeout)
        if self.abort_signal.triggered:
            return None
        self.event(AppEventType.BEFORE_AGGREGATION)
        result = self.judge_results(model, clients, models)
        self.fire_event_with_data(AppEventType.AFTER_AGGREGATION, self.fl_ctx, AppConstants.AGGREGATION_RESULT, result)
        return self.update_model(model, result)

    def judge_results(self, model: FLModel, clients: Sequence[str], models: Sequence[FLModel]) -> FLModel:
        """Return the global model after the guard has judged the results of the clients that were asked."""
        readable = {get_client(result) for result in models}
        failed = [Dropped(client, "error", why) for client, why in self.failures.items() if client not in readable]
        judgement = self.guard_session.judge(model.params, models, clients, failed)
        return build_result(judgement, model.params, ParamsType.FULL, models, self.current_round)

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        """Note each client's failure; one that answered but is not among the results sent something unreadable."""
        accepted: bool = super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task)
        if not is_unknown_task:
            failure = "its result cannot be read" if accepted else str(result.get_return_code())
            self.failures[client_name] = failure[:MAX_DETAIL_CHARS]
        return accepted

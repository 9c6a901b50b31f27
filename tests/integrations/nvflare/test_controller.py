"""The guarded controller's rounds, through NVFlare's own acceptance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="NVFlare's aggregators need nvflare >= 2.9: `make test-nvflare` has it")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare_federation import FULL, GLOBAL, SITES, assert_average, list_dropped, make_params

from snowball.guard import AuditLog
from snowball.integrations.nvflare import GuardedFedAvg
from snowball.records.audit import REASONS


class Laboratory(GuardedFedAvg):
    """A controller whose clients answer at once, through NVFlare's own acceptance."""

    def __init__(self, folder: Path, answers: Callable[[str], Shareable | None], **chosen: Any) -> None:
        super().__init__(num_clients=len(SITES), **chosen)
        self.folder, self.answers, self.saved = folder, answers, []
        self.fl_ctx, self.abort_signal, self.events = FLContext(), Signal(), []

    def get_run_dir(self) -> str:
        return str(self.folder)

    def load_model(self) -> FLModel:
        return FLModel(FULL, dict(GLOBAL))

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        return SITES[:num_clients]

    def event(self, event_type: str) -> None:
        self.events.append(event_type)

    def fire_event_with_data(self, event_type: str, *data: Any) -> None:
        self.events.append(event_type)

    def save_model(self, model: FLModel) -> None:
        self.saved.append(dict(model.params))

    def send_model_and_wait(self, task_name: str = "train", data: Any = None, targets: Any = None, **more: Any) -> Any:
        results = []
        for site in targets:
            if (answer := self.answers(site)) is None or not self._accept_train_result(site, answer, self.fl_ctx):
                continue
            try:
                model = FLModelUtils.from_shareable(answer)
            except Exception:
                continue
            model.meta["client_name"] = site
            results.append(model)
        return results


def shareable(site: str) -> Shareable:
    meta = {"NUM_STEPS_CURRENT_ROUND": 10 + SITES.index(site), "client_name": "somebody else"}
    return DXO(DataKind.WEIGHTS, make_params(site, FULL), meta).to_shareable()


def unchecked(data: Any) -> Shareable:
    """Return data as sent by a site that skips NVFlare's own checks."""
    exchanged = DXO(DataKind.WEIGHTS, {})
    exchanged.data = data
    return exchanged.to_shareable()


ODD: dict[str, Shareable | None] = {
    SITES[0]: None,
    SITES[1]: make_reply(ReturnCode.EXECUTION_EXCEPTION),
    SITES[2]: Shareable(),
}


def test_the_controller_knows_who_was_asked_who_failed_and_who_is_silent(audit: AuditLog) -> None:
    laboratory = Laboratory(
        audit.path.parent,
        lambda site: ODD[site] if site in ODD else shareable(site),
        defense="fedavg",
        num_rounds=2,
        audit=audit.path.name,
    )
    laboratory.run()
    assert len(laboratory.saved) == 2
    assert_average(laboratory.saved[0], SITES[3:])
    for entry in audit.read_entries():
        assert entry["asked"] == SITES
        assert entry["silent"] == [SITES[0]]
        assert [(fault["client"], fault["reason"], fault["detail"]) for fault in entry["dropped"]] == [
            (SITES[1], "error", "EXECUTION_EXCEPTION"),
            (SITES[2], "error", "its result cannot be read"),
        ]
        assert entry["averaged"] == SITES[3:]


def test_whatever_comes_through_nvflares_own_conversion_the_next_round_goes_on(audit: AuditLog) -> None:
    own = make_params(SITES[0], FULL)
    sent: list[Any] = [None, {}, 7, "text", [own], {"first": None}, {**own, "first": own["last"]}, {7: own["first"]}]
    wrong = [*map(unchecked, sent), Shareable(), Shareable({"DXO": 3})]
    coming = iter(wrong)
    laboratory = Laboratory(
        audit.path.parent,
        lambda site: next(coming, shareable(site)) if site == SITES[0] else shareable(site),
        defense="fedavg",
        num_rounds=len(wrong) + 1,
        audit=audit.path.name,
    )
    laboratory.run()
    *hostile, last = audit.read_entries()
    for entry in hostile:
        ((client, reason),) = list_dropped(entry)
        assert (client, reason in REASONS, entry["averaged"]) == (SITES[0], True, SITES[1:])
    assert (last["round"], last["dropped"], last["averaged"]) == (len(wrong) + 1, [], SITES)


def test_the_controller_tells_the_guard_how_many_rounds_there_will_be(tmp_path: Path) -> None:
    for rounds in (2, 5):
        laboratory = Laboratory(tmp_path, shareable, defense="fedavg", num_rounds=2, state="state")
        laboratory.run()
        guard = laboratory.guard_session.guard
        assert (guard.round, guard.rounds) == ((2, 2) if rounds == 2 else (4, 4))


def test_an_aborted_run_saves_nothing_more(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path, shareable, defense="fedavg", num_rounds=2)
    laboratory.abort_signal.trigger(True)
    laboratory.run()
    assert laboratory.saved == []

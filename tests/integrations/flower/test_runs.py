"""Whole runs: their start, their state files, and how the next run continues."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower's strategies need flwr >= 1.41: `make test-flower` has it")

from flower_federation import (
    GLOBAL,
    NODES,
    SHAPE,
    Make,
    Nodes,
    ask_nodes,
    assert_average,
    make_record,
    make_reply,
    reply_with_arrays,
    reply_with_records,
)
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg

from snowball import defenses
from snowball.defenses import Snowball
from snowball.errors import RunError
from snowball.guard import AuditLog
from snowball.guard.alerts import LISTENERS, Event
from snowball.integrations.flower import Guarded, read_listeners

pytestmark = pytest.mark.usefixtures("runtime")


def client(message: Message) -> Message | None:
    """Train or evaluate; node 1 sends NaN, node 2 nothing."""
    node = message.metadata.dst_node_id
    if message.metadata.message_type == "evaluate":
        return reply_with_records(message, metrics=MetricRecord({"num-examples": 1, "accuracy": 0.5}))
    if node == 1:
        return reply_with_arrays(message, first=np.full(SHAPE, np.nan, np.float32))
    return None if node == 2 else make_reply(message)


def test_a_whole_run_starts_as_the_strategys_own_and_a_second_goes_on(
    make: Make, tmp_path: Path, logged: pytest.LogCaptureFixture
) -> None:
    for start in (1, 2):
        strategy = make(audit=tmp_path / "audit", state=tmp_path / "state")
        result = strategy.start(grid=Nodes(client), initial_arrays=make_record(GLOBAL), num_rounds=2)
        assert np.isfinite(result.arrays["first"].numpy()).all()
        assert result.evaluate_metrics_clientapp[2] == {"accuracy": 0.5}
        assert strategy.guard.rounds == 2 * start
    entries = list(AuditLog(tmp_path / "audit").read_entries())
    assert [entry["round"] for entry in entries] == [1, 2, 3, 4]
    assert all(entry["silent"] == ["2"] and entry["dropped"][0]["client"] == "1" for entry in entries)
    assert "Guard: SnowballPlus(" in logged.text
    assert "guard: round 4, aggregated: {'answered': 7, 'silent': 1, 'dropped': 1," in logged.text


def test_a_strategys_own_start_is_the_one_that_runs() -> None:
    class Own(FedAvg):
        """Starts in its own way."""

        def start(self, grid: Any, initial_arrays: Any, num_rounds: int = 3, timeout: float = 1) -> str:
            replies = grid.send_and_receive(self.configure_train(1, initial_arrays, ConfigRecord(), grid), timeout)
            self.arrays, _ = self.aggregate_train(1, replies)
            return "its own"

    strategy = Guarded(Own(), defense=defenses.FedAvg())
    assert strategy.start(Nodes(client), make_record(GLOBAL), timeout=2) == "its own"
    assert_average(strategy.arrays, NODES[2:])


def test_a_guard_that_was_told_the_number_of_rounds_keeps_it(make: Make) -> None:
    strategy = make(rounds=5)
    strategy.start(Nodes(client), make_record(GLOBAL), 2)
    assert strategy.guard.rounds == 5


def test_state_survives_a_restart(make: Make, tmp_path: Path) -> None:
    def strategy(file: str, seed: int | None = None) -> Any:
        return make(defense=Snowball(grow_after=1), state=tmp_path / file, audit=tmp_path / f"{file}.jsonl", seed=seed)

    through = strategy("through", seed=7)
    for server_round in (1, 2, 3):
        through.aggregate_train(server_round, map(make_reply, ask_nodes(through)))
    for server_round in (1, 2, 3):
        anew = strategy("anew", seed=7 if server_round == 1 else None)
        anew.aggregate_train(1, map(make_reply, ask_nodes(anew)))
    ends = [next(reversed(list(AuditLog(tmp_path / f"{name}.jsonl").read_entries()))) for name in ("through", "anew")]
    for entry in ends:
        assert entry["round"] == 3
    assert ends[0]["elected"] == ends[1]["elected"]
    assert ends[0]["model_after"] == ends[1]["model_after"]
    assert anew.guard.seed == 7
    assert anew.guard.state == through.guard.state is not None


def test_a_state_that_is_none_is_refused_before_anything_runs(make: Make, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"something else")
    with pytest.raises(RunError, match="not the state of a guard"):
        make(state=tmp_path / "state")


def test_listeners_of_an_apps_configuration_hear_every_round(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def listen(event: Event, prefix: str = "") -> None:
        heard.append(f"{prefix}{event.kind} {event.round}")

    monkeypatch.setitem(LISTENERS, "listen", listen)
    config = {"rounds": 2, "listeners.listen.prefix": "a ", "listeners.webhook.url": "https://host/", "listener": ""}
    listeners = read_listeners(config)
    assert listeners == {"listen": {"prefix": "a "}, "webhook": {"url": "https://host/"}}
    strategy = make(defense=defenses.FedAvg(), listeners=listeners)
    strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)))
    ask_nodes(strategy)
    strategy.guard.alerts.listeners = strategy.guard.alerts.listeners[:1]  # the webhook's host is nobody's
    strategy.aggregate_train(2, [])
    assert heard == ["a round 1", "a round 2", "a kept 2"]


def test_a_state_that_cannot_be_saved_does_not_end_the_run(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = make(defense=defenses.FedAvg(), state=tmp_path / "folder" / "state")
    (tmp_path / "folder").write_text("a file is in the way")
    arrays, _ = strategy.aggregate_train(1, map(make_reply, ask_nodes(strategy)))
    assert_average(arrays, NODES)
    assert "Round 1: the guard's state is not saved: " in caplog.text

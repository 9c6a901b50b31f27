"""The engine on a grid that behaves like Flower's when SuperNodes come and go."""

import tomllib
from collections.abc import Callable, Iterable
from multiprocessing.connection import Listener
from pathlib import Path
from socket import socket
from threading import Event, Thread
from typing import Any, Self
from uuid import uuid4

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: make test-flower has an environment for it")

from flwr.app import Context, Error, Message, RecordDict

from snowball.errors import RunError, SettingError
from snowball.sim import flower_app
from snowball.sim.engines import flower, flower_bridge
from snowball.sim.engines.base import Replies, train_cohort
from snowball.sim.engines.ray_cluster import require_cluster
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state
from snowball.sim.presets import load_experiment

pytestmark = pytest.mark.usefixtures("runtime")

SMALL = ["data.clients=10", "cohort=5", "data.examples=100", "training.epochs=1"]
COHORT, RAISED, GONE = [4, 0, 5, 2, 9], 2, 5


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation.build(load_experiment("demo", SMALL))


class Grid:
    """SuperNodes 1, 2 and 3, which answer the last message first; some fail with an error code, or are silent."""

    def __init__(self, faults: dict[int, int] | None = None, *, silent: bool = False, full: bool = False) -> None:
        self.faults, self.silent, self.full = faults or {}, silent, full
        self.nodes, self.inbox = {1, 2, 3}, dict[str, Message]()
        self.sent: list[int] = []

    def get_node_ids(self) -> set[int]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            self.inbox[message.metadata.message_id] = message
            self.sent.append(message.metadata.dst_node_id)
        return [] if self.full else list(self.inbox)

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        return [] if self.silent else [self.answer(self.inbox[name]) for name in reversed(list(names))]

    def answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if code := self.faults.get(node):
            self.nodes -= {node}
            return Message(Error(code, "out of memory"), reply_to=message)
        return flower.train_client(message, context())


def context(**settings: str) -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)


@pytest.fixture
def train(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Replies]:
    """Return a function that runs a round on a grid."""
    monkeypatch.setattr(flower, "POLL_SECONDS", 0.0)

    def round(grid: Grid, **settings: Event) -> Replies:
        return train_cohort(flower.GridEngine(federation, grid, **settings), build_first_state(federation), COHORT, 1)

    return round


@pytest.mark.parametrize("faults", [{}, {2: GONE}, {1: GONE, 3: GONE}], ids=["all stay", "one goes", "two go"])
def test_rows_are_those_of_one_process_whoever_goes(
    faults: dict[int, int], train: Callable[..., Replies], federation: Federation
) -> None:
    grid = Grid(faults)
    expected = train_cohort(SerialEngine(federation), build_first_state(federation), COHORT, 1)
    replies = train(grid)
    assert torch.equal(replies.rows, expected.rows)
    assert replies.buffers == expected.buffers
    assert grid.sent[:5] == [1, 2, 3, 1, 2]
    assert set(grid.sent[5:]) <= {1, 2, 3} - set(faults)


def test_attackers_get_the_memory_of_the_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower, "POLL_SECONDS", 0.01)
    federation = Federation.build(load_experiment("demo", [*SMALL, "attack.name=a3fl", "attack.malicious=0.5"]))
    state = build_first_state(federation)
    forgetful = train_cohort(SerialEngine(federation), state, COHORT, 1)
    state.attack = {"shades": torch.linspace(0, 1, 9).view(1, 9)}
    expected = train_cohort(SerialEngine(federation), state, COHORT, 1)
    assert not torch.equal(expected.rows, forgetful.rows)
    replies = train_cohort(flower.GridEngine(federation, Grid()), state, COHORT, 1)
    assert torch.equal(replies.rows, expected.rows)
    with make_engine(federation, tmp_path, Grid()) as engine:
        assert torch.equal(train_cohort(engine, state, COHORT, 1).rows, expected.rows)


def test_a_training_that_fails_ends_the_run_in_a_sentence(train: Callable[..., Replies]) -> None:
    with pytest.raises(RunError, match="client 5 of round 1 could not be trained over Flower: out of memory"):
        train(Grid({3: RAISED}))


FAULTS = {
    "nobody answers": (Grid(silent=True), "no SuperNode has replied for 0 s"),
    "all go": (Grid(dict.fromkeys((1, 2, 3), GONE)), "no SuperNode has been connected for 0 s"),
    "nothing is taken": (Grid(full=True), "Flower accepted 0 of 5 messages"),
}


@pytest.mark.parametrize(("grid", "said"), FAULTS.values(), ids=FAULTS)
def test_no_run_waits_for_ever(
    grid: Grid, said: str, train: Callable[..., Replies], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "MAX_WAIT_SECONDS", 0.05)
    with pytest.raises(RunError, match=said):
        train(grid)


def test_a_run_that_is_stopped_waits_for_no_answer(train: Callable[..., Replies]) -> None:
    stopped = Event()
    stopped.set()
    with pytest.raises(RunError, match="stopped"):
        train(Grid(silent=True), stopped=stopped)


def test_the_app_runs_the_experiment_that_its_settings_name_and_goes_on_with_it(tmp_path: Path) -> None:
    settings = {"preset": "demo", "set": " ".join([*SMALL, "rounds=1"]), "out": str(tmp_path / "run")}
    for _ in range(2):
        flower_app.run_app(Grid(), context(**settings))
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 1


def test_an_app_without_a_preset_or_a_folder_is_refused() -> None:
    with pytest.raises(SettingError, match="preset = '', out = 'x'"):
        flower_app.run_app(Grid(), context(out="x"))


def test_an_address_where_no_cluster_answers_is_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with (
            pytest.raises(RunError, match=f"^RAY_ADDRESS = '{address}' is not a Ray cluster: "),
            flower.FlowerEngine(federation, 1),
        ):
            pass


@pytest.mark.parametrize("address", ["", "auto", "local", "ray://nowhere:10001"])
def test_other_forms_of_an_address_are_rays_to_read(address: str) -> None:
    require_cluster(address, "it")


class Simulation:
    """Stands for Flower's programs: it runs the engine's app on a grid, in a thread."""

    def __init__(self, folder: Path, grid: Grid | None) -> None:
        self.folder, self.grid = folder, grid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def start_app(self, app: Path, nodes: int, config: dict[str, Any], log: Path) -> Self:
        settings = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        log.write_text("the app starts\nit found no memory\n")
        if self.grid:
            self.thread = Thread(target=flower_bridge.serve_cohorts, args=(self.grid, context(**settings)))
            self.thread.start()
        return self

    def poll(self) -> int | None:
        return None if self.grid else 1

    def terminate(self) -> None:
        """End by itself, as the connection is closed."""

    def wait(self, timeout: float) -> None:
        if self.grid:
            self.thread.join(timeout)
            assert not self.thread.is_alive()


def make_engine(federation: Federation, folder: Path, grid: Grid | None) -> flower.FlowerEngine:
    engine = flower.FlowerEngine(federation, 1)
    engine.link = Simulation(folder, grid)
    return engine


def test_the_engine_and_its_app_train_the_rows_of_one_process(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "POLL_SECONDS", 0.01)
    state = build_first_state(federation)
    expected = train_cohort(SerialEngine(federation), state, COHORT, 1)
    with make_engine(federation, tmp_path, Grid()) as engine:
        for _ in range(2):
            replies = train_cohort(engine, state, COHORT, 1)
            assert torch.equal(replies.rows, expected.rows)
            assert replies.buffers == expected.buffers


def test_a_training_that_fails_in_the_app_ends_the_run_in_a_sentence(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "POLL_SECONDS", 0.01)
    with (
        pytest.raises(RunError, match="client 5 of round 1 could not be trained over Flower: out of memory"),
        make_engine(federation, tmp_path, Grid({3: RAISED})) as engine,
    ):
        train_cohort(engine, build_first_state(federation), COHORT, 1)


def test_a_simulation_that_ends_is_a_sentence(federation: Federation, tmp_path: Path) -> None:
    with (
        pytest.raises(RunError, match="Flower's simulation ended: it found no memory"),
        make_engine(federation, tmp_path, None),
    ):
        pass


@pytest.mark.parametrize("rounds", [0, 1], ids=["before a round", "in a round"])
def test_an_app_that_hangs_up_is_a_sentence(
    rounds: int, federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang_up(grid: Grid, context: Context) -> None:
        with Listener(str(context.run_config["socket"])) as listener, listener.accept() as connection:
            for _ in range(1 + rounds):
                connection.recv_bytes()

    monkeypatch.setattr(flower_bridge, "serve_cohorts", hang_up)
    with (
        pytest.raises(RunError, match="Flower's simulation ended: it found no memory"),
        make_engine(federation, tmp_path, Grid()) as engine,
    ):
        train_cohort(engine, build_first_state(federation), COHORT, 1)


def test_a_cluster_that_answers_is_taken() -> None:
    with socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        require_cluster(f"127.0.0.1:{listening.getsockname()[1]}", "it")

"""Groups of clients that a worker trains at once, compared with each client alone."""

import os
import signal
from collections.abc import Callable, Sequence

import pytest
import torch

from snowball.data import Dataset
from snowball.sim.engines.base import train_cohort
from snowball.sim.engines.groups import MAX_GROUP, GroupTraining, allows_groups, split_evenly
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.worker import Task, Worker, make_training_task
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state
from snowball.sim.training.client import LocalTraining
from snowball.testing import make_toy_texts

MakeExperiment = Callable[..., Experiment]


class ToyTexts:
    """A data set that worker processes find by its name."""

    name, summary, needs = "toy-texts", "random texts", "nothing"

    def load(self) -> Dataset:
        return make_toy_texts(160)

    def locate(self) -> None: ...

    def fetch(self) -> None: ...


TEXTS = [f"data.name={__name__}:ToyTexts", "data.examples=160", "data.clients=8", "cohort=8"]
TEXTS += ["model.name=gru", "data.partition=dirichlet-plain", "training.batch=4", "training.epochs=2"]
ALL = range(8)


@pytest.fixture
def federation(tiny: MakeExperiment) -> Callable[..., Federation]:
    """Return a function that makes eight clients with texts, as many each as a draw says; some may be malicious."""

    def make(attack: str, *assignments: str) -> Federation:
        return Federation.build(tiny(f"attack.name={attack}", *TEXTS, *assignments))

    return make


@pytest.mark.parametrize("attack", ["text", "neurotoxin"])  # the second trains as the attack wants it
@pytest.mark.parametrize("clients", [ALL, [6, 1], [5, 3, 0]])
def test_a_client_has_the_same_row_alone_and_in_any_group_to_the_last_bit(
    federation: Callable[..., Federation], attack: str, clients: Sequence[int]
) -> None:
    whole = federation(attack, "attack.trigger=word", "attack.target=0")
    training, base = LocalTraining(whole), build_first_state(whole).base
    assert len({len(part) for part in whole.parts}) > 2
    together = GroupTraining(training)(base, clients, 1, None, {})
    for client, reply in zip(clients, together, strict=True):
        assert torch.equal(reply.row, training(base, client, 1, None, {}).row)


def test_workers_train_groups_as_serial_does_and_lose_no_client_with_a_worker(
    federation: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, sent, send = federation("text"), list[str](), Worker.send

    def kill_first(self: Worker, task: Task) -> None:
        if not sent:
            os.kill(self.process.pid or 0, signal.SIGKILL)
        sent.append(task.activity)
        send(self, task)

    with SerialEngine(whole) as serial:
        expected = train_cohort(serial, build_first_state(whole), ALL, 1).rows.clone()
    with ProcessEngine(whole, 1) as processes:
        assert torch.equal(train_cohort(processes, build_first_state(whole), ALL, 1).rows, expected)
        monkeypatch.setattr(Worker, "send", kill_first)
        assert torch.equal(train_cohort(processes, build_first_state(whole), ALL, 1).rows, expected)
    assert [line.count(",") for line in sent] == [7, *[0] * 8]
    assert sorted(sent[1:]) == [f"training client {client}" for client in ALL]


def test_a_group_that_is_lost_is_tried_again_client_by_client() -> None:
    alone, group = make_training_task([(4, 7)], 2, b"x"), make_training_task([(4, 7), (5, 9)], 2, b"x")
    assert group.key == (4, 5)
    assert group.list_second_tries() == [
        alone._replace(again=True),
        make_training_task([(5, 9)], 2, b"x")._replace(again=True),
    ]
    assert alone.list_second_tries() == [alone._replace(again=True)]


@pytest.mark.parametrize(("count", "workers", "sizes"), [(20, 1, [6, 7, 7]), (20, 2, [5] * 4), (3, 2, [1, 2])])
def test_groups_are_as_many_for_each_worker_and_nearly_equal(count: int, workers: int, sizes: list[int]) -> None:
    groups = split_evenly(range(count), workers)
    assert [len(group) for group in groups] == sizes
    assert [slot for group in groups for slot in group] == list(range(count))


def test_no_group_is_empty_or_too_large() -> None:
    for count in range(1, 60):
        for workers in range(1, 9):
            assert {len(group) for group in split_evenly(range(count), workers)} <= set(range(1, MAX_GROUP + 1))


@pytest.mark.parametrize(
    ("assignments", "allowed"), [([], True), (["model.name=gru-quarter"], True), (["defense.name=flip"], False)]
)
def test_groups_are_for_models_with_gradients_of_their_own_and_clients_without_a_state(
    federation: Callable[..., Federation], assignments: list[str], allowed: bool
) -> None:
    assert allows_groups(federation("none", *assignments)) == allowed


def test_other_models_have_no_groups(tiny: MakeExperiment) -> None:
    assert not allows_groups(Federation.build(tiny()))

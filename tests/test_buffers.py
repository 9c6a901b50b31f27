"""Models that keep more than their parameters: running statistics, counters."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snowball.buffers import Buffers, copy_buffers, load_buffers
from snowball.defenses import DEFENSES, ClientTask, Context, FedAvg, State, Verdict
from snowball.defenses.ops import average_by_examples
from snowball.errors import SettingError, UpdateError
from snowball.layout import Layout
from snowball.models import MODELS, ModelInfo
from snowball.records.checkpoint import load_state
from snowball.rng import stream
from snowball.sim.engines.base import pack_message, train_cohort, unpack_message
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.experiment import Experiment, TrainingSettings
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate
from snowball.sim.run import run_experiment
from snowball.sim.training.evaluation import FederatedModel
from snowball.sim.training.sgd import Trainer, compute_batch_sizes
from snowball.updates import Updates

MakeExperiment = Callable[..., Experiment]

pytestmark = pytest.mark.usefixtures("few_test_digits")
EXAMPLES = Path(__file__).parents[1] / "examples"


class Normed(nn.Module):
    """Dense layers with batch normalisation and dropout, and a buffer that is not part of the state."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2)
        )
        self.fc = nn.Linear(12, classes)
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.layers(inputs)) * self.scale
        return scores


MEAN, VARIANCE, COUNT = (f"layers.3.{name}" for name in ("running_mean", "running_var", "num_batches_tracked"))


class Breaking(Normed):
    """Breaks its statistics in training, with parameters that stay as they are."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.get_buffer(MEAN).fill_(torch.inf)
        return 0 * super().forward(torch.zeros_like(inputs)).nan_to_num() + 0 * self.fc.bias


@dataclass(frozen=True)
class Favourite:
    """Elects the clients of some names."""

    names: tuple[str, ...]

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        elected = torch.tensor([client in self.names for client in updates.clients])
        delta = average_by_examples(updates, elected) if elected.any() else torch.zeros(updates.layout.width)
        return Verdict(delta, elected)


@dataclass(frozen=True)
class Looking(FedAvg):
    """Tells what the model says of a row, and lets benign clients look at their samples once."""

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        verdict = super().__call__(updates, context)
        if context.model is None or context.base is None:
            return verdict
        scores = context.model(context.base, context.model.random_inputs(3, context.stream("noise")))
        return Verdict(verdict.delta, verdict.elected, {"scores": scores[:, 0]})

    def train(self, task: ClientTask) -> State | None:
        assert task.model.training
        task.model(task.inputs)
        return None


@dataclass(frozen=True)
class Selfish(FedAvg):
    """Takes the server's own update."""

    trusted_examples: int = 30

    def __call__(self, updates: Updates, context: Context) -> Verdict:
        assert context.trusted is not None
        return Verdict(context.trusted, super().__call__(updates, context).elected)


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for network in (Normed, Breaking):
        monkeypatch.setitem(MODELS, network.__name__.lower(), ModelInfo("", "", network))
    for defense in (Favourite, Looking, Selfish):
        monkeypatch.setitem(DEFENSES, defense.__name__.lower(), defense)


@pytest.fixture
def normed(tiny: MakeExperiment) -> MakeExperiment:
    return lambda *assignments: tiny("model.name=normed", *assignments)


def same(one: Buffers, other: Buffers) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def timeless(records: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def merge(replies: list[Buffers], examples: list[float], elected: list[bool], before: Buffers) -> Buffers:
    clients = [f"c{row}" for row in range(len(replies))]
    layout = Layout(("w",), ((1,),))
    updates = Updates(torch.ones(len(replies), 1), torch.tensor(examples), clients, layout, replies)
    return updates.merge_buffers(torch.tensor(elected), before)


def test_floats_are_averaged_by_examples_and_integers_take_the_maximum() -> None:
    replies = [
        {"mean": torch.tensor([1.0, 0.0]), "count": torch.tensor(7)},
        {"mean": torch.tensor([5.0, 8.0]), "count": torch.tensor(5)},
        {"mean": torch.tensor([900.0, 900.0]), "count": torch.tensor(900)},
    ]
    after = merge(replies, [30, 10, 50], [True, True, False], replies[0])
    assert after["mean"].tolist() == [2, 2]
    assert after["count"].item() == 7
    assert after["mean"].dtype == torch.float32
    assert after["count"].dtype == torch.int64


def test_the_order_of_the_clients_does_not_matter_to_the_last_bit() -> None:
    values = torch.randn(9, 50, generator=stream(0), dtype=torch.float64)  # float32 would round the difference away
    examples = torch.arange(3, 12).double()
    order = torch.randperm(9, generator=stream(1))

    def mean(rows: Tensor) -> Buffers:
        clients = [str(row) for row in rows.tolist()]
        replies = [{"mean": value} for value in values[rows]]
        updates = Updates(values[rows], examples[rows], clients, Layout(("w",), ((50,),)), replies)
        return updates.merge_buffers(torch.ones(9, dtype=torch.bool), replies[0])

    assert same(mean(torch.arange(9)), mean(order))


def test_where_nobody_is_elected_they_stay() -> None:
    before = {"mean": torch.ones(2)}
    assert merge([{"mean": torch.zeros(2)}], [1], [False], before) is before


def test_where_nobody_sent_any_they_stay() -> None:
    before = {"mean": torch.ones(2)}
    updates = Updates.from_layers({"w": torch.ones(2, 1)})
    assert updates.merge_buffers(torch.tensor([True, True]), before) is before


def test_training_that_breaks_them_is_said_with_its_round_and_client(tiny: MakeExperiment) -> None:
    fault = rf"nobody is left to judge: of client '\d', '{MEAN}' holds NaN or infinite numbers"
    expected = rf"^training diverged in round 1: {fault}; try a training\.lr below "
    with pytest.raises(UpdateError, match=expected):
        list(simulate(Federation.build(tiny("model.name=breaking", "defense.name=fedavg"))))


def test_a_models_buffers_are_copies_of_those_that_are_saved_with_it() -> None:
    model = Normed((1, 28, 28), 10)
    taken = copy_buffers(model)
    assert list(taken) == [MEAN, VARIANCE, COUNT]
    model(torch.randn(5, 1, 28, 28))
    assert taken[COUNT].item() == 0
    load_buffers(model, {MEAN: torch.full((12,), 2.0), VARIANCE: torch.full((12,), 3.0), COUNT: torch.tensor(4)})
    assert model.state_dict()[MEAN].tolist() == [2] * 12
    assert model.state_dict()[COUNT].item() == 4
    with pytest.raises(KeyError):
        load_buffers(model, {})  # rather than to go on with a former client's


def test_rows_hold_parameters_alone(normed: MakeExperiment) -> None:
    federation = Federation.build(normed())
    assert federation.layout.width == 49 * 12 + 12 + 12 + 12 + 12 * 10 + 10
    assert build_first_state(federation).buffers[VARIANCE].tolist() == [1] * 12


def test_the_elected_alone_decide(normed: MakeExperiment) -> None:
    federation = Federation.build(normed("rounds=1", "defense.name=favourite", 'defense.names=["3", "5"]'))
    state, before = build_first_state(federation), build_first_state(federation)
    (record,) = simulate(federation, state=state)
    cohort = [int(client) for client in record["participants"]]
    replies = train_cohort(SerialEngine(federation), before, cohort, 1).buffers
    kept = {client: reply for client, reply in zip(cohort, replies, strict=True) if client in (3, 5)}
    assert kept
    counts = {client: len(federation.parts[client]) for client in kept}
    mean = sum(counts[client] * reply[MEAN].double() for client, reply in kept.items()) / sum(counts.values())
    assert state.buffers[MEAN].tolist() == pytest.approx(mean.tolist(), rel=1e-6)
    assert state.buffers[COUNT] == max(reply[COUNT] for reply in kept.values())
    assert not torch.equal(state.buffers[MEAN], before.buffers[MEAN])


def test_where_a_round_elects_nobody_the_model_stays_whole(normed: MakeExperiment) -> None:
    federation = Federation.build(normed("defense.name=favourite", 'defense.names=["nobody"]'))
    state = build_first_state(federation)
    list(simulate(federation, state=state))
    assert same(state.buffers, build_first_state(federation).buffers)


def test_a_client_starts_from_the_global_ones_and_nobody_elses(normed: MakeExperiment) -> None:
    federation = Federation.build(normed())
    state = build_first_state(federation)
    state.buffers = {MEAN: torch.full((12,), 3.0), VARIANCE: torch.full((12,), 2.0), COUNT: torch.tensor(100)}
    with SerialEngine(federation) as serial:
        forth, back = train_cohort(serial, state, [0, 1, 2, 3, 4], 1), train_cohort(serial, state, [4, 3, 2, 1, 0], 1)
    assert all(map(same, forth.buffers, reversed(back.buffers)))
    for client, buffers in enumerate(forth.buffers):
        batches = compute_batch_sizes(len(federation.parts[client]), 10, 2)
        assert buffers[COUNT] == 100 + len(batches)
        assert (buffers[MEAN] - 3 * 0.9 ** len(batches)).abs().max() < 3  # a momentum of 0.1 moves them on
    assert state.buffers[COUNT] == 100


@pytest.mark.parametrize("defense", ["snowball-minus", "looking"])
def test_a_stopped_run_goes_on_with_them_to_the_same_end(normed: MakeExperiment, tmp_path: Path, defense: str) -> None:
    experiment = normed("rounds=3", f"defense.name={defense}")
    whole = timeless(run_experiment(experiment, tmp_path / "whole"))
    stopped = run_experiment(experiment, tmp_path / "stopped")
    records = timeless([next(stopped), next(stopped)])
    stopped.close()  # type: ignore[attr-defined]
    records += timeless(run_experiment(experiment, tmp_path / "stopped", resume=True))
    assert records == whole
    layout = Federation.build(experiment).layout
    ends = [load_state(tmp_path / name / "checkpoint", 3, layout) for name in ("whole", "stopped")]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0].buffers[COUNT] > 0
    assert same(ends[0].buffers, ends[1].buffers)


def test_a_state_of_another_model_is_refused(normed: MakeExperiment) -> None:
    federation = Federation.build(normed())
    state = build_first_state(federation)
    del state.buffers[COUNT]
    with pytest.raises(
        UpdateError, match=r"the state to continue from does not match the model: missing \['layers\.3\.num"
    ):
        next(simulate(federation, state=state))


def test_evaluation_uses_the_running_statistics(normed: MakeExperiment) -> None:
    federation = Federation.build(normed())
    model, state = FederatedModel(federation), build_first_state(federation)
    inputs = federation.dataset.test.inputs[:7]
    together = model(state.base, inputs)
    torch.testing.assert_close(together[2:3], model(state.base, inputs[2:3]))
    assert same(model.trainer.copy_buffers(), state.buffers)
    model.buffers = state.buffers | {MEAN: torch.full((12,), 5.0)}
    assert not torch.allclose(model(state.base, inputs), together)


def test_a_model_is_trained_in_training_mode_and_used_in_evaluation_mode(normed: MakeExperiment) -> None:
    federation = Federation.build(normed())
    model, state = FederatedModel(federation), build_first_state(federation)
    split = federation.select_training_samples(3, 1)
    model(state.base, split.inputs)
    assert not any(module.training for module in model.trainer.model.modules())
    model.trainer.train(federation.dataset.normalise(split.inputs), split.labels, 0.01, stream(0))
    assert all(module.training for module in model.trainer.model.modules())
    assert model.trainer.copy_buffers()[COUNT] > 0


def test_a_defense_tries_rows_with_the_global_ones_of_before_the_round(normed: MakeExperiment) -> None:
    federation = Federation.build(normed("rounds=2", "defense.name=looking", "attack.name=none"))
    state = build_first_state(federation)
    running = simulate(federation, state=state)
    next(running)
    model = FederatedModel(federation)
    model.buffers = state.buffers
    context = Context(round=2, seed=federation.experiment.seed)
    expected = model(state.base, model.random_inputs(3, context.stream("noise")))[:, 0]
    assert next(running)["facts"]["scores"] == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_lesson_of_a_defense_has_them_too(normed: MakeExperiment) -> None:
    federation = Federation.build(normed("defense.name=looking", "attack.name=none"))
    state = build_first_state(federation)
    state.buffers[COUNT] = torch.tensor(41)
    with SerialEngine(federation) as serial:
        replies = train_cohort(serial, state, [4, 5, 6, 7, 3], 1)
    assert [buffers[COUNT].item() for buffers in replies.buffers] == [42] * 5
    assert not replies.rows.any()


def test_the_server_trains_its_own_update_with_them(normed: MakeExperiment) -> None:
    assert len(list(simulate(Federation.build(normed("defense.name=selfish"))))) == 2


def test_a_last_batch_of_one_joins_the_one_before_it() -> None:
    assert compute_batch_sizes(23, 10, 1) == compute_batch_sizes(23, 10, 2) == [10, 10, 3]
    assert compute_batch_sizes(21, 10, 1) == [10, 10, 1]
    assert compute_batch_sizes(21, 10, 2) == [10, 11]
    assert compute_batch_sizes(20, 10, 2) == [10, 10]
    assert (compute_batch_sizes(1, 10, 1), compute_batch_sizes(1, 10, 2), compute_batch_sizes(0, 10, 2)) == (
        [1],
        [],
        [],
    )


def trainer(**settings: Any) -> Trainer:
    return Trainer(Normed((1, 28, 28), 10), TrainingSettings(epochs=2, **settings))


@pytest.mark.parametrize(("samples", "steps"), [(11, 2), (21, 4), (2, 2), (1, 0)])
def test_batch_normalisation_never_sees_a_batch_of_one(samples: int, steps: int) -> None:
    one = trainer()
    start = torch.randn(one.layout.width, generator=stream(0))
    one.load(start, one.copy_buffers())
    one.train(torch.randn(samples, 1, 28, 28), torch.zeros(samples, dtype=torch.int64), 0.01, stream(1))
    assert one.copy_buffers()[COUNT] == steps
    assert torch.equal(one.read_row(), start) == (steps == 0)


def test_batches_of_one_are_refused_where_there_is_batch_normalisation() -> None:
    sentence = r"^training\.batch = 1 is too small for batch normalisation, which needs 2$"
    with pytest.raises(SettingError, match=sentence):
        trainer(batch=1)


def test_what_goes_over_the_line_is_nothing_where_there_is_nothing() -> None:
    assert pack_message(None, {}) == b""
    assert unpack_message(b"") == (None, {}, None)
    kept, buffers, _ = unpack_message(pack_message({"a": 1}, {"mean": torch.ones(2), "count": torch.tensor(2**40 + 1)}))
    assert kept == {"a": 1}
    assert same(buffers, {"mean": torch.ones(2), "count": torch.tensor(2**40 + 1)})


PROCESSES = """
from functools import partial

import resnet
import torch

from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.processes import ProcessEngine
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, simulate

SMALL = {"rounds": 2, "cohort": 5, "data": {"name": "mnist-sample", "clients": 6, "examples": 120, "minimum": 5}}


def end(engine):
    federation = Federation.build(Experiment.parse(resnet.SETTINGS | SMALL | {"training": {"epochs": 1}}))
    state = build_first_state(federation)
    records = [record | {"seconds": None} for record in simulate(federation, engine, state)]
    return records, state


if __name__ == "__main__":
    (records, serial), (same, processes) = end(SerialEngine), end(partial(ProcessEngine, workers=2))
    assert records == same
    assert torch.equal(serial.base, processes.base)
    assert serial.buffers.keys() == processes.buffers.keys() and len(serial.buffers) == 21
    assert all(torch.equal(serial.buffers[name], processes.buffers[name]) for name in serial.buffers)
    assert not any(torch.equal(serial.buffers[name], torch.zeros(8)) for name in serial.buffers)
"""


def test_processes_give_the_same_bits_as_serial(tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # which workers read too, and so know the model
    script.write_text(PROCESSES, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

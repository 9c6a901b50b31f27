"""The plain loop does the same work as the engines."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from benchmarks.baselines import plain
from benchmarks.inputs.workloads import Workload, write_samples
from benchmarks.speed.training import Plainly
from snowball.models import build_model
from snowball.rng import stream
from snowball.sim.engines.base import train_cohort
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state
from snowball.sim.training.sgd import Trainer

SMALL = {
    "cnn": Workload("cnn", "mnist-sample", 2, 25, epochs=2),
    "gru": Workload("gru", "sent140", 2, 25, epochs=2),
    "cifar-cnn": Workload("cifar-cnn", "cifar10", 2, 12),
}


@pytest.fixture(scope="module")
def federations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Federation]:
    cache = tmp_path_factory.mktemp("cache")
    write_samples(cache / "snowball")
    with pytest.MonkeyPatch.context() as environment:
        for name in ("SNOWBALL_DATA", "SNOWBALL_VECTORS"):
            environment.delenv(name, raising=False)
        environment.setenv("XDG_CACHE_HOME", str(cache))
        return {name: Federation.build(workload.experiment) for name, workload in SMALL.items()}


class InOrder:
    """A client's batches in the order in which the package has them, a new one whenever they are gone through."""

    def __init__(self, samples: TensorDataset, batch: int, rng: torch.Generator) -> None:
        self.samples, self.batch, self.rng = samples, batch, rng

    def __iter__(self) -> Iterator[Sequence[Tensor]]:
        for places in torch.randperm(len(self.samples), generator=self.rng).split(self.batch):
            yield self.samples[places]


@pytest.mark.parametrize("name", ["cnn", "gru"])
def test_in_the_same_order_the_plain_loop_ends_where_the_serial_engine_does(
    federations: dict[str, Federation], name: str
) -> None:
    federation = federations[name]
    state, cohort = build_first_state(federation), range(federation.experiment.cohort)
    rows = train_cohort(SerialEngine(federation), state, cohort, 1).rows
    engine = Plainly(federation)
    weights = dict(federation.layout.split(state.base))
    for client, row in zip(cohort, rows, strict=True):
        rng = stream(federation.experiment.seed, "client", client, "round", 1)
        trained = plain.train_client(
            engine.model,
            weights,
            engine.samples[client],
            engine.recipe,
            lambda samples, batch, rng=rng: InOrder(samples, batch, rng),
        )
        plain_row = federation.layout.flatten(trained) - state.base
        assert row.abs().max() > 1e-3
        torch.testing.assert_close(plain_row, row, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SMALL)
def test_both_take_the_same_steps_on_the_same_number_of_samples(federations: dict[str, Federation], name: str) -> None:
    federation, workload = federations[name], SMALL[name]
    state, cohort = build_first_state(federation), range(workload.clients)
    serial, plainly = SerialEngine(federation), Plainly(federation)
    batches = [watch_gradients(serial.training.trainer), watched(plainly.model)]
    train_cohort(serial, state, cohort, 1)
    with plainly:
        plainly.train(state, cohort, 1)
    assert batches[0] == batches[1]
    assert sum(batches[1]) == workload.seen
    assert len(batches[1]) == workload.clients * workload.epochs * -(-workload.samples // workload.batch)


def watch_gradients(trainer: Trainer) -> list[int]:
    """Note the sizes of the batches that a trainer will compute gradients of, by torch or by hand."""
    sizes: list[int] = []
    compute = trainer.compute_gradient

    def note(inputs: torch.Tensor, *given: Any) -> None:
        sizes.append(len(inputs))
        compute(inputs, *given)

    trainer.compute_gradient = note  # type: ignore[method-assign]
    return sizes


def watched(model: nn.Module) -> list[int]:
    """The sizes of the batches that a model will be given."""
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    return sizes


def test_batches_come_in_a_new_order_every_time() -> None:
    batches = plain.shuffle_batches(TensorDataset(torch.arange(50), torch.arange(50)), 10)
    first, second = (torch.cat([inputs for inputs, _ in batches]) for _ in range(2))
    assert not first.equal(second)
    assert first.sort().values.equal(second.sort().values)


def test_the_global_weights_are_left_as_they_are(federations: dict[str, Federation]) -> None:
    federation = federations["cnn"]
    state = build_first_state(federation)
    before = state.base.clone()
    first, second = (Plainly(federation).train(state, [client], 1)[0] for client in (0, 1))
    assert state.base.equal(before)
    assert any(not first[name].equal(second[name]) for name in first)


def test_the_mean_weighs_by_examples_and_leaves_out_who_is_not_elected() -> None:
    trained = [{"w": torch.tensor([value])} for value in (1.0, 4.0, 100.0)]
    assert plain.average_weights(trained, [2, 1, 5], [0, 1])["w"].item() == pytest.approx(2)


def test_differences_are_rows_of_one_layer() -> None:
    weights = {"w": torch.ones(2, 2), "v": torch.zeros(1)}
    trained = [{"w": torch.full((2, 2), 3.0), "v": torch.ones(1)}]
    assert plain.compute_differences(weights, trained, "w").tolist() == [[2, 2, 2, 2]]


def test_accuracy_is_the_share_of_right_labels() -> None:
    model = nn.Linear(2, 2, bias=False)
    samples = TensorDataset(torch.eye(2).repeat(3, 1), torch.tensor([0, 1, 0, 1, 0, 0]))
    assert plain.measure_accuracy(model, {"weight": torch.eye(2)}, samples) == pytest.approx(5 / 6)


def test_the_plain_gru_runs_as_torch_has_it_and_scores_the_same(federations: dict[str, Federation]) -> None:
    ours = federations["gru"].build_model()
    plainly = plain.use_torch_gru(ours)
    inputs = torch.rand(3, 25, 50)
    assert type(plainly) is plain.PlainGru
    assert type(ours) is not plain.PlainGru
    torch.testing.assert_close(plainly(inputs), ours(inputs))


@pytest.mark.parametrize("name", ["cnn", "cnn-published"])
def test_the_plain_cnn_computes_whole_convolutions_and_scores_the_same(name: str) -> None:
    ours = build_model(name, (1, 28, 28), 10, stream(0, "model"))
    plainly = plain.use_plain_forward(ours)
    inputs = torch.rand(3, 1, 28, 28)
    assert type(plainly) is plain.PlainCNN
    assert type(ours) is not plain.PlainCNN
    assert torch.equal(plainly(inputs), ours(inputs))

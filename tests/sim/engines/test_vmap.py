"""Training many clients at once, compared with one after another."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from snowball.buffers import copy_buffers
from snowball.data import Dataset, Split, TextDataset, Vocabulary
from snowball.errors import SettingError
from snowball.models import MODELS, ModelInfo
from snowball.records.checkpoint import RunState
from snowball.rng import stream
from snowball.sim.engines.base import Engine, Replies, train_cohort
from snowball.sim.engines.serial import SerialEngine
from snowball.sim.engines.vmap import VmapEngine, choose_chunk
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import simulate
from snowball.sim.run import run_experiment

MakeExperiment = Callable[..., Experiment]
MakeFederation = Callable[..., Federation]

EXACT = 1e-10
"""Largest allowed distance between the rows of two engines in float64, relative to their length."""

USUAL, FLIPPED = 1e-5, 1e-2
"""The same in float32: for most rows, and for those where rounding flips a max pooling or a ReLU."""

UNEQUAL, FEW = [7, 1, 12, 4, 8, 5, 12], [5, 1, 6, 2]
BATCH = "training.batch=4"
INVERSION = [f"defense.inversion.{kind}_steps=2" for kind in ("universal", "pair", "repeat")]
LITTLE = ["defense.epochs=1", "defense.max_batches=2", *INVERSION]


class Normed(nn.Module):
    """Has batch normalisation, dropout in place, unused weights, and a buffer outside of the state."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(input_shape[0], 6, 5, stride=4),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.Flatten(),
            nn.LazyLinear(12),
            nn.BatchNorm1d(12),
            nn.Dropout(0.2, inplace=True),
            nn.Linear(12, classes),
        )
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.ones(1), persistent=False)
        self(torch.zeros(2, *input_shape))  # so that all layers know their widths

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(inputs) * self.scale
        return scores


class Noisy(nn.Flatten):
    """Draws random numbers without a dropout layer."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(28 * 28, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.fc(super().forward(inputs))
        return scores + torch.rand_like(scores)


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for network in (Normed, Noisy):
        monkeypatch.setitem(MODELS, network.__name__.lower(), ModelInfo("", "", network))


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Train in float64."""
    single = Dataset.normalise
    monkeypatch.setattr(Dataset, "normalise", lambda self, inputs: single(self, inputs).double())
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_noise(dataset: Dataset, model: str, count: int) -> Dataset:
    """Make random samples that fit a model, without the ties between pixels of drawn digits."""
    rng, labels = stream(0, "noise"), torch.randint(2, (count,), generator=stream(0, "labels"))
    if model.startswith("gru"):
        words = Split(torch.randint(20, (count, 25), generator=rng, dtype=torch.int32), labels)
        vocabulary = Vocabulary(tuple(map(str, range(20))), torch.randn(20, 6, generator=rng, dtype=torch.float32))
        return TextDataset("toy", 2, words, words, {}, vocabulary=vocabulary)
    shape = (3, 32, 32) if model.startswith("cifar") else (1, 28, 28)
    return replace(dataset, train=Split(torch.randint(256, (count, *shape), generator=rng, dtype=torch.uint8), labels))


@pytest.fixture
def federation(tiny: MakeExperiment) -> MakeFederation:
    """Return a function that makes a federation, given the number of random samples per client."""

    def made(model: str, counts: Sequence[int], *assignments: str) -> Federation:
        clients = (f"data.clients={len(counts)}", f"cohort={len(counts)}", "attack.name=none", "defense.name=fedavg")
        whole = Federation.build(tiny("data.clients=2", "cohort=2", "attack.name=none", "defense.name=fedavg"))
        parts = torch.arange(sum(counts)).split(list(counts))
        experiment = tiny(*clients, f"model.name={model}", "training.epochs=2", *assignments)
        return replace(whole, experiment=experiment, dataset=make_noise(whole.dataset, model, sum(counts)), parts=parts)

    return made


def build_state(federation: Federation) -> RunState:
    model = federation.build_model()
    tensors = {name: weight.detach() for name, weight in model.named_parameters()}
    return RunState(0, federation.layout.flatten(tensors), buffers=copy_buffers(model))


def train_with(engine: Callable[[Federation], Engine], federation: Federation, round: int = 1) -> Replies:
    with engine(federation) as running:
        return train_cohort(running, build_state(federation), range(federation.experiment.cohort), round)


def measure_gap(one: Replies, other: Replies) -> Tensor:
    """Return the distance between two engines' rows (K,), relative to their length."""
    assert one.rows.dtype == other.rows.dtype == torch.get_default_dtype()
    return (one.rows - other.rows).norm(dim=1) / one.rows.norm(dim=1).clamp(min=1e-30)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("model", [*MODELS, "normed"])
def test_every_model_is_trained_as_by_serial_but_for_rounding(federation: MakeFederation, model: str) -> None:
    many = federation(model, FEW, BATCH)
    expected, rows = train_with(SerialEngine, many), train_with(partial(VmapEngine, chunk=3), many)
    assert (expected.rows.norm(dim=1) > 0).sum() >= len(FEW) - 1  # one sample trains no batch normalisation
    assert measure_gap(expected, rows).max() < EXACT
    for one, other in zip(expected.buffers, rows.buffers, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            torch.testing.assert_close(other[name], one[name], rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("model", ["cnn-quarter", "cifar-cnn-quarter", "gru-quarter", "normed"])
def test_in_float32_rounding_stays_small(federation: MakeFederation, model: str) -> None:
    many = federation(model, UNEQUAL, BATCH)
    difference = measure_gap(train_with(SerialEngine, many), train_with(VmapEngine, many))
    assert difference.median() < USUAL
    assert difference.max() < FLIPPED


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "settings",
    [
        ["training.momentum=0.0"],
        ["training.weight_decay=0.0"],
        ["training.momentum=0.0", "training.weight_decay=0.0"],
        ["training.weight_decay=0.1", "training.lr=0.1"],
        ["training.epochs=1"],
        ["training.epochs=3", "training.decay=0.5"],
        ["training.batch=1"],
        ["training.batch=5"],
        ["training.batch=100"],
    ],
)
@pytest.mark.parametrize("model", ["cnn-quarter", "normed"])
def test_every_setting_means_the_same(federation: MakeFederation, model: str, settings: list[str]) -> None:
    if model == "normed" and "training.batch=1" in settings:
        settings = ["training.batch=2"]
    many = federation(model, UNEQUAL, BATCH, *settings)
    expected, other = train_with(SerialEngine, many, round=3), train_with(SerialEngine, many, round=4)
    assert measure_gap(expected, train_with(VmapEngine, many, round=3)).max() < EXACT
    assert measure_gap(expected, other).max() > 1e-6


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("counts", [[1], [9], [1, 1, 1], [8, 8, 8], [4, 4, 5], [3, 30], [13, 5, 9, 1]])
@pytest.mark.parametrize("model", ["gru-quarter", "normed"])
def test_clients_of_any_size_fit(federation: MakeFederation, model: str, counts: list[int]) -> None:
    many = federation(model, counts, BATCH)
    expected, rows = train_with(SerialEngine, many), train_with(VmapEngine, many)
    assert measure_gap(expected, rows).max() < EXACT
    for one, other in zip(expected.buffers, rows.buffers, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one if name.endswith("num_batches_tracked"))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_any_chunk_gives_the_same(federation: MakeFederation, chunk: int) -> None:
    many = federation("cifar-cnn-quarter", UNEQUAL[:4], BATCH)
    assert measure_gap(train_with(SerialEngine, many), train_with(partial(VmapEngine, chunk=chunk), many)).max() < EXACT


@pytest.mark.usefixtures("double")
def test_a_row_follows_its_client_and_not_its_place(federation: MakeFederation) -> None:
    many = federation("normed", UNEQUAL, BATCH)
    clients = list(range(len(UNEQUAL)))
    with VmapEngine(many, chunk=3) as engine:
        rows = train_cohort(engine, build_state(many), clients, 1).rows.clone()
        turned = train_cohort(engine, build_state(many), clients[::-1], 1).rows.flip(0)
        again = train_cohort(engine, build_state(many), clients, 1).rows
    torch.testing.assert_close(turned, rows, rtol=0, atol=EXACT)
    assert torch.equal(train_cohort(engine, build_state(many), clients, 1).rows, again)


def test_the_global_generator_and_model_stay_as_they_are(federation: MakeFederation) -> None:
    many = federation("normed", UNEQUAL, BATCH)
    state, before = build_state(many), torch.get_rng_state()
    with VmapEngine(many) as engine:
        train_cohort(engine, state, range(len(UNEQUAL)), 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(state.base, build_state(many).base)
    assert all(torch.equal(buffer, build_state(many).buffers[name]) for name, buffer in state.buffers.items())


@pytest.mark.parametrize(
    ("settings", "alone"),
    [
        (["attack.name=neurotoxin"], "attackers"),
        (["attack.name=pgd", "attack.radius=0.05"], "attackers"),
        (["attack.name=layer-poison", "model.name=normed"], "attackers"),  # which leaves the model as for predictions
        (["defense.name=flip", *LITTLE], "others"),
        (["defense.name=flip", *LITTLE, "attack.name=neurotoxin"], "all"),
    ],
)
def test_who_does_more_than_sgd_is_trained_alone_to_the_last_bit(
    tiny: MakeExperiment, settings: list[str], alone: str
) -> None:
    whole = Federation.build(tiny("data.examples=120", "attack.malicious=0.4", *settings))
    attackers = torch.tensor([whole.is_attacking(client, 1) for client in range(5)])
    special = {"attackers": attackers, "others": ~attackers, "all": torch.ones(5, dtype=torch.bool)}[alone]
    states = [build_state(whole), build_state(whole)]
    replies = [
        train_cohort(engine(whole), state, range(5), 1)
        for engine, state in zip((SerialEngine, VmapEngine), states, strict=True)
    ]
    assert special.any()
    assert torch.equal(replies[0].rows[special], replies[1].rows[special])
    assert measure_gap(*replies).max() < FLIPPED
    assert states[0].clients.keys() == states[1].clients.keys()
    assert bool(states[0].clients) == (alone != "attackers")


class OperationCounter(TorchDispatchMode):
    """Counts operations, and the bytes of their results that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.live = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.keep(tensor.untyped_storage())
        return result

    def keep(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.live += size
            self.most = max(self.most, self.live)
            weakref.finalize(storage, self.forget, key, size)

    def forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


def count_operations(federation: Federation, chunk: int) -> OperationCounter:
    with VmapEngine(federation, chunk=chunk) as engine, OperationCounter() as counting:
        counting.known.add(engine.rows.untyped_storage()._cdata)  # which are as many as the cohort, and nothing else is
        train_cohort(engine, build_state(federation), range(federation.experiment.cohort), 1)
    return counting


@pytest.mark.parametrize("model", ["cnn-quarter", "gru-quarter", "normed"])
def test_a_step_of_many_clients_is_as_many_operations_as_one_of_few(
    federation: MakeFederation, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    for layer in ("Dropout", "Dropout2d"):  # every client draws for itself
        monkeypatch.setattr(nn, layer, lambda *_, **__: nn.Identity())

    def per_step(clients: int) -> float:
        short, long = (count_operations(federation(model, [4 * steps] * clients, BATCH), clients) for steps in (2, 5))
        return (long.operations - short.operations) / (2 * (5 - 2))  # two epochs

    few, many = per_step(2), per_step(9)
    assert few == many > 10


def test_memory_grows_with_the_chunk_and_not_with_the_cohort(federation: MakeFederation) -> None:
    few, many, wide = (
        count_operations(federation("cifar-cnn-quarter", [8] * clients, BATCH), chunk).most
        for clients, chunk in ((3, 3), (12, 3), (12, 12))
    )
    assert many < 1.1 * few
    assert wide > 2 * few


def test_a_chunk_is_what_half_of_the_free_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (1000, 2000))
    assert [choose_chunk("cuda", taken) for taken in (10, 499, 501, 5000)] == [50, 1, 1, 1]
    assert choose_chunk("cpu", 10) == choose_chunk("cpu", 10**12) == 8


def test_what_a_client_takes_grows_with_batch_and_samples_up_to_what_there_is(federation: MakeFederation) -> None:
    def taken(counts: list[int], batch: int) -> int:
        return VmapEngine(federation("cnn-quarter", counts, f"training.batch={batch}"))._measure_client_bytes()

    assert taken([8, 8], 2) < taken([8, 8], 4) < taken([8, 8], 8) == taken([8, 8], 100_000)
    assert taken([8, 8], 4) < taken([8, 80], 4)


def test_a_model_that_cannot_be_stacked_is_refused(federation: MakeFederation) -> None:
    with pytest.raises(SettingError) as caught:
        VmapEngine(federation("noisy", [4, 4]))
    reason = "vmap: called random operation while in randomness error mode"
    assert str(caught.value) == f"--engine vmap cannot train noisy, try --engine serial: {reason}"


def collect_records(experiment: Experiment, engine: Callable[[Federation], Engine]) -> list[dict[str, Any]]:
    return list(simulate(Federation.build(experiment), engine))


def test_a_run_elects_and_learns_what_it_does_with_serial(tiny: MakeExperiment) -> None:
    experiment = tiny("rounds=3", "training.epochs=2")
    for one, other in zip(
        collect_records(experiment, SerialEngine), collect_records(experiment, VmapEngine), strict=True
    ):
        for name in ("round", "participants", "malicious", "elected", "false_positive_rate", "false_negative_rate"):
            assert one[name] == other[name]
        for name in ("main_accuracy", "backdoor_accuracy"):
            assert other[name] == pytest.approx(one[name], abs=0.005)


def test_a_stopped_run_goes_on_to_the_same_end(tiny: MakeExperiment, tmp_path: Path) -> None:
    experiment = tiny("model.name=normed")
    whole = list(run_experiment(experiment, tmp_path / "whole", VmapEngine))
    running = run_experiment(experiment, tmp_path / "stopped", VmapEngine)
    stopped = [next(running)]
    running.close()  # type: ignore[attr-defined]
    stopped += run_experiment(experiment, tmp_path / "stopped", VmapEngine, resume=True)
    assert [record | {"seconds": 0} for record in stopped] == [record | {"seconds": 0} for record in whole]

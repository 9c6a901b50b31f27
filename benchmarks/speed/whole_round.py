"""Times a round of the paper's MNIST setting, beside a plain loop with the published elections.

The package's side is the simulator: worker processes on all cores, attack, election, evaluation. The plain side trains
one client after another, on as many threads as there are cores, and elects with baselines/reference.py. It also runs on
one thread, since more threads are not always faster. Without MNIST, both use the sample that the package ships; the
cases name the data.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Self

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.baselines import plain, reference
from benchmarks.inputs.workloads import make_samples
from benchmarks.measuring.timing import Case, make_case, time_fastest
from benchmarks.speed.elections import CLUSTERS, count_growth, count_selectees
from snowball.data import locate_dataset
from snowball.defenses.snowball.layers import select_voting_layers
from snowball.records.checkpoint import load_state, save_state
from snowball.records.run import CHECKPOINT, RunFolder
from snowball.rng import stream
from snowball.server import drop_broken
from snowball.sim.cohort import draw_cohort
from snowball.sim.engines.base import Replies
from snowball.sim.engines.processes import ProcessEngine, count_cores
from snowball.sim.experiment import Experiment
from snowball.sim.federation import Federation
from snowball.sim.loop import build_first_state, receive_replies, simulate
from snowball.sim.presets import load_experiment
from snowball.sim.run import run_experiment

PRESET = "paper/mnist"
KINDS = {
    "round bottom-up": ("defense.grow_after=1.0",),
    "round top-down": ("defense.grow_after=0", f"defense.vae.cpu_threads={count_cores()}"),
    "round top-down distance": ("defense.grow_after=0", "defense.judge=distance"),
}
"""The rounds that are timed, and their changes to the preset."""

LONG = {"round top-down"}
"""Rounds that are timed once: the VAE takes a minute."""

PARTS = ("train", "bottom_up", "top_down", "finish")
"""Parts of a plain round."""

QUICK = (
    *("data.name=mnist-sample", "data.clients=24", "data.examples=480", "cohort=12", "training.epochs=1"),
    *("defense.vae.first_epochs=9", "defense.vae.tune_epochs=1"),
)
VAE = ("first_epochs", "tune_epochs", "hidden", "latent")
"""VAE settings that the reference also has."""

REPEATS = 3
"""Repeats of calls that take next to no time."""


def make_setting(quick: bool, *assignments: str) -> Experiment:
    """Load the preset with the available data, and with fewer clients in a quick run."""
    data = ("data.name=mnist-sample",) if locate_dataset("mnist") is None else ()
    return load_experiment(PRESET, [*data, *(QUICK if quick else ()), *assignments])


# The package's side


class Clocked(ProcessEngine):
    """Worker processes on all cores; records the time at which they were ready."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation, workers=count_cores())

    def __enter__(self) -> Self:
        super().__enter__()
        self.ready = perf_counter()
        return self


def time_our_round(experiment: Experiment) -> float:
    """Return the seconds of the first round, from the moment the workers are ready."""
    federation = Federation.build(experiment)
    clock = Clocked(federation)
    rounds = simulate(federation, lambda _: clock, build_first_state(federation))
    next(rounds)
    seconds = perf_counter() - clock.ready
    rounds.close()
    return seconds


# The plain side


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Use `count` threads in torch and scikit-learn, which otherwise take as many as there are cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


class PlainRound:
    """The first round of an experiment, done plainly; each of its parts can be timed separately."""

    def __init__(self, experiment: Experiment) -> None:
        federation = Federation.build(experiment)
        settings = experiment.training
        self.recipe = plain.Recipe(
            settings.epochs, settings.batch, settings.compute_rate(1), settings.momentum, settings.weight_decay
        )
        self.model = plain.use_plain_forward(federation.build_model())
        self.weights = {name: value.clone() for name, value in self.model.state_dict().items()}
        cohort = draw_cohort(experiment, 1)
        self.samples = [make_samples(federation, federation.select_training_samples(client, 1)) for client in cohort]
        tests = (federation.dataset.test, federation.build_backdoor_test())
        self.tests = [make_samples(federation, split) for split in tests if split]
        self.layers = select_voting_layers(federation.layout, "ends")
        own = asdict(experiment.defense.own["vae"])
        self.vae = {name: own[name] for name in VAE}

    def train(self) -> list[plain.Weights]:
        """Train the cohort."""
        return plain.train_cohort(self.model, self.weights, self.samples, self.recipe)

    def bottom_up(self, trained: Sequence[plain.Weights]) -> list[int]:
        """Elect by votes."""
        layers = [plain.compute_differences(self.weights, trained, layer).numpy() for layer in self.layers]
        votes = reference.elect_bottom_up(layers, CLUSTERS)
        return reference.choose_selectees(votes.totals, count_selectees(len(trained)))

    def top_down(self, trained: Sequence[plain.Weights], first: Sequence[int]) -> list[int]:
        """Elect with the VAE, in addition to the first selectees."""
        rows = torch.cat([plain.compute_differences(self.weights, trained, layer) for layer in self.layers], 1)
        target, step = count_growth(len(trained))
        return reference.elect_top_down(rows, first, target, step, generator=stream(0, "benchmark", "vae"), **self.vae)

    def finish(self, trained: Sequence[plain.Weights], elected: Sequence[int]) -> list[float]:
        """Average the elected clients, and measure the accuracy."""
        average = plain.average_weights(trained, [len(samples) for samples in self.samples], elected)
        return [plain.measure_accuracy(self.model, average, test) for test in self.tests]


def time_plain_round(plainly: PlainRound, threads: int, repeats: int) -> dict[str, float]:
    """Return the seconds of a round's parts on `threads` threads: training, vote, growth after it, and finish."""
    with use_threads(threads):
        train, trained = time_fastest(lambda _: plainly.train(), lambda: None, repeats)
        vote, first = time_fastest(plainly.bottom_up, lambda: trained, 1)
        grow, _ = time_fastest(partial(plainly.top_down, first=first), lambda: trained, 1)
        finish, _ = time_fastest(partial(plainly.finish, elected=first), lambda: trained, 1)
    return dict(zip(PARTS, (train, vote, grow, finish), strict=True))


# Cases


def time_rounds(quick: bool) -> Iterator[Case]:
    """Time a round of each kind, beside the plain one on all cores, which is its default, and on one."""
    repeats = 1 if quick else 2
    plainly = PlainRound(make_setting(quick))
    parts = {threads: time_plain_round(plainly, threads, repeats) for threads in sorted({1, count_cores()})}
    for name, assignments in KINDS.items():
        experiment = make_setting(quick, "rounds=1", *assignments)
        wanted = [part for part in PARTS if part != "top_down" or "top-down" in name]
        seconds = min(time_our_round(experiment) for _ in range(1 if name in LONG else repeats))
        sums = {threads: sum(took[part] for part in wanted) for threads, took in parts.items()}
        alone = {"one_thread_seconds": sums[1], "ratio_to_one_thread": sums[1] / seconds}
        facts = {"plain_seconds": {part: parts[count_cores()][part] for part in wanted}, **describe_size(experiment)}
        yield make_case(name, seconds, sums[count_cores()], **alone, **facts)


def describe_size(experiment: Experiment) -> dict[str, str | int]:
    """Describe the size of a round."""
    sizes = {"clients": experiment.data.clients, "cohort": experiment.cohort, "epochs": experiment.training.epochs}
    return {"data": experiment.data.name, **sizes, "workers": count_cores()}


def time_parts(quick: bool) -> Case:
    """Time the parts of a round, as shares of it: both elections with the default judge, written to a folder."""
    experiment = make_setting(quick, "rounds=2", "defense.grow_after=0", "defense.judge=distance")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        rounds = run_experiment(experiment, path, partial(ProcessEngine, workers=count_cores()))
        (_, start), (record, end) = [(record, perf_counter()) for record in rounds]
        total, took, apart = end - start, record["seconds"], time_unrecorded(experiment, path)
    election = took["bottom_up"] + took["top_down"]
    parts = {
        "train": took["train"] - apart["draw"],
        **apart,
        "election": election,
        "aggregation": took["defense"] - election - apart["flattening"],
        "evaluation": took["evaluate"],
    }
    shares = {name: seconds / total for name, seconds in parts.items()}
    beside = {"shares": {**shares, "other": 1 - sum(shares.values())}}
    return make_case("rest", total - took["train"], None, round_seconds=total, **beside, **describe_size(experiment))


def time_unrecorded(experiment: Experiment, path: Path) -> dict[str, float]:
    """Return the seconds of the parts that a record does not cover, repeated with the data in a run's folder."""
    federation = Federation.build(experiment)
    state = load_state(path / CHECKPOINT, experiment.rounds, federation.layout)
    assert state is not None
    folder = RunFolder.open(path)
    record, cohort = folder.read_rounds()[-1], draw_cohort(experiment, 2)
    rows = 0.01 * torch.randn(len(cohort), federation.layout.width, generator=stream(0, "benchmark", "rest"))
    replies = Replies(rows, [state.buffers] * len(cohort))

    def keep(_: None) -> None:
        folder.append(record)
        state.base = state.base + 1  # as after every round: an unchanged model would not be written again
        save_state(state, path / CHECKPOINT)

    works: dict[str, Callable[[None], Any]] = {
        "draw": lambda _: draw_cohort(experiment, 2),
        "flattening": lambda _: drop_broken(receive_replies(federation, replies, cohort))[0].to_updates(),
        "records": keep,
    }
    return {name: time_fastest(work, lambda: None, REPEATS)[0] for name, work in works.items()}


def run_cases(quick: bool) -> list[Case]:
    """Run every case of a whole round."""
    return [*time_rounds(quick), time_parts(quick)]

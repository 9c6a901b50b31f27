"""Measures the time and memory needed to load each data set and partition it among clients.

    python -m benchmarks.speed.loading > benchmarks/results/loading.json

It measures the sets in the package and in $SNOWBALL_DATA, each time in a fresh process: once with an empty cache, and
three times after that. The last two lines partition synthetic clients, as many as the complete sets have.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from benchmarks.measuring.machine import PeakMemory, describe_machine
from benchmarks.measuring.timing import Case
from snowball.data import DATASETS, Dataset, TextDataset, load_dataset, locate_dataset
from snowball.data.partition import Parts, partition_merged, partition_natural
from snowball.data.sets.femnist import COMPLETE_SIZE as FEMNIST
from snowball.rng import numpy_stream, stream
from snowball.sim.experiment import DataSettings
from snowball.sim.federation import partition_data

REPEATS = 3
SENT140 = (660_120, 1_600_000)  # users and texts
MERGED = 2000  # the paper's clients on Sent140
DEALT = {"femnist": ("natural", None), "sent140": ("iid", MERGED), "sent140-users": ("merged", MERGED)}


def measure_set(name: str) -> Case:
    """Load a set in this process and partition it; peaks are multiples of its size."""
    with PeakMemory() as memory:
        start = perf_counter()
        dataset = load_dataset(name)
        seconds = perf_counter() - start
    size = sum(tensor.nbytes for tensor in list_tensors(dataset))
    peak = memory.growth["VmRSS"] * 2**20 / size if memory.growth else None
    samples = len(dataset.train) + len(dataset.test)
    return {"name": name, "samples": samples, "bytes": size, "seconds": seconds, "peak": peak, **partition_set(dataset)}


def list_tensors(dataset: Dataset) -> Iterator[Tensor]:
    """Yield all tensors that a data set keeps in memory."""
    for split in (dataset.train, dataset.test):
        yield from (split.inputs, split.labels)
    if dataset.groups is not None:
        yield dataset.groups
    if isinstance(dataset, TextDataset):
        yield dataset.vocabulary.vectors


def partition_set(dataset: Dataset) -> Case:
    """Partition a set as the paper does, or by a plain Dirichlet split if it has no users."""
    partition, clients = DEALT.get(dataset.name, ("dirichlet-plain", 200))
    if clients is None:
        clients = len(torch.unique(dataset.groups))
    settings = DataSettings(name=dataset.name, clients=clients, partition=partition)
    return time_partition(partition, lambda: partition_data(dataset, settings, seed=0))


def time_partition(partition: str, work: Callable[[], Parts]) -> Case:
    """Time a partition."""
    start = perf_counter()
    clients = len(work())
    return {"partition": partition, "clients": clients, "partition_seconds": perf_counter() - start}


def run_in_process(name: str) -> Case:
    """Measure a set in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure_set, name).result()


def measure_loads(name: str) -> Case:
    """Measure the first load of a set, and the median of the later ones."""
    first, *later = (run_in_process(name) for _ in range(1 + REPEATS))
    middle = {key: median(case[key] for case in later) for key in ("seconds", "partition_seconds")}
    peaks = {"first_peak": first["peak"], "peak": later[0]["peak"]}
    print(f"{name}: {first['seconds']:.2f} s, then {middle['seconds']:.2f} s", file=sys.stderr, flush=True)
    return {**first, "first_seconds": first["seconds"], **middle, **peaks}


def measure_synthetic() -> list[Case]:
    """Partition as many clients and samples as the complete sets have."""
    writers, users = draw_owners(*FEMNIST), draw_owners(*SENT140)
    rng = numpy_stream(0, "loading")
    return [
        {
            "name": "FEMNIST's size",
            "samples": len(writers),
            **time_partition("natural", lambda: partition_natural(writers)),
        },
        {
            "name": "Sent140's size",
            "samples": len(users),
            **time_partition("merged", lambda: partition_merged(users, MERGED, rng)),
        },
    ]


def draw_owners(clients: int, samples: int) -> Tensor:
    """Draw the client of each sample (samples,), in random order; every client has at least one."""
    rng = stream(0, "loading", clients)
    more = torch.randint(clients, (samples - clients,), generator=rng)
    return torch.cat([torch.arange(clients), more])[torch.randperm(samples, generator=rng)]


def run() -> dict[str, Any]:
    """Measure every set that is available."""
    with TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        cases = [measure_loads(name) for name in DATASETS if locate_dataset(name)]
    return {"machine": describe_machine(), "cases": [*cases, *measure_synthetic()]}


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

"""Partitions of training samples into clients.

Each function returns the ascending sample indices of every client. Together they cover every sample exactly once, but
`partition_natural` drops clients with too few samples.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snowball.errors import SettingError
from snowball.registry import Registry, require_function

Indices = npt.NDArray[np.int64]
Parts = tuple[Tensor, ...]  # one (n_i,) int64 tensor per client

MAX_DRAWS = 10_000
"""Draws after which `partition_niid_bench` gives up on its minimum. So many take a few seconds."""


def partition_iid(labels: Tensor, clients: int, rng: np.random.Generator) -> Parts:
    """Split samples at random into equal parts; sizes differ by at most one."""
    _check_sizes(len(labels), clients, minimum=1)
    return _sort_parts(np.array_split(rng.permutation(len(labels)), clients))


def partition_niid_bench(
    labels: Tensor, clients: int, rng: np.random.Generator, alpha: float = 0.5, minimum: int = 20
) -> Parts:
    """Split each class by a Dirichlet draw among the clients that have less than their share of all samples.

    Li, Diao, Chen, He, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022 (arXiv 2021): the
    whole draw is repeated until every client has `minimum` samples. The Snowball paper splits its images this way.

    Args:
        alpha: concentration of the Dirichlet distribution; the lower, the fewer classes a client has.
        minimum: samples that every client has at least.
    """
    _check_dirichlet(len(labels), clients, alpha, minimum)
    members = _group_by_value(labels)
    for _ in range(MAX_DRAWS):
        sizes = _draw_sizes([len(indices) for indices in members], clients, alpha, rng)  # (classes, clients)
        if sizes is not None and sizes.sum(0).min() >= minimum:
            parts = [
                np.split(rng.permutation(indices), row.cumsum()[:-1])
                for indices, row in zip(members, sizes, strict=True)
            ]
            return _sort_parts([np.concatenate(held) for held in zip(*parts, strict=True)])
    raise SettingError(
        f"no draw of {MAX_DRAWS} gave each of {clients} clients {minimum} of the {len(labels)} samples at alpha = "
        f"{alpha:g}: lower data.minimum, or raise data.alpha"
    )


def _draw_sizes(classes: Sequence[int], clients: int, alpha: float, rng: np.random.Generator) -> Indices | None:
    """Draw the number of samples per class and client, (classes, clients); None if a class has no client left."""
    sizes = np.zeros((len(classes), clients), np.int64)
    for row, count in zip(sizes, classes, strict=True):
        below_share = sizes.sum(0) < sum(classes) / clients
        shares = rng.dirichlet(np.full(clients, alpha)) * below_share
        if not shares.sum() > 0:
            return None
        cuts = (shares.cumsum()[:-1] / shares.sum() * count).astype(np.int64)
        row[:] = np.diff(cuts, prepend=0, append=count)
    return sizes


def partition_dirichlet_plain(
    labels: Tensor, clients: int, rng: np.random.Generator, alpha: float = 0.5, minimum: int = 10
) -> Parts:
    """Split each class in proportions from a symmetric Dirichlet distribution (Hsu, Qi, Brown 2019).

    A client's samples have no upper bound. Clients with fewer than `minimum` get samples from the largest ones, so that
    every `alpha` works.

    Args:
        alpha: concentration of the Dirichlet distribution; the lower, the fewer classes a client has.
        minimum: samples that every client has at least.
    """
    _check_dirichlet(len(labels), clients, alpha, minimum)
    held: list[list[Indices]] = [[] for _ in range(clients)]  # by client, by class
    for members in map(rng.permutation, _group_by_value(labels)):
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = (shares.cumsum()[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            held[client].append(part)
    _fill_small_clients(held, minimum)
    return _sort_parts([np.concatenate(parts) for parts in held])


def _fill_small_clients(held: list[list[Indices]], minimum: int) -> None:
    """Move samples from the largest clients to the smallest until every client has the minimum.

    The donor gives samples of its most common class, and the receiver gets few classes, which keeps most of the skew.
    """
    sizes = np.array([sum(map(len, parts)) for parts in held])
    while (receiver := sizes.argmin()) != (donor := sizes.argmax()) and sizes[receiver] < minimum:
        label = max(range(len(held[donor])), key=lambda label: len(held[donor][label]))
        moved = min(minimum - sizes[receiver], sizes[donor] - minimum, len(held[donor][label]))
        given, held[donor][label] = np.split(held[donor][label], [moved])
        held[receiver][label] = np.concatenate([held[receiver][label], given])
        sizes[receiver] += moved
        sizes[donor] -= moved


def partition_sized(
    labels: Tensor, clients: int, rng: np.random.Generator, sizes: tuple[float, ...] = (), alpha: float = 1.0
) -> Parts:
    """Give clients samples in proportion to given sizes, such as those of the hospitals in a consortium.

    Each client draws the shares of its classes from a Dirichlet distribution, and what a class lacks it takes from the
    others. Small clients choose first, so the largest one holds what is left and is close to the whole.

    Args:
        sizes: one number per client; only their ratios matter.
        alpha: concentration of the Dirichlet distribution; the lower, the fewer classes a client has.
    """
    _check_dirichlet(len(labels), clients, alpha, minimum=1)
    counts = _scale_sizes(sizes, clients, len(labels))
    pools = [rng.permutation(indices) for indices in _group_by_value(labels)]
    parts: list[Indices] = [np.empty(0, np.int64)] * clients
    for client in np.argsort(counts, kind="stable"):
        available = np.array([len(pool) for pool in pools])
        taken = _take_sizes(rng.dirichlet(np.full(len(pools), alpha)), int(counts[client]), available)
        parts[client] = np.concatenate([pool[:count] for pool, count in zip(pools, taken, strict=True)])
        pools = [pool[count:] for pool, count in zip(pools, taken, strict=True)]
    return _sort_parts(parts)


def _scale_sizes(sizes: Sequence[float], clients: int, samples: int) -> Indices:
    """Return whole numbers of samples in proportion to sizes, at least one each, which sum to all samples."""
    if len(sizes) != clients:
        raise SettingError(f"data.sizes has {len(sizes)} numbers, expected one for each of data.clients = {clients}")
    for size in sizes:
        if not 0 < size < np.inf:
            raise SettingError(f"data.sizes must be positive and finite, got {size}")
    shares = np.array(sizes, np.float64) / max(sizes)  # first, or the sum of huge sizes could overflow
    exact = shares / shares.sum() * (samples - clients)
    counts: Indices = exact.astype(np.int64)
    by_remainder = np.argsort(counts - exact, kind="stable")
    counts[by_remainder[: samples - clients - int(counts.sum())]] += 1
    counts += 1
    return counts


def _take_sizes(shares: npt.NDArray[np.float64], count: int, available: Indices) -> Indices:
    """Return how many samples of each class a client takes: by its shares, then from the fullest classes."""
    taken = np.minimum((shares * count).astype(np.int64), available)
    while (missing := count - int(taken.sum())) > 0:
        fullest = int((available - taken).argmax())
        taken[fullest] += min(missing, available[fullest] - taken[fullest])
    return taken


def partition_pathological(
    labels: Tensor, clients: int, rng: np.random.Generator, classes_per_client: int = 2
) -> Parts:
    """Give each client samples of a fixed number of classes (after McMahan et al. 2017).

    Each class is split evenly among its clients. The original splits the sorted samples into shards, whose edges give
    some clients an extra class.

    Args:
        classes_per_client: number of classes that each client has samples of.
    """
    _check_sizes(len(labels), clients, minimum=1)
    members = [rng.permutation(indices) for indices in _group_by_value(labels)]
    if not 1 <= classes_per_client <= len(members) <= clients * classes_per_client:
        raise SettingError(
            f"{clients} clients of {classes_per_client} classes each cannot cover {len(members)} classes"
        )
    holders = _assign_classes(len(members), clients, classes_per_client, rng)
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for indices, owners in zip(members, holders, strict=True):
        if len(indices) < len(owners):
            raise SettingError(f"{len(indices)} samples of a class are too few for its {len(owners)} clients")
        for owner, part in zip(owners, np.array_split(indices, len(owners)), strict=True):
            held[owner].append(part)
    return _sort_parts([np.concatenate(parts) for parts in held])


def _assign_classes(classes: int, clients: int, per_client: int, rng: np.random.Generator) -> list[list[int]]:
    """Choose the clients of each class: every client takes the classes with the fewest clients, ties at random."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in range(clients):
        order = rng.permutation(classes).tolist()
        for label in sorted(order, key=lambda label: len(holders[label]))[:per_client]:
            holders[label].append(client)
    return holders


def partition_natural(groups: Tensor, drop_below: int = 1) -> Parts:
    """Keep the natural clients of the data, without those that have fewer than `drop_below` samples.

    Args:
        drop_below: natural clients with fewer samples are left out.
    """
    parts = _group_by_value(groups)
    kept = [part for part in parts if len(part) >= drop_below]
    if not kept:
        raise SettingError(f"none of the {len(parts)} natural clients has {drop_below} samples")
    return _sort_parts(kept)


def partition_merged(groups: Tensor, clients: int, rng: np.random.Generator) -> Parts:
    """Merge the natural clients of the data at random into fewer clients (after Zawad et al. 2021).

    Their numbers of natural clients differ by at most one; in the published code the last client takes all that remain.
    """
    _, owner = np.unique(groups.numpy(), return_inverse=True)
    total = int(owner.max()) + 1 if len(owner) else 0
    if not 1 <= clients <= total:
        raise SettingError(f"{total} natural clients cannot be merged into {clients}")
    merged = rng.permutation(total) * clients // total
    return _sort_parts(_group_by_value(torch.from_numpy(merged[owner])))


PARTITIONS: Registry[Callable[..., Parts]] = Registry(
    "snowball.partitions",
    {
        "iid": partition_iid,
        "niid-bench": partition_niid_bench,
        "dirichlet-plain": partition_dirichlet_plain,
        "sized": partition_sized,
        "pathological": partition_pathological,
        "natural": partition_natural,
        "merged": partition_merged,
    },
    adapt=require_function,
)


def _check_sizes(samples: int, clients: int, minimum: int) -> None:
    if clients < 1 or minimum < 0:
        raise SettingError(f"clients must be at least 1 and the minimum at least 0, got {clients} and {minimum}")
    if samples < clients * minimum:
        raise SettingError(f"{samples} samples are too few for {clients} clients of at least {minimum} each")


def _check_dirichlet(samples: int, clients: int, alpha: float, minimum: int) -> None:
    _check_sizes(samples, clients, minimum)
    if not 0 < alpha * clients < np.inf:
        raise SettingError(f"alpha times {clients} clients must be positive and finite, got alpha = {alpha}")


def _group_by_value(values: Tensor) -> list[Indices]:
    """Return the indices of each value that occurs, by ascending value."""
    order = values.numpy().argsort(kind="stable")
    _, starts = np.unique(values.numpy()[order], return_index=True)
    return np.split(order, starts[1:])


def _sort_parts(parts: list[Indices]) -> Parts:
    return tuple(torch.from_numpy(np.sort(part)) for part in parts)

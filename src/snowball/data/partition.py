"""Ways to deal training samples out to clients.

Each gives the indices of every client's samples, in ascending order; together they cover every sample exactly once.
`natural` alone may leave samples out: those of clients that have too few.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snowball.errors import SettingError
from snowball.registry import Registry, require_function

Indices = npt.NDArray[np.int64]
Parts = tuple[Tensor, ...]  # one (n_i,) int64 tensor a client

MAX_DRAWS = 10_000
"""Draws of `niid_bench` after which its minimum is taken to be out of reach; the last of them comes after seconds."""


def iid(labels: Tensor, clients: int, rng: np.random.Generator) -> Parts:
    """Equal shares at random; sizes differ by one at most."""
    _check(len(labels), clients, minimum=1)
    return _sorted(np.array_split(rng.permutation(len(labels)), clients))


def niid_bench(labels: Tensor, clients: int, rng: np.random.Generator, alpha: float = 0.5, minimum: int = 20) -> Parts:
    """Each class shared out by a Dirichlet draw among the clients that have fewer than their share of all samples.

    Li, Diao, Chen, He, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022 (arXiv 2021): the
    whole draw is repeated until every client has `minimum` samples. The Snowball paper splits its images so.
    """
    _check_dirichlet(len(labels), clients, alpha, minimum)
    members = _by_value(labels)
    for _ in range(MAX_DRAWS):
        sizes = _draw_sizes([len(indices) for indices in members], clients, alpha, rng)  # (classes, clients)
        if sizes is not None and sizes.sum(0).min() >= minimum:
            parts = [
                np.split(rng.permutation(indices), row.cumsum()[:-1])
                for indices, row in zip(members, sizes, strict=True)
            ]
            return _sorted([np.concatenate(held) for held in zip(*parts, strict=True)])
    raise SettingError(
        f"no draw of {MAX_DRAWS} gave each of {clients} clients {minimum} of the {len(labels)} samples at alpha = "
        f"{alpha:g}: lower data.minimum, or raise data.alpha"
    )


def _draw_sizes(classes: Sequence[int], clients: int, alpha: float, rng: np.random.Generator) -> Indices | None:
    """(classes, clients) how many samples of each class a client gets; None where the draw left a class to nobody."""
    sizes = np.zeros((len(classes), clients), np.int64)
    for row, count in zip(sizes, classes, strict=True):
        below_share = sizes.sum(0) < sum(classes) / clients
        shares = rng.dirichlet(np.full(clients, alpha)) * below_share
        if not shares.sum() > 0:
            return None
        cuts = (shares.cumsum()[:-1] / shares.sum() * count).astype(np.int64)
        row[:] = np.diff(cuts, prepend=0, append=count)
    return sizes


def dirichlet_plain(
    labels: Tensor, clients: int, rng: np.random.Generator, alpha: float = 0.5, minimum: int = 10
) -> Parts:
    """Each class shared out in proportions drawn from a symmetric Dirichlet distribution (Hsu, Qi, Brown 2019).

    Nothing bounds a client's samples from above. Clients left with fewer than `minimum` are topped up from the largest
    ones, so that every `alpha` can be dealt.
    """
    _check_dirichlet(len(labels), clients, alpha, minimum)
    held: list[list[Indices]] = [[] for _ in range(clients)]  # by client, by class
    for members in map(rng.permutation, _by_value(labels)):
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = (shares.cumsum()[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            held[client].append(part)
    _top_up(held, minimum)
    return _sorted([np.concatenate(parts) for parts in held])


def _top_up(held: list[list[Indices]], minimum: int) -> None:
    """Move samples from the largest clients' most common classes until nobody has fewer than the minimum.

    The donor loses what it has most of and the receiver gets few classes, so that little of the skew is lost.
    """
    sizes = np.array([sum(map(len, parts)) for parts in held])
    while (receiver := sizes.argmin()) != (donor := sizes.argmax()) and sizes[receiver] < minimum:
        label = max(range(len(held[donor])), key=lambda label: len(held[donor][label]))
        moved = min(minimum - sizes[receiver], sizes[donor] - minimum, len(held[donor][label]))
        given, held[donor][label] = np.split(held[donor][label], [moved])
        held[receiver][label] = np.concatenate([held[receiver][label], given])
        sizes[receiver] += moved
        sizes[donor] -= moved


def pathological(labels: Tensor, clients: int, rng: np.random.Generator, classes_per_client: int = 2) -> Parts:
    """Each client gets so many classes and no sample of any other (after McMahan et al. 2017).

    Classes are shared out evenly among their holders, where the original deals shards of the sorted samples, whose
    edges give some clients a class more.
    """
    _check(len(labels), clients, minimum=1)
    members = [rng.permutation(indices) for indices in _by_value(labels)]
    if not 1 <= classes_per_client <= len(members) <= clients * classes_per_client:
        raise SettingError(
            f"{clients} clients of {classes_per_client} classes each cannot share out {len(members)} classes"
        )
    holders = _deal_classes(len(members), clients, classes_per_client, rng)
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for indices, owners in zip(members, holders, strict=True):
        if len(indices) < len(owners):
            raise SettingError(f"{len(indices)} samples of a class are too few for its {len(owners)} clients")
        for owner, part in zip(owners, np.array_split(indices, len(owners)), strict=True):
            held[owner].append(part)
    return _sorted([np.concatenate(parts) for parts in held])


def _deal_classes(classes: int, clients: int, per_client: int, rng: np.random.Generator) -> list[list[int]]:
    """The clients that hold each class: every client takes the classes that have the fewest so far, ties at random."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in range(clients):
        order = rng.permutation(classes).tolist()
        for label in sorted(order, key=lambda label: len(holders[label]))[:per_client]:
            holders[label].append(client)
    return holders


def natural(groups: Tensor, drop_below: int = 1) -> Parts:
    """The clients that the data came with; those with fewer than `drop_below` samples are left out."""
    parts = _by_value(groups)
    kept = [part for part in parts if len(part) >= drop_below]
    if not kept:
        raise SettingError(f"none of the {len(parts)} clients has the {drop_below} samples asked for")
    return _sorted(kept)


def merged(groups: Tensor, clients: int, rng: np.random.Generator) -> Parts:
    """The clients that the data came with, put together at random into fewer (after Zawad et al. 2021).

    Each takes in as many as any other, but for one; in the published code the last takes in all that are left over.
    """
    _, owner = np.unique(groups.numpy(), return_inverse=True)
    total = int(owner.max()) + 1 if len(owner) else 0
    if not 1 <= clients <= total:
        raise SettingError(f"{total} clients that the data came with cannot be put together into {clients}")
    place = rng.permutation(total) * clients // total
    return _sorted(_by_value(torch.from_numpy(place[owner])))


PARTITIONS: Registry[Callable[..., Parts]] = Registry(
    "snowball.partitions",
    {
        "iid": iid,
        "niid-bench": niid_bench,
        "dirichlet-plain": dirichlet_plain,
        "pathological": pathological,
        "natural": natural,
        "merged": merged,
    },
    adapt=require_function,
)


def _check(samples: int, clients: int, minimum: int) -> None:
    if clients < 1 or minimum < 0:
        raise SettingError(f"{clients} clients of at least {minimum} samples each cannot be")
    if samples < clients * minimum:
        raise SettingError(f"{samples} samples are too few for {clients} clients of at least {minimum}")


def _check_dirichlet(samples: int, clients: int, alpha: float, minimum: int) -> None:
    _check(samples, clients, minimum)
    if not 0 < alpha * clients < np.inf:
        raise SettingError(f"alpha must be positive and finite for {clients} clients together, got {alpha}")


def _by_value(values: Tensor) -> list[Indices]:
    """The indices of each value that occurs, by ascending value."""
    order = values.numpy().argsort(kind="stable")
    _, starts = np.unique(values.numpy()[order], return_index=True)
    return np.split(order, starts[1:])


def _sorted(parts: list[Indices]) -> Parts:
    return tuple(torch.from_numpy(np.sort(part)) for part in parts)

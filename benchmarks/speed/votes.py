"""Counts what the votes among many updates have to compute: steps of K-means, rows that move, and what voters share.

The rounds are those of the cases *votes* of `snowball bench elections`.

    python -m benchmarks.speed.votes          (half a minute)
"""

import torch
from torch import Tensor

from benchmarks.inputs.synthetic import make_layers, make_updates
from benchmarks.measuring.timing import use_one_thread
from benchmarks.speed.elections import CLUSTERS, HUGE
from snowball.defenses.snowball.bottom_up import choose_centroids
from snowball.defenses.snowball.kmeans import split_starts
from snowball.defenses.snowball.lloyd_step import step_plainly, take_first_step


def count_steps(gram: Tensor, starts: Tensor) -> tuple[Tensor, int, int]:
    """Return the final labels of some starts, their steps in total, and the rows that moved in total."""
    members = take_first_step(gram, starts).members
    active, steps, moved = torch.arange(len(starts)), 0, 0
    while len(active):
        found = step_plainly(gram, members[active], CLUSTERS).members
        apart = (found != members[active]).sum(1)
        members[active] = found
        steps, moved = steps + len(active), moved + int(apart.sum())
        active = active[apart > 0]
    return members, steps, moved


def number_clusters(labels: Tensor) -> Tensor:
    """Return (s, n) labels numbered by the first row of each cluster: the same for equal partitions."""
    rows = labels.shape[1]
    first = torch.full((len(labels), CLUSTERS), rows)
    return first.scatter_reduce_(1, labels, torch.arange(rows).expand_as(labels), "amin").gather(1, labels)


def main() -> None:
    """Print one line per round and layer."""
    with use_one_thread():
        for clients in (500, 1000):
            updates = make_updates(make_layers(clients, HUGE))
            for layer in updates.layout.names:
                gram = updates.products(layer)
                starts = choose_centroids(gram, CLUSTERS)
                parts = [count_steps(gram, part) for part in split_starts(starts, gram, CLUSTERS)]
                labels = torch.cat([part[0] for part in parts])
                steps, moved = (sum(counts) / clients for counts in list(zip(*parts, strict=True))[1:])
                begins, ends = (len(rows.unique(dim=0)) for rows in (starts.sort(1).values, number_clusters(labels)))
                print(
                    f"{clients} {layer}: {steps:.1f} steps and {moved:.0f} moved rows per voter, "
                    f"{begins} different starts, {ends} different partitions",
                    flush=True,
                )


if __name__ == "__main__":
    main()

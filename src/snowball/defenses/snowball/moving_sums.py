"""Steps of K-means among many rows: the sums of clusters are updated by the rows that move.

Inner products of a cluster's sum with all rows give all distances, and a row that moves changes two sums. So a step
costs a few passes over the distances, and reads one row of inner products per row that moves.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from snowball.arrays import allocate_rows
from snowball.defenses.snowball.lloyd_step import Step, count_members, step_plainly, sum_members

TOTALS_ELEMENTS = 1 << 18
"""Elements of the totals of moved rows that are added at a time: 2 MiB."""

TOLERANCE = 1e-9
"""Differences of squared distances, relative to squared lengths, that rounding may explain."""

FAR = 100
"""Rows are far if their squared length exceeds the median one this many times."""


@dataclass(frozen=True)
class Moves:
    """The rows that move, over all starts.

    Attributes:
        start: (m,) the start.
        row: (m,) the row.
        left: (m,) the cluster that the row leaves.
        joined: (m,) the cluster that it joins.
    """

    start: Tensor
    row: Tensor
    left: Tensor
    joined: Tensor

    def select(self, chosen: Tensor) -> "Moves":
        """Return some of the moves."""
        return Moves(self.start[chosen], self.row[chosen], self.left[chosen], self.joined[chosen])


class MovingSums:
    """Takes steps of many starts, and updates their sums.

    Rounding errors grow with each update. They could decide between two centroids at almost the same distance, so a
    start with such a row takes a plain step, as does one with an empty cluster, and its sums are computed from scratch.
    So are the sums of a start in which a far row moves. All labels are those of plain steps.

    Attributes:
        labels: (s, n) the nearest centroid of each row, for each start that is not done.
    """

    def __init__(self, gram: Tensor, first: Step, clusters: int) -> None:
        self._gram, self._clusters = gram, clusters
        self.labels, self._members = first.labels.clone(), first.members.clone()
        self._filled = (first.labels != first.members).any(1)  # starts with a row in a cluster that was empty
        shape = (len(self.labels), clusters, len(gram))
        self._products = sum_members(gram, self._members, clusters)  # inner products of sums with all rows
        self._distances = allocate_rows(shape, gram.dtype)  # scratch memory
        self._sizes = count_members(self._members, clusters)
        self._squares = self._sum_squares(self._products, self._members)  # squared lengths of sums
        self._places = self._find_places(torch.arange(len(self.labels)))  # of each row's own cluster in the products
        squares = gram.diagonal()
        self._far = squares > FAR * squares.median()
        self._steady = not self._far.any()
        self._tolerance = TOLERANCE * (3 * squares + FAR * squares.median())

    def take(self) -> tuple[Tensor, Tensor]:
        """Take a step.

        Returns:
            A (s,) mask of starts whose labels did not change, and each row's (s, n) squared distance to its centroid,
            minus its own square. This is NaN where rounding errors may have grown.
        """
        least = self._measure_distances()
        moves, plainly = self._find_moves(least)
        sizes = self._count_after(moves)
        plainly |= self._filled | (sizes == 0).any(1)
        if plainly.any():
            moves = moves.select(~plainly[moves.start])
        done = torch.ones(len(plainly), dtype=torch.bool)
        done[moves.start] = False
        scratch = plainly.clone()
        scratch[moves.start[self._far[moves.row]]] = True
        if plainly.any():
            done[plainly] = self._step_plainly(plainly)
            least[plainly] = torch.nan
        self._move(moves, sizes)
        if scratch.any():
            self._start_again(scratch.nonzero()[:, 0])
        return done, least if self._steady else least.fill_(torch.nan)

    def drop(self, done: Tensor) -> Tensor:
        """Forget the starts that are done, and return the (s,) former numbers of the others.

        The last starts take the places of those that are done, since to move all would take longer.
        """
        count = len(done) - int(done.sum())
        holes, last = done[:count].nonzero()[:, 0], (~done[count:]).nonzero()[:, 0] + count
        for name in ("labels", "_members", "_filled", "_products", "_sizes", "_squares", "_places"):
            array = getattr(self, name)
            array[holes] = array[last]
            setattr(self, name, array[:count])
        self._places[holes] -= ((last - holes) * self._clusters * len(self._gram))[:, None]
        return torch.arange(count).index_put((holes,), last)

    def _measure_distances(self) -> Tensor:
        """Measure to all centroids; return the (s, n) distances to the own one, which become infinite."""
        sizes, distances = self._sizes.clamp(min=1)[:, :, None], self._distances[: len(self.labels)]
        torch.mul(self._products, -2 / sizes, out=distances).add_(self._squares[:, :, None] / sizes**2)
        flat, places = distances.view(-1), self._places.view(-1)
        least = flat.index_select(0, places).view_as(self.labels)
        flat.index_fill_(0, places, torch.inf)
        return least

    def _find_moves(self, least: Tensor) -> tuple[Moves, Tensor]:
        """Return the rows that are nearer to another centroid, and the (s,) starts where rounding may decide."""
        distances = self._distances[: len(least)]
        near = distances.amin(1) <= torch.add(self._tolerance, least, alpha=1 + TOLERANCE)
        place = near.view(-1).nonzero()[:, 0]
        start, row = place // len(self._gram), place % len(self._gram)
        pairs, own = distances[start, :, row], least.view(-1)[place]
        other, joined = pairs.min(1)
        third = pairs.scatter_(1, joined[:, None], torch.inf).amin(1)
        first, second = torch.minimum(own, other), torch.minimum(torch.maximum(own, other), third)
        doubtful = torch.zeros(len(least), dtype=torch.bool)
        doubtful[start[second - first <= torch.add(self._tolerance[row], first.abs(), alpha=TOLERANCE)]] = True
        return Moves(start, row, self._members.view(-1)[place], joined).select(other < own), doubtful

    def _count_after(self, moves: Moves) -> Tensor:
        """Return the (s, k) sizes of the clusters after the moves."""
        sizes, ones = self._sizes.clone(), torch.ones(len(moves.row), dtype=self._sizes.dtype)
        sizes.view(-1).index_add_(0, moves.start * self._clusters + moves.left, ones, alpha=-1)
        sizes.view(-1).index_add_(0, moves.start * self._clusters + moves.joined, ones)
        return sizes

    def _step_plainly(self, starts: Tensor) -> Tensor:
        """Take a plain step of some starts, and return which of them did not change."""
        before, step = self.labels[starts], step_plainly(self._gram, self._members[starts], self._clusters)
        self.labels[starts], self._members[starts] = step.labels, step.members
        self._filled[starts] = (step.labels != step.members).any(1)
        return (step.labels == before).all(1)

    def _move(self, moves: Moves, sizes: Tensor) -> None:
        """Move rows to other clusters, which are numbered over all starts here, and update the sums."""
        rows, self._sizes = len(self._gram), sizes
        left, joined = moves.start * self._clusters + moves.left, moves.start * self._clusters + moves.joined
        place = moves.start * rows + moves.row
        self.labels.view(-1)[place] = self._members.view(-1)[place] = moves.joined
        self._places.view(-1)[place] = joined * rows + moves.row
        self._add_to_squares(moves.row, left, joined)
        self._add_to_products(moves.row, left, joined)
        self._add_to_squares(moves.row, left, joined)

    def _add_to_squares(self, rows: Tensor, left: Tensor, joined: Tensor) -> None:
        """Add the rows' inner products with sums; before and after a move, together they are how squares change."""
        products, squares, columns = self._products.view(-1), self._squares.view(-1), len(self._gram)
        squares.index_add_(0, left, products[left * columns + rows], alpha=-1)
        squares.index_add_(0, joined, products[joined * columns + rows])

    def _add_to_products(self, rows: Tensor, left: Tensor, joined: Tensor) -> None:
        """Add up the rows that go from one cluster to the same other one, and move the totals between the sums."""
        pair, order = (left * self._clusters + joined % self._clusters).sort(stable=True)
        found, counts = pair.unique_consecutive(return_counts=True)  # type: ignore[no-untyped-call]
        source, ends = found // self._clusters, counts.cumsum(0)
        target = source - source % self._clusters + found % self._clusters
        products, size = self._products.view(-1, len(self._gram)), max(1, TOTALS_ELEMENTS // len(self._gram))
        for first in range(0, len(found), size):
            part = slice(first, first + size)
            begins, end = ends[part] - counts[part], ends[part][-1]
            chosen = rows[order[begins[0] : end]]
            totals = embedding_bag(chosen, self._gram, begins - begins[0], mode="sum")
            products.index_add_(0, source[part], totals, alpha=-1).index_add_(0, target[part], totals)

    def _start_again(self, starts: Tensor) -> None:
        """Compute the sums of some starts from scratch."""
        members = self._members[starts]
        products = sum_members(self._gram, members, self._clusters)
        self._products[starts], self._sizes[starts] = products, count_members(members, self._clusters)
        self._squares[starts] = self._sum_squares(products, members)
        self._places[starts] = self._find_places(starts)

    def _sum_squares(self, products: Tensor, members: Tensor) -> Tensor:
        """Return the (s, k) squared lengths of the sums of clusters."""
        own = products.gather(1, members[:, None])[:, 0]
        return torch.zeros(products.shape[:2], dtype=own.dtype).scatter_add_(1, members, own)

    def _find_places(self, starts: Tensor) -> Tensor:
        """Return the (s, n) places of the rows' own clusters among the products, for these numbers of starts."""
        rows = len(self._gram)
        return (starts[:, None] * self._clusters + self._members[starts]) * rows + torch.arange(rows)

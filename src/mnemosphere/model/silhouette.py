"""How many groups unit rows have, by the silhouette of rows that were not grouped.

K-means from a few rows misses some of many groups. So it starts from a tree: rows are merged by Ward's method,
and the tree is cut into any number of groups. The rows themselves would prefer ever smaller groups.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import torch
from scipy.cluster.hierarchy import fcluster, ward
from scipy.spatial.distance import squareform
from torch import Tensor

from mnemosphere.model.kmeans import directions, spherical_kmeans
from mnemosphere.numerics import sphere

MOST_GROUPS = 512
MOST_ROWS = 4000  # of a tree
ROWS_OF_A_GROUP = 5  # at least, on average
_ROUNDS = 20  # of k-means
REAL = 0.05  # by which the silhouette of groups exceeds that of one cloud
_CLOUDS = 5  # of few rows; of many, one is enough


def silhouettes(x: Tensor, label: Tensor, weight: Tensor | None = None) -> Tensor:
    """(b − a)/max(a, b) of each unit row x (n, N) in groups (n,), 0 for a row that is alone.

    a: the mean of 1 − ⟨x, other⟩ over the other rows of its group; b: over those of the nearest other
    group. A weight is so many copies.
    """
    mass = x.new_ones(len(x)) if weight is None else weight.to(x)
    member = torch.nn.functional.one_hot(label).to(x) * mass[:, None]  # (n, k)
    size = member.sum(0)
    overlap = x @ (member.T @ x).T  # (n, k) summed over the rows of each group
    others = size[label] - 1
    own = 1 - (overlap.gather(1, label[:, None])[:, 0] - 1) / others.clamp_min(1e-9)
    other = (1 - overlap / size).scatter(1, label[:, None], torch.inf)
    other = other.masked_fill(size == 0, torch.inf).amin(1)
    found = (other - own) / torch.maximum(own, other).clamp_min(1e-9)
    return torch.where((others > 0) & other.isfinite(), found, 0.0)


class Groupings:
    """Unit rows x (n, N) in any number of groups, n ≥ 4.

    Half of the rows, at most `MOST_ROWS`, are grouped, and the silhouette is that of as many others, assigned to the
    nearest center. Few rows change sides.
    """

    def __init__(self, x: Tensor, weight: Tensor | None = None) -> None:
        weight = x.new_ones(len(x)) if weight is None else weight.to(x)
        self._x, self._weight = x[: 2 * MOST_ROWS], weight[: 2 * MOST_ROWS] / weight.min()
        self._sides = list(zip(self._x.tensor_split(2), self._weight.tensor_split(2), strict=True))
        self._trees: dict[int, Any] = {}
        self.silhouettes: dict[int, float] = {}
        self._errors: dict[int, float] = {}

    def centers(self, k: int, side: int = 0) -> Tensor:
        """Of at most k groups of a side, unit vectors (k, N): its tree cut, improved by k-means."""
        x, weight = self._sides[side]
        if side not in self._trees:
            distance = (2 - 2 * (x.double() @ x.double().T)).clamp_min(0).sqrt()
            self._trees[side] = ward(squareform(distance.cpu().numpy(), checks=False))
        label = torch.from_numpy(fcluster(self._trees[side], k, "maxclust") - 1).to(x.device)
        sums = torch.nn.functional.one_hot(label.long()).to(x).T @ x
        start = directions(sums, x[: len(sums)])
        return spherical_kmeans(x, len(start), weight=weight, start=start, max_iter=_ROUNDS).centers

    def silhouette(self, k: int) -> float:
        """That of k groups."""
        if k not in self.silhouettes:
            parts = []
            for side in (0, 1) if len(self._x) <= MOST_ROWS else (0,):
                x, weight = self._sides[1 - side]
                parts.append(
                    (silhouettes(x, (x @ self.centers(k, side).T).argmax(1), weight), weight)
                )
            found, weight = map(torch.cat, zip(*parts, strict=True))
            share = weight / weight.sum()
            mean = share @ found
            self.silhouettes[k] = float(mean)
            self._errors[k] = float((share * (found - mean)).norm())
        return self.silhouettes[k]

    def best(self, most: int = MOST_GROUPS) -> int:
        """The least number, 2 to `most`, that is within a standard error of the highest silhouette.

        Powers of √2 are tried, then numbers between the best one and its neighbors.
        """
        most = max(2, min(most, MOST_GROUPS, len(self._x) // 2 // ROWS_OF_A_GROUP))
        new = [k for k in sorted({round(2 ** (k / 2)) for k in range(2, 19)}) if k <= most]
        while new:
            scores = {k: self.silhouette(k) for k in {*self.silhouettes, *new}}
            tried = sorted(scores)
            highest = max(tried, key=scores.__getitem__)
            least = scores[highest] - self._errors[highest]
            at = next(i for i, k in enumerate(tried) if scores[k] >= least)
            near = tried[max(0, at - 1) : at + 2]
            new = [(a + b) // 2 for a, b in itertools.pairwise(near) if b - a > 1]
        return tried[at]

    def excess(self, k: int) -> float:
        """The silhouette of k groups, less that of one cloud of rows with this mean and covariance.

        Of few rows, less as much as that varies: two standard deviations over several clouds.
        """
        n_rows, share = min(len(self._x), MOST_ROWS), self._weight / self._weight.sum()
        mean, generator = share @ self._x, torch.Generator().manual_seed(0)
        found = []
        for _ in range(max(1, min(_CLOUDS, MOST_ROWS // n_rows))):
            draws = torch.randn(n_rows, len(share), generator=generator).to(share) * share.sqrt()
            cloud = mean + draws @ (self._x - mean)
            found.append(Groupings(sphere.project(cloud)).silhouette(k))
        return self.silhouette(k) - statistics.mean(found) - 2 * statistics.pstdev(found)

"""What `"auto"` means for clusters: how many, of what shape, and in which geometry.

Clusters that are in the data are found again. So the rows are cut in halves, several times; each
half is clustered by itself, and all rows are assigned by what either half found. How well the two
agree is what the search goes by, over geometries, numbers of clusters and two shapes: one
memory per cluster, which is spherical k-means, and eight that share rows, which give it any shape.

Clusters are found again, and so are groups of clusters: of the numbers close to the best the
largest is taken. It is one if none is stable, or if one cloud of the same mean and covariance is
cut as reliably.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mnemosphere.estimators.choice import Floats, SearchTable, directed
from mnemosphere.estimators.progress import Progress
from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.memory_graph import group, share_graph
from mnemosphere.numerics import sphere
from mnemosphere.rows.stored import StoredRows

FACTOR = 3  # rows grow by it from the first look to the last, candidates shrink by it
NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29)
MEMORIES = 8  # per cluster of any shape
ROWS_PER_MEMORY = 5  # at least: fewer are no cluster
_ROWS, _RESTARTS, _ROUNDS = 1200, 3, 15
_REPEATS = 2, 5  # halves of the first rung and of the last
_MOST_MEMORIES = 80  # in the graph of a half that is cut into many numbers of clusters
_STABLE, _ALIKE = 0.75, 0.03  # agreement of clusters worth the name; what tells no two apart


class Division(NamedTuple):
    """One division of the rows."""

    geometry: str
    n_clusters: int
    memories_per_cluster: int


@dataclass(frozen=True)
class Disagreement:
    """1 less the agreement of two halves, each time."""

    own: Floats

    @property
    def mean(self) -> float:
        """Of all times."""
        return float(self.own.mean())

    def is_close(self, best: Disagreement, slack: float = 0.0) -> bool:
        """Whether it is within one standard error of another (or the slack, if that is larger)."""
        gap = self.own - best.own
        return bool(gap.mean() <= max(slack, gap.std() / len(gap) ** 0.5))


def choose(
    rows: StoredRows, weight: Tensor | None, *, geometry: str, numbers: Sequence[int],
    shapes: Sequence[int], generator: torch.Generator, progress: Progress,
) -> tuple[Division, SearchTable]:  # fmt: skip
    """What halves of the rows agree on; nothing is tried where nothing is open."""
    order = torch.randperm(rows.n_rows, generator=generator)[:_ROWS].to(rows.device)
    some = rows.take(order)
    mass = torch.ones_like(order, dtype=torch.float64) if weight is None else weight[order]
    kinds = _usable(some, mass) if geometry == "auto" else [geometry]
    is_open, most = len(numbers) > 1, max(2, len(order) // 2 // ROWS_PER_MEMORY)
    numbers = [k for k in numbers if k <= most] if is_open else numbers
    options = [Division(kind, k, m) for kind in kinds for m in shapes for k in numbers]
    if (len(options) == 1 and not is_open) or len(order) < 4 * numbers[0]:
        return options[0], SearchTable()

    def halves(left: list[Division], stage: tuple[int, int]) -> list[Disagreement]:
        found: dict[Division, Disagreement] = {}
        for kind in {own.geometry: None for own in left}:
            cases = [own for own in left if own.geometry == kind]
            placed = _placed(some, mass, kind, stage[0])
            found |= zip(cases, _disagreements(placed, cases, stage[1], generator), strict=True)
            progress.show(f"trying clusters of {stage[0]} rows", len(found), len(left))
        return [found[own] for own in left]

    least = 2 * ROWS_PER_MEMORY * max(*NUMBERS, *numbers)
    first = len(order) // FACTOR if len(order) >= FACTOR * least else len(order)
    stages = [(first, _REPEATS[0]), (len(order), _REPEATS[1])]
    stages = stages if is_open else stages[1:]  # few candidates need no first look
    left, trials = options, SearchTable()
    for rung, stage in enumerate(stages):
        found = zip(left, halves(left, stage), strict=True)
        ranked = sorted(found, key=lambda pair: pair[1].mean)
        left = [own for own, _ in ranked[: -(-len(left) // FACTOR)]]
        start = {"rung": rung, "rows": stage[0]}
        trials += [start | _facts(*pair) | {"chosen": False} for pair in ranked]
    place = 0
    if is_open:  # else nothing but the agreement tells shapes and geometries apart
        near = [k for k, (_, own) in enumerate(ranked) if own.is_close(ranked[0][1], _ALIKE)]
        place = min(near, key=lambda k: _complexity(ranked[k][0], kinds))
    trials[place - len(ranked)]["chosen"] = True
    chosen, agreed = ranked[place]
    if is_open:
        placed = _placed(some, mass, chosen.geometry, len(order))
        clouds = (_one_cloud(placed, generator) for _ in range(_REPEATS[1]))
        each = [_disagreements(cloud, [chosen], 1, generator)[0].mean for cloud in clouds]
        same = Disagreement(np.array(each))
        one = 1 - agreed.mean < _STABLE or same.is_close(agreed)
        trial = trials[place - len(ranked)]
        single = Division(chosen.geometry, 1, 1)
        trials.append(trial | _facts(single, same) | {"chosen": one})
        trial["chosen"] = not one
        chosen = single if one else chosen
    return chosen, trials


def _complexity(own: Division, kinds: Sequence[str]) -> tuple[int, int, int]:
    """Preferred: more clusters, then the plainer shape, then the simpler geometry."""
    return -own.n_clusters, own.memories_per_cluster, kinds.index(own.geometry)


def _facts(own: Division, found: Disagreement) -> dict[str, Any]:
    """A trial in plain values."""
    error = float(found.own.std()) / len(found.own) ** 0.5
    return {**own._asdict(), "agreement": 1 - found.mean, "error": error}


def agreement(one: Tensor, other: Tensor, n_clusters: int, weight: Tensor) -> float:
    """How alike two assignments (n,) of weighted rows are: the mean |A ∩ B|/|A ∪ B| of clusters.

    They are matched one to one as well as they can be (C. Hennig, Computational Statistics & Data
    Analysis 52, 2007).
    """
    both = weight.new_zeros(n_clusters, n_clusters, dtype=torch.float64)
    both.index_put_((one, other), weight.double(), accumulate=True)
    union = both.sum(1, keepdim=True) + both.sum(0) - both
    jaccard = (both / union.clamp_min(torch.finfo(torch.float64).tiny)).cpu().numpy()
    return float(jaccard[linear_sum_assignment(jaccard, maximize=True)].mean())


def _usable(rows: StoredRows, mass: Tensor) -> list[str]:
    """The geometries that make sense."""
    return [*directed(rows, mass), "standard"]


def _placed(rows: StoredRows, mass: Tensor, kind: str, n_rows: int) -> Batch:
    """The first n_rows on the sphere; single precision: what decides is how many change sides."""
    x, lost = on_sphere(rows, Geometry.learn(kind, rows, None, mass), torch.float32)
    kept = (~lost).nonzero()[:n_rows, 0]
    return Batch(fill_neutrally(x[kept]), x.new_zeros(len(kept), 1), mass[kept].float())


def _one_cloud(rows: Batch, generator: torch.Generator) -> Batch:
    """Rows of one cloud with the mean and covariance of these."""
    assert rows.sample_weight is not None
    x, share = rows.x, rows.sample_weight / rows.sample_weight.sum()
    mean = share @ x
    draws = torch.randn(rows.n_rows, rows.n_rows, generator=generator).to(x) * share.sqrt()
    return replace(rows, x=sphere.project(mean + draws @ (x - mean)))


def _disagreements(
    rows: Batch, cases: Sequence[Division], repeats: int, generator: torch.Generator
) -> list[Disagreement]:
    """What clusters of halves of the rows disagree on, for candidates of one geometry."""
    weight = rows.sample_weight
    assert weight is not None
    found = np.ones((len(cases), repeats))
    fits = [i for i, own in enumerate(cases) if rows.n_rows >= 4 * own.n_clusters]
    for time in range(repeats):
        order = torch.randperm(rows.n_rows, generator=generator).to(rows.x.device)
        one, other = (
            _assign(rows.x, rows.take(half), [cases[i] for i in fits], generator)
            for half in order.tensor_split(2)
        )
        for i, a, b in zip(fits, one, other, strict=True):
            found[i, time] -= agreement(a, b, cases[i].n_clusters, weight)
    return [Disagreement(own) for own in found]


def _assign(
    x: Tensor, half: Batch, cases: Sequence[Division], generator: torch.Generator
) -> list[Tensor]:
    """The clusters (n,) of all rows x by what one half has, for every candidate."""
    kmeans = partial(
        spherical_kmeans, half.x, weight=half.sample_weight, generator=generator, max_iter=_ROUNDS
    )
    several = [own.n_clusters for own in cases if own.memories_per_cluster > 1]
    if several:  # one graph for all of them
        width = min(MEMORIES * max(several), _MOST_MEMORIES, half.n_rows // ROWS_PER_MEMORY)
        w = kmeans(max(width, *several), restarts=1).centers
        edges = share_graph(w, half).edges
        nearest = (x @ w.T).argmax(1)
    return [
        group(edges, own.n_clusters, generator=generator).label[nearest]
        if own.memories_per_cluster > 1
        else (x @ kmeans(own.n_clusters, restarts=_RESTARTS).centers.T).argmax(1)
        for own in cases
    ]

"""What `"auto"` means for clusters: how many, of what shape, and how rows are normalized.

Clusters that are in the data are found again. So the rows are cut in halves, three times; each half
is clustered by itself, and all rows are assigned by what either half found. Tried are the
normalizations that make sense, two shapes (one memory per cluster, which is spherical k-means, and
eight that share rows, whose clusters can have any shape), and, where it is wanted, the numbers 2 to
29 in steps of about a fifth.

The number is the largest at which clusters are found again: the mean over clusters of
|A ∩ B|/|A ∪ B|, matched one to one, reaches 0.75, from where on C. Hennig (Computational Statistics
& Data Analysis 52, 2007) calls a cluster stable, and is not below that of the number before, as it
is where one cluster is cut at will; else the number that comes nearest. Of the trials with that
number the one is taken whose halves agree on most pairs of rows, by the adjusted Rand index.
Readings within 0.03 of each other are not told apart; the plainer shape goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.memory_graph import group, share_graph
from mnemosphere.model.sparse_rows import SparseRows

NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29)
MEMORIES = 8  # per cluster of any shape
ROWS_PER_MEMORY = 5
SHARED_BY = 2.0  # memories per row, for the graph
_ROWS, _SPLITS, _RESTARTS, _ROUNDS = 1200, 3, 3, 15
_MOST_MEMORIES = 80  # in the graph of a half that is cut into many numbers of clusters
_STABLE, _ALIKE = 0.75, 0.03
_LOST = 0.05  # share of rows that a normalization may leave without direction
_APART = 10.0  # spreads of features further apart are those of unlike units


class Choice(NamedTuple):
    """What was chosen, and the table it was chosen from."""

    normalize: str
    n_clusters: int
    memories_per_cluster: int
    trials: tuple[dict[str, Any], ...]


def choose(
    rows: StoredRows,
    weight: Tensor | None,
    *,
    normalize: str,
    numbers: Sequence[int],
    shapes: Sequence[int],
    generator: torch.Generator,
) -> Choice:
    """The trial on which halves of the rows agree best; nothing is tried where nothing is open."""
    order = torch.randperm(rows.n_rows, generator=generator)[:_ROWS].to(rows.device)
    some = rows.take(order)
    mass = torch.ones_like(order, dtype=torch.float64) if weight is None else weight[order]
    kinds = _usable(some, mass) if normalize == "auto" else [normalize]
    most = max(2, len(order) // 2 // ROWS_PER_MEMORY)
    if len(numbers) > 1:
        numbers = [k for k in numbers if k <= most]
    open_ = len(kinds) > 1 or len(numbers) > 1 or len(shapes) > 1
    trials: list[dict[str, Any]] = []
    for kind in kinds if open_ else []:
        # Single precision: what decides is how many rows change sides.
        x, lost = on_sphere(some, Normalizer.fit(kind, some, mass), torch.float32)
        kept = (~lost).nonzero()[:, 0]
        if len(kept) < 4 * numbers[0]:  # too few to cut in halves
            continue
        batch = Batch(fill_neutrally(x[kept]), x.new_zeros(len(kept), 1), mass[kept].float())
        found = _trials(batch, numbers, shapes, generator)
        trials += [{"normalize": kind, **trial} for trial in found]
    if not trials:
        return Choice(kinds[0], numbers[0], shapes[0], ())
    number = _found_again(trials, numbers)
    same = [t for t in trials if t["n_clusters"] == number]
    limit = max(t["agreement"] for t in same) - _ALIKE
    alike = [t for t in same if t["agreement"] >= limit]
    taken = min(alike, key=lambda t: (t["memories_per_cluster"], -t["agreement"]))
    return Choice(taken["normalize"], number, taken["memories_per_cluster"], tuple(trials))


def _found_again(trials: list[dict[str, Any]], numbers: Sequence[int]) -> int:
    """The largest number of clusters that is stable and no less so than the one before it."""
    stable, before = [], 0.0
    for trial in trials:
        held = trial["n_clusters"] == numbers[0] or trial["stability"] >= before - _ALIKE
        if trial["stability"] >= _STABLE and held:
            stable.append(int(trial["n_clusters"]))
        before = trial["stability"]
    nearest = max(trials, key=lambda trial: float(trial["stability"]))
    return max(stable, default=int(nearest["n_clusters"]))


def compare(one: Tensor, other: Tensor, n_clusters: int, weight: Tensor) -> tuple[float, float]:
    """(stability, agreement) of two assignments (n,) of weighted rows to clusters.

    Stability: the mean |A ∩ B|/|A ∪ B| of clusters matched one to one as well as they can be.
    Agreement: the adjusted Rand index; a row of weight w stands for w copies of itself.
    """
    both = weight.new_zeros(n_clusters, n_clusters, dtype=torch.float64)
    both.index_put_((one, other), weight.double(), accumulate=True)
    left, right = both.sum(1), both.sum(0)
    union = left[:, None] + right - both
    jaccard = (both / union.clamp_min(torch.finfo(torch.float64).tiny)).cpu().numpy()
    stability = float(jaccard[linear_sum_assignment(jaccard, maximize=True)].mean())
    together, in_one, in_other, pairs = (
        float((n * (n - 1)).sum()) for n in (both, left, right, both.sum().reshape(1))
    )
    chance = in_one * in_other / pairs
    most = (in_one + in_other) / 2
    return stability, (together - chance) / (most - chance) if most > chance else 1.0


def _usable(rows: StoredRows, mass: Tensor) -> list[str]:
    """The normalizations that make sense, the paper's first.

    A row of features in unlike units has no direction worth the name, nor has one of zeros.
    """
    thin = isinstance(rows.values, SparseRows)
    if not thin:
        x = rows.values.double()
        spread = torch.where(x.isnan(), x.nanmean(0).nan_to_num(0.0), x).std(0, correction=0)
        spread = spread[spread > 0]
        if len(spread) and float(spread.quantile(0.9)) > _APART * float(spread.median()):
            return ["standard"]
    kinds = []
    for kind, least in (("unit", 2),) if thin else (("center", 3), ("unit", 2)):
        if rows.n_features >= least:
            lost = on_sphere(rows, Normalizer(kind), torch.float64)[1]
            if float(mass[lost].sum()) <= _LOST * float(mass.sum()):
                kinds.append(kind)
    # Sparse rows are counts and the like: their zeros are to stay zeros.
    return kinds if thin and kinds else [*kinds, "standard"]


def _trials(
    rows: Batch, numbers: Sequence[int], shapes: Sequence[int], generator: torch.Generator
) -> list[dict[str, Any]]:
    """What halves of the rows agree on, in the mean, for every shape and number."""
    weight = rows.sample_weight
    assert weight is not None
    cases = [(m, k) for m in shapes for k in numbers]
    total = torch.zeros(len(cases), 2, dtype=torch.float64)
    for _ in range(_SPLITS):
        order = torch.randperm(rows.n_rows, generator=generator).to(rows.x.device)
        cut = rows.n_rows // 2
        one, other = (
            _assign(rows.x, rows.take(part), numbers, shapes, generator)
            for part in (order[:cut], order[cut:])
        )
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            total[i] += torch.tensor(compare(a, b, cases[i][1], weight))
    return [
        {"n_clusters": k, "memories_per_cluster": m, "stability": mean[0], "agreement": mean[1]}
        for (m, k), mean in zip(cases, (total / _SPLITS).tolist(), strict=True)
    ]


def _assign(
    x: Tensor,
    half: Batch,
    numbers: Sequence[int],
    shapes: Sequence[int],
    generator: torch.Generator,
) -> list[Tensor]:
    """The clusters (n,) of all rows x by what one half has, for every shape and number."""
    kmeans = partial(
        spherical_kmeans, half.x, weight=half.sample_weight, generator=generator, max_iter=_ROUNDS
    )
    found = []
    for m in shapes:
        if m == 1:
            for k in numbers:
                found.append((x @ kmeans(k, restarts=_RESTARTS).centers.T).argmax(1))
            continue
        width = min(m * numbers[-1], _MOST_MEMORIES, half.n_rows // ROWS_PER_MEMORY)
        w = kmeans(max(width, numbers[-1]), restarts=1).centers
        edges = share_graph(w, half, shared_by=SHARED_BY).edges
        nearest = (x @ w.T).argmax(1)
        found += [group(edges, k, generator=generator).label[nearest] for k in numbers]
    return found

"""The graph of memories that share rows: labels spread along it, latent classes are its parts.

The share of a memory in a row is r[b,μ] ∝ exp(κ⟨w^μ, x_b⟩), at the κ where a row is shared by a
few memories: enough to connect neighbors, whatever β is. The weight of the edge (μ, ν) is how often
a row is divided between the two, Σ_b r[b,μ] r[b,ν].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.one_pass import chunks
from mnemosphere.numerics import sphere

SHARED_BY = 2.0  # memories per row
_PROBE_ROWS = 4096  # enough for the temperature
_KAPPAS = math.log(1e-2), math.log(1e6)
_LITTLE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of log κ
_WALKS = 100  # price^100 is 1e-7 at 0.85
_RESTARTS = 20
_TIES = 0.01  # of all with all, in units of the mean edge: more would cut long thin groups


class Graph(NamedTuple):
    """Memories, and what they share."""

    edges: Tensor  # (P, P) Σ_b r[b,μ] r[b,ν]
    labels: Tensor  # (P, C+1) Σ_b r[b,μ] q[b,y]: the label weights of the rows of each memory


def sharing_temperature(overlap: Tensor, shared_by: float, weight: Tensor | None = None) -> float:
    """The κ at which softmax(κ·overlap) of rows (B, P) has the mean entropy log(shared_by).

    Between 0.01 and a million, as far as the precision of the overlaps allows.
    """
    # A few of few memories would be no selection at all.
    target = math.log(min(shared_by, 1 + 0.1 * overlap.shape[1]))
    weight = torch.ones_like(overlap[:, 0]) if weight is None else weight.to(overlap)

    def excess(log_kappa: float) -> float:
        log_share = (math.exp(log_kappa) * overlap).log_softmax(1)
        entropy = -(log_share.exp() * log_share).sum(1)
        return float(entropy @ weight / weight.sum()) - target

    low, high = _KAPPAS
    if excess(high) >= 0:  # memories that do not differ
        return math.exp(high)
    if excess(low) <= 0:  # one memory
        return math.exp(low)
    return math.exp(brentq(excess, low, high, xtol=_LITTLE[overlap.dtype]))


def share_graph(w: Tensor, batch: Batch) -> Graph:
    """The graph of the memories w (P, N) on these rows."""
    batch = batch.filled()
    step = -(-batch.n_rows // _PROBE_ROWS)
    probe = batch.take(slice(None, None, step))
    kappa = sharing_temperature((probe.x @ w.T).double(), SHARED_BY, probe.sample_weight)
    edges = w.new_zeros(w.shape[0], w.shape[0], dtype=torch.float64)
    labels = w.new_zeros(w.shape[0], batch.targets.shape[1], dtype=torch.float64)
    for part in map(batch.take, chunks(batch.n_rows, w.shape[0], w.device)):
        r = (kappa * (part.x @ w.T)).softmax(1)  # (B, P)
        weighted = r * part.weights[:, None]
        edges += weighted.T @ r  # (P, B) (B, P)
        labels += weighted.T @ part.targets  # (P, B) (B, C+1)
    return Graph(edges, labels)


def spread_labels(graph: Graph, price: float) -> tuple[Tensor, Tensor]:
    """Label propagation: (soft labels (P, C+1) of sum 1, which memories a label reaches (P,)).

    F = Σ_k (price·A)^k D^(-1/2) Y with A = D^(-1/2) S D^(-1/2): walks on the graph S from the
    labels Y, each step at a price. The rows of D^(-1/2) F, scaled to sum 1, are the soft labels;
    zeros where no walk arrives.
    """
    scale = graph.edges.sum(1).clamp_min(torch.finfo(graph.edges.dtype).tiny).rsqrt()  # D^(-1/2)
    walk = price * scale[:, None] * graph.edges * scale
    source = scale[:, None] * graph.labels
    spread = source
    for _ in range(_WALKS):
        spread = torch.addmm(source, walk, spread)  # (P, P) (P, C+1)
    soft = scale[:, None] * spread
    total = soft.sum(1, keepdim=True)
    reached = total > 0
    soft = torch.where(reached, soft / torch.where(reached, total, 1.0), 0.0)
    return soft, reached[:, 0]


class Groups(NamedTuple):
    """Groups of memories, the largest first."""

    label: Tensor  # (P,)
    closeness: Tensor  # (P, C) in [−1, 1]: of each memory to each group


def group(edges: Tensor, n_groups: int, *, generator: torch.Generator) -> Groups:
    """Cut the graph (P, P) into n_groups parts of strong ties: regularized spectral clustering.

    The leading eigenvectors of D^(−1/2) A D^(−1/2) place every memory on a sphere, where k-means
    finds the groups, a memory weighing as much as its rows. A weak tie of all with all (as Qin and
    Rohe have it) keeps a few memories at the rim from being cut off as groups of their own.
    """
    a = edges.double().cpu()
    a = a + _TIES * a.mean()
    degree = a.sum(1)
    root = degree.rsqrt()
    _, vectors = torch.linalg.eigh(root[:, None] * a * root)
    u = sphere.project(vectors[:, -n_groups:])  # (P, C)
    label, centers = spherical_kmeans(
        u, n_groups, weight=degree, restarts=_RESTARTS, generator=generator
    )
    # Groups of one size in the order of their first memories: runs that differ by rounding agree.
    all_ = label.tolist()
    order = torch.tensor(sorted(range(n_groups), key=lambda c: (-all_.count(c), all_.index(c))))
    closeness = u @ centers[order].T  # (P, C)
    return Groups(order.argsort()[label].to(edges.device), closeness.to(edges.device))


def group_memories(w: Tensor, batch: Batch, n_groups: int, *, generator: torch.Generator) -> Groups:
    """Groups of the memories w (P, N) by the rows they share; each group is nearest to some row.

    A memory that is nearest to none goes with the one most like it: it has no ties to tell by.
    """
    x = fill_neutrally(batch.x)
    alive = (x @ w.T).argmax(1).bincount(minlength=w.shape[0]) > 0
    if n_groups == w.shape[0] or int(alive.sum()) < n_groups:
        alive = torch.ones_like(alive)
    edges = share_graph(w, batch).edges
    groups = group(edges[alive][:, alive], n_groups, generator=generator)
    kin = torch.where(alive, alive.cumsum(0) - 1, (w @ w[alive].T).argmax(1))
    return Groups(groups.label[kin], groups.closeness[kin])

"""Latent classes for memories learned without labels: where they start, how they are trained.

Eq. (unsupervised_loss) is flat at its symmetric start p = p_h p_q^T: no class differs from another
but by its prior, and what breaks the symmetry is how much data each memory happens to hold, not
which memories are alike. So the classes start from groups of memories that share rows, found by
the graph whose edge (μ, ν) is how often a row is divided between the two: where that graph is
thin, a boundary between classes leaves few rows undecided, which is what the loss asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.model.kernel import Statistics, chunks
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training.batches import Batch, Data, State
from mnemosphere.training.sgd import SGD

_GRAPH_ROWS = 1 << 17  # rows that are enough for the graph
_PROBE_ROWS = 4096  # and for its temperature
_NEIGHBORS = 2.0  # memories that share a row, on average
_CONTRAST = 100.0  # log-odds of a group over its opposite, before p_q has its say
_LEAST_SOFTNESS = 1e-3
_RESTARTS, _ROUNDS = 20, 50


def latent_prior(class_prior: Tensor, smoothing: float) -> Tensor:
    """p_q (C+1,) for C proportions: softened like the labels, the last entry "none of them".

    p_q = (1−ε)·proportions + ε/(C+1), what the softened predictions of Eq. (unsupervised_loss)
    average to where the classes are used in these proportions.
    """
    columns = class_prior.shape[0] + 1
    p_q = class_prior.new_full((columns,), smoothing / columns)
    p_q[:-1] += (1 - smoothing) * class_prior / class_prior.sum()
    return p_q


def affinity(params: Parameters, data: Data, *, generator: torch.Generator) -> Tensor:
    """Graph of the memories, (P, P) in float64: Σ_b r[b,μ] r[b,ν] over (at most 131,072) rows.

    r is the share of a memory in a row at the temperature where a row is shared by two memories
    (the mean over rows of the entropy is log 2): enough to connect neighbors, whatever β is.
    """
    if data.n_rows > _GRAPH_ROWS:
        order = torch.randperm(data.n_rows, generator=generator, device=generator.device)
        data = data.take(order[:_GRAPH_ROWS].to(data.x.device))
    beta = _sharing_temperature(params.w, data)
    graph = params.w.new_zeros(params.n_memories, params.n_memories, dtype=torch.float64)
    for rows in chunks(data.n_rows, params.n_memories, data.x.device):
        r = (beta * (data.x[rows] @ params.w.T)).softmax(1)  # (B, P)
        weighted = r if data.sample_weight is None else r * data.sample_weight[rows, None]
        graph += (weighted.T @ r).double()  # (P, P)
    return graph


def _sharing_temperature(w: Tensor, data: Data) -> float:
    """The inverse temperature at which a row is shared by two memories, by bisection."""
    step = -(-data.n_rows // _PROBE_ROWS)
    overlap = data.x[::step] @ w.T  # (B, P)
    weight = None if data.sample_weight is None else data.sample_weight[::step]
    # Two of a few memories would be no selection at all.
    target = torch.tensor(min(_NEIGHBORS, 1 + 0.1 * w.shape[0])).log()
    low, high = -5.0, 15.0  # log β
    for _ in range(30):
        middle = (low + high) / 2
        log_r = (torch.tensor(middle).exp() * overlap).log_softmax(1)
        entropy = -(log_r.exp() * log_r).sum(1)
        mean = entropy.mean() if weight is None else (entropy * weight).sum() / weight.sum()
        low, high = (middle, high) if float(mean) > float(target) else (low, middle)
    return float(torch.tensor((low + high) / 2).exp())


class Groups(NamedTuple):
    """Groups of memories, the largest first."""

    label: Tensor  # (P,)
    closeness: Tensor  # (P, C) in [−1, 1]: of each memory to each group


def group(graph: Tensor, n_groups: int, *, generator: torch.Generator) -> Groups:
    """Cut the graph (P, P) into n_groups parts of strong ties: normalised spectral clustering.

    The leading eigenvectors of D^(−1/2) A D^(−1/2) place every memory on a sphere, where k-means
    finds the groups.
    """
    a = graph.double().cpu()
    a = a + 1e-6 * a.mean()  # a memory that answers for nothing has ties to all
    root = a.sum(1).rsqrt()
    _, vectors = torch.linalg.eigh(root[:, None] * a * root)
    u = sphere.project(vectors[:, -n_groups:])  # (P, C)
    label, centers = _spherical_kmeans(u, n_groups, generator)
    order = torch.bincount(label, minlength=n_groups).argsort(descending=True, stable=True)
    place = order.argsort()
    return Groups(
        place[label].to(graph.device),
        (u @ centers[order].T).to(graph.device),  # (P, C)
    )


def _spherical_kmeans(u: Tensor, k: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(label (n,), centers (k, d)) of unit rows u, the best of many starts, none of them empty."""
    best, found = -torch.inf, (torch.zeros(len(u), dtype=torch.long), u[:k])
    for _ in range(_RESTARTS):
        centers = u[_spread_out(u, k, generator)]
        label = (u @ centers.T).argmax(1)
        for _ in range(_ROUNDS):
            sums = torch.zeros_like(centers).index_add_(0, label, u)
            norms = sums.norm(dim=1, keepdim=True)
            centers = torch.where(norms > 1e-9, sums / norms.clamp_min(1e-9), centers)
            before, label = label, (u @ centers.T).argmax(1)
            if torch.equal(before, label):
                break
        score = float((u * centers[label]).sum())
        full = bool((torch.bincount(label, minlength=k) > 0).all())
        if full and score > best:
            best, found = score, (label, centers)
    if best == -torch.inf:  # copies of one memory cannot be told apart: deal them out
        found = (torch.arange(len(u)) % k, u[:k])
    return found


def _spread_out(u: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Indices of k rows, each drawn in proportion to its squared distance to those before it."""
    distance = torch.ones(len(u), dtype=torch.float64)
    chosen = []
    for _ in range(k):
        chosen.append(int(torch.multinomial(distance, 1, generator=generator)))
        distance = torch.minimum(distance, (1 - u @ u[chosen[-1]]).clamp_min(1e-12))
    return torch.tensor(chosen)


def start_classes(
    params: Parameters, groups: Groups, class_prior: Tensor | None, smoothing: float
) -> Parameters:
    """Give memories class weights that follow their groups, in the polytope of p_h and p_q.

    class_prior (C,): proportions of the classes, the largest for the largest group; None takes
    the groups' own. Memories move between groups as little as those proportions need.
    """
    n_classes = groups.closeness.shape[1]
    size = torch.bincount(groups.label, minlength=n_classes).to(params.p)
    closeness = groups.closeness.to(params.p)
    if class_prior is None:
        class_prior = size
    else:
        class_prior = class_prior.to(params.p)
        rank = class_prior.argsort(descending=True, stable=True).argsort()
        closeness = closeness[:, rank]  # class y takes the group whose size has its rank
    p_q = latent_prior(class_prior, smoothing)
    # Memories go to the groups they are closest to, as far as the columns have room; the uniform
    # component belongs to no class in particular, and to "none" first of all.
    log_k = torch.nn.functional.pad(_CONTRAST * closeness, (0, 1, 1, 0), value=-_CONTRAST)
    log_k[0] = 0.0
    log_k[0, -1] = _CONTRAST
    sharp = polytope.sinkhorn(log_k, params.p_h, p_q, tol=1e-9).raise_if_failed().p
    # No surer than the labels are: a class that ε has explain a row cannot all but exclude it.
    floor = max(smoothing, _LEAST_SOFTNESS)
    p = (1 - floor) * sharp + floor * params.p_h[:, None] * p_q
    return params.replace(p=p, p_q=p_q)


def latent_class(params: Parameters) -> Tensor:
    """The class of each memory, argmax_y p^μ_y, (P,); C is "none of them"."""
    return params.p[1:].argmax(1)


class Coherence(NamedTuple):
    """Mean overlap of pairs of memories: of one class, of two classes, and of one shuffled class.

    Classes are coherent as far as `within` lies above `shuffled`.
    """

    within: float
    across: float
    shuffled: float


def coherence(w: Tensor, label: Tensor, *, generator: torch.Generator) -> Coherence:
    """How alike the memories w (P, N) of one class (P,) are.

    Shuffled: the same class sizes dealt out at random, mean of 100.
    """
    w, label = w.double().cpu(), label.cpu()
    overlap = w @ w.T  # (P, P)
    pair = ~torch.eye(len(w), dtype=torch.bool)

    def within(y: Tensor) -> float:
        same = (y[:, None] == y[None, :]) & pair
        return float(overlap[same].mean()) if bool(same.any()) else float("nan")

    other = label[:, None] != label[None, :]
    draws = [within(label[torch.randperm(len(w), generator=generator)]) for _ in range(100)]
    return Coherence(
        within(label),
        float(overlap[other].mean()) if bool(other.any()) else float("nan"),
        sum(draws) / len(draws),
    )


@dataclass(frozen=True)
class ClassWeightSGD(SGD):
    """SGD of the class weights alone: memories and β stay.

    The row sums of p are fixed, so that the density Σ_y P(x, y) of the data stays too.
    """

    def step(
        self, params: Parameters, state: State, stats: Statistics, batch: Batch
    ) -> tuple[Parameters, State]:
        """One step from the statistics of one batch."""
        new, after = super().step(params, state, stats, batch)
        return params.replace(p=new.p), {**state, "p": after["p"]}

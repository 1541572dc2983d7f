"""A start for data of which most rows have no label.

Started with class weights that know nothing, a memory that meets no labelled row takes whatever
label rounding suggests, and the fixed point then believes it: with fewer labels than memories,
rows without labels do harm. So labels come second here. The memories settle on the marginal
likelihood of all rows; then, memories held, labels spread from memory to memory, wherever two
answer for the same rows; from there on the usual training goes, labels kept.

The spreading is label propagation on a graph whose nodes are the memories. With the shares
r[b,μ] ∝ exp(κ⟨w^μ, x_b⟩) of memories in rows, κ such that a row is shared by 2.5 memories on
average, the edge weights are S = Σ_b r[b]ᵀ r[b] (P, P), the seeds Y = Σ_b r[b]ᵀ q[b] (P, C+1), and
F = Σ_k (αA)^k D^(-1/2) Y, A = D^(-1/2) S D^(-1/2): walks on the graph, each step at the price α.
The rows of D^(-1/2) F, scaled to sum 1, are the soft labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.kernel import chunk_rows
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.loop import Result, train

PHASE = -1  # of the passes in which labels are unseen
PRICE = 0.85  # α: a walk of six steps still counts a third
SHARED_BY = 2.5  # memories a row, on average: the perplexity of its shares
_PROBE_ROWS = 256
_WALKS = 100  # α^100 is 1e-7
_PASSES = (20, 3)  # for memories to settle: exact full steps, incremental steps


def applies(data: Data) -> bool:
    """Whether some rows have no label at all."""
    return bool((data.targets.sum(1) == 0).any())


def start(
    params: Parameters,
    data: Data,
    *,
    batch_size: int | None,
    learn_beta: bool = True,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Settle the memories of `params` on all rows, labels unseen; then label them."""
    solver = FixedPoint(batch_size, learn_beta)
    settled = train(
        params,
        data,
        solver,
        rule=objectives.marginal,
        max_epochs=_PASSES[batch_size is not None],
        tol=1e-4,
        generator=generator,
        callbacks=callbacks,
        phase=PHASE,
    )
    labelled = label_memories(settled.params, data)
    return Result(labelled, settled.state, settled.history, settled.status)


def label_memories(params: Parameters, data: Data, *, price: float = PRICE) -> Parameters:
    """Class weights from the labels of `data`, near or far, memories held.

    The class prior becomes that of the propagated labels, over all memories: a few labels count
    classes worse than the many rows they speak for. Memories that no walk reaches, and the uniform
    component, get that prior.
    """
    edges, seeds = _graph(params, data)
    scale = edges.sum(1).clamp_min(torch.finfo(edges.dtype).tiny).rsqrt()  # (P,) D^(-1/2)
    walk = price * scale[:, None] * edges * scale
    source = scale[:, None] * seeds
    spread = source
    for _ in range(_WALKS):
        spread = torch.addmm(source, walk, spread)  # (P, P) (P, C+1)
    soft = (scale[:, None] * spread).double()
    total = soft.sum(1, keepdim=True)
    reached = total > 0
    soft = torch.where(reached, soft / torch.where(reached, total, 1.0), 0.0)
    p_h = params.p_h.double()
    p_q = (p_h[1:, None] * soft).sum(0)
    p_q = p_q / p_q.sum() if bool(reached.any()) else params.p_q.double()
    p = p_h[:, None] * torch.cat([p_q[None], torch.where(reached, soft, p_q)])
    p = p / p.sum()
    return params.replace(p=p.to(params.p), p_h=p.sum(1).to(params.p), p_q=p.sum(0).to(params.p))


def _graph(params: Parameters, data: Data) -> tuple[Tensor, Tensor]:
    """(S (P, P), Y (P, C+1))."""
    w = params.w
    kappa = sharpness(data.x[:: max(1, data.n_rows // _PROBE_ROWS)] @ w.T)
    edges = w.new_zeros(w.shape[0], w.shape[0])
    seeds = torch.zeros_like(params.p[1:])
    # A chunk no smaller than the graph: adding to S costs as much as a product then.
    step = max(chunk_rows(w.shape[0], w.device), w.shape[0])
    for first in range(0, data.n_rows, step):
        rows = slice(first, first + step)
        r = (kappa * (data.x[rows] @ w.T)).softmax(1)  # (B, P)
        weighted = r if data.sample_weight is None else r * data.sample_weight[rows, None]
        edges.addmm_(weighted.T, r)  # (P, B) (B, P)
        seeds.addmm_(weighted.T, data.targets[rows])  # (P, B) (B, C+1)
    return edges, seeds


def sharpness(overlap: Tensor) -> float:
    """The κ at which rows of overlaps (B, P) are shared by `SHARED_BY` memories on average.

    Sharing is the perplexity of softmax(κ·overlap); with no more memories than that, the shares
    stay soft.
    """
    overlap = overlap[:_PROBE_ROWS].double()
    low, high = math.log(1e-2), math.log(1e6)
    for _ in range(30):
        middle = (low + high) / 2
        log_share = (math.exp(middle) * overlap).log_softmax(1)
        entropy = -(log_share.exp() * log_share).sum(1)
        low, high = (middle, high) if float(entropy.exp().mean()) > SHARED_BY else (low, middle)
    return math.exp(high)

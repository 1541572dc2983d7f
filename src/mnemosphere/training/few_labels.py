"""A start for data of which most rows have no label.

With uninformative class weights, a memory that meets no labeled row takes whatever label rounding
suggests, and the fixed point then believes it: with fewer labels than memories, rows without labels
do harm. So labels come second here. The memories settle on the marginal likelihood of all rows;
then, memories held, labels spread from memory to memory wherever two answer for the same rows
(`model.memory_graph`); from there on the usual training goes, labels kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.memory_graph import share_graph, spread_labels
from mnemosphere.model.mixture import Mixture
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint

PHASE = -1  # of the passes in which labels are unseen
_PRICE = 0.85  # of a step along the graph: a walk of six still counts a third
_GRAPH_ROWS = 1 << 17
_PASSES = (20, 3)  # for memories to settle: exact full steps, incremental steps


def fit_unlabeled_start(
    params: Mixture,
    dataset: ArrayDataset,
    *,
    learn_beta: bool,
    generator: torch.Generator,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train the memories of `params` on all rows, labels unseen; then label them."""
    solver = FixedPoint().resolve(dataset.n_rows, learn_beta=learn_beta, device=dataset.device)
    settled = fit(
        params, dataset, solver, rule=objectives.marginal,
        max_iter=_PASSES[solver.rows_per_step is not None], generator=generator, callbacks=callbacks,
    )  # fmt: skip
    labeled = label_memories(settled.params, dataset.sample(_GRAPH_ROWS, generator=generator))
    return replace(settled, params=labeled, history=settled.in_phase(PHASE))


def label_memories(params: Mixture, batch: Batch) -> Mixture:
    """Class weights from the labels of these rows, near or far, memories held.

    The class prior becomes that of the propagated labels, over all memories: a few labels count
    classes worse than the many rows they speak for. Memories that no walk reaches, and the uniform
    component, get that prior.
    """
    soft, reached = spread_labels(share_graph(params.w, batch), _PRICE)
    p_h = params.p_h.double()
    p_q = (p_h[1:, None] * soft).sum(0)
    p_q = p_q / p_q.sum() if bool(reached.any()) else params.p_q.double()
    p = p_h[:, None] * torch.cat([p_q[None], torch.where(reached[:, None], soft, p_q)])
    p = p / p.sum()
    return params.with_classes(p)

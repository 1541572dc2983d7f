"""What can be chosen where most rows have no label.

What suits labelled rows alone does not suit them here: with few labels a small ς is best, and at a
small ς memories that see no labels all settle on one place. So ς is set by the rows: to the β_eff
at which a row is shared by a few memories, the scale on which labels will spread among them. And a
normalization is judged the way training will go: memories settle on all rows, labels unseen, and
are labelled by spreading, each fifth of the labels left out in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.training import semi_supervised
from mnemosphere.training.batches import Data

_BATCHES = 10


def sharing(x: Tensor, n_memories: int) -> tuple[float, float]:
    """(β_eff, mean overlap) at which rows are shared by a few of `n_memories` other rows.

    x (n, N) unit rows in random order.
    """
    n_memories = max(1, min(n_memories, x.shape[0] // 2))
    overlap = (x[n_memories:] @ x[:n_memories].T).double()  # (rows left, P)
    kappa = semi_supervised.sharpness(overlap)
    return kappa, float(((kappa * overlap).softmax(1) * overlap).sum(1).mean())


def held_out_loss(
    initial: Parameters, data: Data, truth: Tensor, folds: Sequence[Tensor], *, seed: int
) -> float:
    """Mean −log P(class | x) of labelled rows, those of each fold left out in turn.

    truth (n,) classes of the rows; folds: masks (n,) of labelled rows.
    """
    settled = semi_supervised.start(
        initial,
        data,
        batch_size=max(1, data.n_rows // _BATCHES),
        generator=torch.Generator().manual_seed(seed),
    ).params
    losses, weights = [], []
    for held in folds:
        targets = torch.where(held[:, None], 0.0, data.targets)
        params = semi_supervised.label_memories(settled, replace(data, targets=targets))
        judged = data.take(held)
        scores = log_joint(params, judged.x)[:, :-1].double().log_softmax(1)
        losses.append(-scores.gather(1, truth[held, None])[:, 0])  # (rows of the fold,)
        weight = judged.sample_weight
        weights.append(torch.ones_like(losses[-1]) if weight is None else weight.double())
    loss, weight = torch.cat(losses), torch.cat(weights)
    return float((loss * weight).sum() / weight.sum())

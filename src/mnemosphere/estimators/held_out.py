"""Training rows as they would look to a model that had not seen them: what it is calibrated by.

The choice has trained votes on parts of the rows, and the others are held out: what those votes say of them,
less what the votes of the model say, is kept. A density is not trained again: each row is taken out of the
means and weights of its memories instead, in closed form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.fitted.model import HeldOut
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate, exponents, log_joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.votes import Votes

__all__ = ["cross_fitted", "left_out", "of_others"]

_MOST_ROWS, _MOST_NUMBERS = 2000, 1 << 20  # that a model keeps
_SAME = 1e-5  # 1 less the overlap of a row with itself
_LEAST = 1e-12  # share of its weight that a memory keeps without a row


def of_others(votes: Votes, rows: Batch) -> HeldOut:
    """Of rows that neither votes nor density have seen."""
    rows = rows.take(_some(rows))
    none = torch.zeros_like(rows.targets, dtype=torch.float32)
    return _held(votes, rows, none, none[:, 0])


def cross_fitted(
    votes: Votes, density: Parameters, rows: Batch, said: Tensor, learned: Batch, n_rows: int
) -> HeldOut:
    """Of rows that votes and density have seen.

    said (n, C+1): the log of votes that have not seen them; learned: rows that the density was learned
    from, or some of these n_rows.
    """
    some = _some(rows)
    rows, said = rows.take(some), said[some]
    own = log_joint(votes.precise, rows.x.to(votes.precise.w.dtype))
    shift = HeldOut.difference(said, own)
    return _held(votes, rows, shift, left_out(density, rows, learned, n_rows))


def _some(rows: Batch) -> Tensor:
    """Numbers of as many rows as are kept, evenly spaced."""
    most = min(rows.n_rows, _MOST_ROWS, max(1, _MOST_NUMBERS // rows.x.shape[1]))
    return torch.linspace(0, rows.n_rows - 1, most, device=rows.x.device).long()


def _held(votes: Votes, rows: Batch, shift: Tensor, novelty: Tensor) -> HeldOut:
    column = rows.targets[:, :-1].argmax(1)
    x, shift, novelty = (t.to_dense().float().cpu() for t in (rows.x, shift, novelty))
    return HeldOut(x, column.cpu(), shift, novelty, votes.temperature)


def left_out(density: Parameters, rows: Batch, learned: Batch, n_rows: int) -> Tensor:
    """By how much the novelty scores of rows exceed those that they have as part of the density, (n,).

    Without a row of responsibility r, the mean of a memory is w̄ − r·x and its weight is less by the share r of
    its mass; slope, offset and the responsibilities of other rows stay. Rows that are none of those learned
    from are as they are.
    """
    stats = accumulate(density, learned.filled().to(dtype=density.w.dtype), objectives.joint)
    each = learned.total_weight / learned.n_rows  # weight of a row
    scale = n_rows / learned.n_rows / each
    density, mean = density.to(dtype=torch.float64), stats.w_bar.double() * scale
    mass = stats.p_bar[1:].sum(1).double() * scale
    rows = rows.filled().to(dtype=torch.float64)
    x = rows.x.to_dense()
    overlap = x @ density.w.T
    h = exponents(density, overlap)  # (n, P+1)
    part = (h - h.amax(1, keepdim=True)).exp()
    goal = rows.targets / (part @ density.p).clamp_min(torch.finfo(part.dtype).tiny)
    r = (part * (goal @ density.p.T))[:, 1:]  # responsibilities
    r = torch.minimum(r, mass * (1 - _LEAST))
    along, square = x @ mean.T, mean.square().sum(1)
    length = (square - 2 * r * along + r.square()).clamp_min(_LEAST).sqrt()
    without = ((along - r) / length).clamp(-1.0, 1.0)
    weight = density.p[1:].sum(1).clamp_min(torch.finfo(x.dtype).tiny).log()
    before = (weight + h[:, 1:]).logsumexp(1)
    after = (weight + (1 - r / mass).log() + exponents(density, without)[:, 1:]).logsumexp(1)
    if learned.n_rows < n_rows:
        near = (learned.x @ x.T.to(learned.x.dtype)).to_dense().amax(0)
        return torch.where(near > 1 - _SAME, before - after, 0.0)
    return before - after

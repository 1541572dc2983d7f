"""Training rows as they would look to a model that had not seen them: what it is calibrated by.

The choice has trained votes on parts of the rows, and the others are held out: what those votes say of them,
less what the votes of the model say, is kept. So it is with a density of each part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.fitted.model import HeldOut
from mnemosphere.model import retrieval
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.votes import Mixture, Votes

__all__ = ["cross_fitted", "novelty_of", "of_others"]

_MOST_ROWS, _MOST_NUMBERS = 2000, 1 << 20  # that a model keeps


def of_others(votes: Votes, rows: Batch) -> HeldOut:
    """Of rows that neither votes nor density have seen."""
    rows = rows.take(_some(rows))
    none = torch.zeros_like(rows.targets, dtype=torch.float32)
    return _held(votes, rows, none, none[:, 0])


def cross_fitted(
    votes: Votes, density: Mixture, rows: Batch, said: Tensor, strange: Tensor
) -> HeldOut:
    """Of rows that votes and density have seen.

    said (n, C+1): the log of votes that have not seen them; strange (n,): novelty scores by densities that
    have not.
    """
    some = _some(rows)
    rows, said, strange = rows.take(some), said[some], strange[some]
    own = log_joint(votes.precise, rows.x.to(votes.precise.w.dtype))
    shift = HeldOut.difference(said, own)
    return _held(votes, rows, shift, strange - novelty_of(density, rows))


def novelty_of(density: Mixture, rows: Batch) -> Tensor:
    """Novelty scores of rows by a density, (n,)."""
    return retrieval.novelty_score(density.to(dtype=rows.x.dtype), rows.x)


def _some(rows: Batch) -> Tensor:
    """Numbers of as many rows as are kept, evenly spaced."""
    most = min(rows.n_rows, _MOST_ROWS, max(1, _MOST_NUMBERS // rows.x.shape[1]))
    return torch.linspace(0, rows.n_rows - 1, most, device=rows.x.device).long()


def _held(votes: Votes, rows: Batch, shift: Tensor, novelty: Tensor) -> HeldOut:
    column = rows.targets[:, :-1].argmax(1)
    x, shift, novelty = (t.to_dense().float().cpu() for t in (rows.x, shift, novelty))
    return HeldOut(x, column.cpu(), shift, novelty, votes.temperature)

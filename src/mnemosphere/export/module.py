"""A fitted model as a torch layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mnemosphere.fitted.model import FittedModel
from mnemosphere.model.kernel import least_density, shares
from mnemosphere.model.votes import Votes

_VOTES = ("w", "p", "slope", "offset", "prior")


class DAMModule(nn.Module):
    """A fitted model as a torch layer, differentiable in its input.

    Raw rows go in, log-probabilities come out: the geometry is part of the layer. Everything learned
    is a buffer, so an optimizer does not train it.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.

    Examples
    --------
    >>> layer = mn.export.DAMModule(model)
    >>> layer(torch.tensor(X_test.to_numpy())).argmax(1)[:3]
    tensor([0, 2, 1])
    """

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        votes, geometry = model.precise_votes, model.geometry
        self.geometry, self.varsigma = geometry, votes.varsigma
        for name in _VOTES:
            self.register_buffer(name, getattr(votes, name).clone())
        for name, tensor in geometry.tensors(derived=True).items():
            self.register_buffer(f"row_{name}", tensor.to(votes.w.device))

    def forward(self, x: Tensor) -> Tensor:
        """Compute log P(y | x, y is one of the C classes), as `predict_log_proba`.

        Parameters
        ----------
        x : tensor of shape (B, N)
            Raw rows; NaN for missing values.

        Returns
        -------
        tensor of shape (B, C)
            Log-probabilities.

        Examples
        --------
        >>> mn.export.DAMModule(model).forward(torch.tensor(X_test.to_numpy())).shape
        torch.Size([60, 3])
        """
        buffers = dict(self.named_buffers())
        learned = {k[4:]: t for k, t in buffers.items() if k.startswith("row_")}
        w, p, slope, offset, prior = (buffers[name] for name in _VOTES)
        votes = Votes(w, p, slope, offset, prior, p.sum(1), varsigma=self.varsigma)
        unit, lost = self.geometry.with_tensors(learned).place(x)
        share, _ = shares(votes, unit.to(votes.w.dtype))
        scores = (share @ votes.labels).clamp_min(least_density(p.dtype)).log()
        alone = prior.clamp_min(torch.finfo(prior.dtype).tiny).log()
        return torch.where(lost[:, None], alone, scores)[:, :-1].log_softmax(1)

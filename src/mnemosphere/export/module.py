"""A fitted model as a torch layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mnemosphere.fitted.model import FittedModel
from mnemosphere.model.one_pass import least_density, shares

_VOTES = "votes_"


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
        self.geometry, self._votes = geometry, votes
        for name, tensor in votes.tensors().items():
            self.register_buffer(_VOTES + name, tensor.clone())
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
        votes = self._votes.replace(**{
            name.removeprefix(_VOTES): t for name, t in buffers.items() if name.startswith(_VOTES)
        })  # fmt: skip
        unit, lost = self.geometry.with_tensors(learned).place(x)
        share, _ = shares(votes, unit.to(votes.w.dtype))
        scores = (share @ votes.labels).clamp_min(least_density(votes.p.dtype)).log()
        alone = votes.p_q.clamp_min(torch.finfo(votes.p_q.dtype).tiny).log()
        return torch.where(lost[:, None], alone, scores)[:, :-1].log_softmax(1)

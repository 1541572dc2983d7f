"""A fitted model as a torch layer."""

from __future__ import annotations

from torch import Tensor, nn

from mnemosphere.data.normalize import Normalizer
from mnemosphere.fitted import FittedModel
from mnemosphere.model.kernel import log_joint_differentiable
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics.bessel import log_omega_ratio


class DAMModule(nn.Module):
    """A fitted model as a torch layer, differentiable in its input.

    Raw rows go in: the normalization is part of the layer. Parameters are buffers, so an optimizer does
    not train them. The constant of β is a buffer as well, so `torch.export` and `torch.compile` see
    plain operations only.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.

    Examples
    --------
    >>> layer = mn.export.DAMModule(model)
    >>> layer(torch.tensor(X_test.to_numpy()))[:, :-1].argmax(1)[:3]
    tensor([0, 2, 1])
    """

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        params, normalizer = model.params, model.normalizer
        self.kind = normalizer.kind
        self._names = tuple(params.to_tensors())
        for name, tensor in params.to_tensors().items():
            self.register_buffer(name, tensor.clone())
        self.register_buffer("log_ratio", log_omega_ratio(params.beta, params.n_features))
        for name in ("mean", "scale", "metric"):
            value = getattr(normalizer, name)
            moved = None if value is None else value.to(params.w.device)
            self.register_buffer(f"row_{name}", moved)

    def forward(self, x: Tensor) -> Tensor:
        """Compute log P(x, y) relative to the uniform density on the sphere.

        Parameters
        ----------
        x : tensor of shape (B, N)
            Raw rows.

        Returns
        -------
        tensor of shape (B, C+1)
            The last column is the class "none of them".

        Examples
        --------
        >>> mn.export.to_torch(model).forward(torch.tensor(X_test.to_numpy())).shape
        torch.Size([60, 4])
        """
        buffers = dict(self.named_buffers())
        learned = (buffers.get(f"row_{name}") for name in ("mean", "scale", "metric"))
        normalizer = Normalizer(self.kind, *learned)
        unit, _ = normalizer(x)
        # ς stays a tensor: a number would have to be read from the device.
        params = Parameters(**{name: buffers[name] for name in self._names})  # type: ignore[arg-type]
        return log_joint_differentiable(params, unit.to(params.w.dtype), buffers["log_ratio"])


def to_torch(model: FittedModel) -> DAMModule:
    """Turn a fitted model into a torch layer.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.

    Returns
    -------
    DAMModule
        The layer: raw rows in, log P(x, y) out.

    Examples
    --------
    >>> row = torch.tensor(X_test[:1].to_numpy(), requires_grad=True)
    >>> mn.export.to_torch(model)(row).sum().backward()
    >>> row.grad.shape
    torch.Size([1, 4])
    """
    return DAMModule(model)

"""A fitted model as a torch layer."""

from __future__ import annotations

from torch import Tensor, nn

from mnemosphere.data.normalize import Normalizer
from mnemosphere.fitted import FittedModel
from mnemosphere.model.kernel import log_joint_differentiable
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics.bessel import log_omega_ratio


class DAMModule(nn.Module):
    """x (B, n_features) → log P(x, y) (B, C+1) relative to the uniform density on the sphere.

    Raw rows go in: the model's normalization is part of the layer. The parameters are buffers (a
    fitted model is not trained further by an optimizer); gradients flow to the input. The constant
    of β is a buffer as well, so `torch.export` and `torch.compile` see plain operations only.
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
        """log_joint of raw rows."""
        buffers = dict(self.named_buffers())
        learned = (buffers.get(f"row_{name}") for name in ("mean", "scale", "metric"))
        normalizer = Normalizer(self.kind, *learned)
        unit, _ = normalizer(x)
        # ς stays a tensor: a number would have to be read from the device.
        params = Parameters(**{name: buffers[name] for name in self._names})  # type: ignore[arg-type]
        return log_joint_differentiable(params, unit.to(params.w.dtype), buffers["log_ratio"])


def to_torch(model: FittedModel) -> DAMModule:
    """The fitted model as a torch module: log_joint, differentiable in its input."""
    return DAMModule(model)

"""A fitted model as a torch layer."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from mnemosphere.estimators.preparation import Normalizer
from mnemosphere.model.kernel import log_joint_differentiable
from mnemosphere.model.parameters import Parameters


class DAMModule(nn.Module):
    """x (B, n_features) → log P(x, y) (B, C+1) relative to the uniform density on the sphere.

    Raw rows go in: the model's normalization is part of the layer. The parameters are buffers (a
    fitted model is not trained further by an optimiser); gradients flow to the input.
    """

    def __init__(self, params: Parameters, normalizer: Normalizer) -> None:
        super().__init__()
        self.varsigma = params.varsigma
        self.kind = normalizer.kind
        for field in dataclasses.fields(params):
            if field.name != "varsigma":
                self.register_buffer(field.name, getattr(params, field.name).clone())
        for name in ("mean", "scale"):
            self.register_buffer(name, torch.as_tensor(getattr(normalizer, name)).to(params.w))

    def forward(self, x: Tensor) -> Tensor:
        """log_joint of raw rows."""
        buffers = dict(self.named_buffers())
        x = x.to(buffers["w"].dtype)
        if self.kind == "standard":
            root = x.new_full((x.shape[0], 1), x.shape[1] ** 0.5)
            x = torch.cat([(x - buffers["mean"]) / buffers["scale"], root], dim=1)
        elif self.kind == "center":
            x = x - x.mean(1, keepdim=True)
        x = x / x.norm(dim=1, keepdim=True)
        names = [f.name for f in dataclasses.fields(Parameters) if f.name != "varsigma"]
        params = Parameters(varsigma=self.varsigma, **{name: buffers[name] for name in names})
        return log_joint_differentiable(params, x)

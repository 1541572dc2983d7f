"""A fitted model as a torch layer."""

from __future__ import annotations

import torch

from mnemosphere import export


def test_layer_gives_the_same_predictions(read, fresh):
    model, _, log_joint, _ = read
    layer = export.to_torch(model.model_)
    out = layer(torch.from_numpy(fresh.x))
    assert torch.allclose(out, log_joint, rtol=1e-10)
    # Whatever the precision that comes in; moved to float32 as layers are.
    single = torch.from_numpy(fresh.x).float()
    assert torch.allclose(layer(single), log_joint, atol=1e-3)
    assert torch.allclose(layer.float()(single).double(), log_joint, atol=1e-3)
    assert not list(layer.parameters())


def test_gradient_of_the_layer_is_that_of_finite_differences(read, fresh):
    model = read.model
    layer = export.to_torch(model.model_)
    x = torch.from_numpy(fresh.x[:3]).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), eps=1e-6, atol=1e-6, rtol=1e-5)

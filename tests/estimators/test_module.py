"""A fitted model as a torch layer."""

from __future__ import annotations

import numpy as np
import torch

from mnemosphere import export


def test_layer_gives_the_same_predictions(read, fresh):
    model = read.model
    layer = export.to_torch(model.model_)
    rows = fresh.x.copy()
    rows[::3, 1], rows[5], rows[6] = np.nan, np.nan, 0.0  # missing values, no direction
    wanted = torch.from_numpy(model.predict_log_proba(rows))
    assert torch.allclose(layer(torch.from_numpy(rows)), wanted, rtol=1e-10)
    # Whatever the precision that comes in; moved to float32 as layers are.
    single = torch.from_numpy(rows).float()
    assert torch.allclose(layer(single), wanted, atol=1e-3)
    assert torch.allclose(layer.float()(single).double(), wanted, atol=1e-3)
    assert not list(layer.parameters())


def test_gradient_of_the_layer_is_that_of_finite_differences(read, fresh):
    model = read.model
    layer = export.to_torch(model.model_)
    x = torch.from_numpy(fresh.x[:3]).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), eps=1e-6, atol=1e-6, rtol=1e-5)

"""What several tests of the fixed point share."""

import torch
from torch.testing import assert_close

from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import from_memories
from mnemosphere.model.objectives import soft_labels
from mnemosphere.numerics import sphere


def assert_feasible(params, tol=1e-11):
    assert_close(params.w.norm(dim=1), torch.ones(params.n_memories).double(), rtol=0, atol=1e-13)
    assert (params.p >= 0).all()
    assert_close(params.p.sum(1), params.p_h, rtol=tol, atol=tol)
    assert_close(params.p.sum(0), params.p_q, rtol=tol, atol=tol)
    assert params.beta > 0


def crowd(dtype=torch.float64):
    """Two tight groups of rows, memories on one of them alone, and one memory far from all."""
    generator = torch.Generator().manual_seed(1)
    centers = torch.eye(2, 19, dtype=dtype)
    noise = torch.randn(60, 19, generator=generator, dtype=dtype) * 0.05
    classes = torch.arange(60) // 30
    x = sphere.project(centers[classes] + noise)
    w = sphere.project(torch.stack([x[0], x[1], x[2], -x[0]]))
    p_q = torch.tensor([0.48, 0.48, 0.04], dtype=dtype)
    params = from_memories(w, p_q, beta=120.0)
    return params, Batch(x, soft_labels(classes, 2, 0.1, dtype=dtype))

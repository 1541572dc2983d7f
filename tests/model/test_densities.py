"""Exponentials of a row: right where they count, and never so small that they lose digits."""

import pytest
import torch

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import from_memories
from mnemosphere.model.one_pass import accumulate, memory_shares
from mnemosphere.numerics import sphere


@pytest.mark.parametrize("beta", [30.0, 3e2, 3e3, 3e5])
def test_sharp_memories_give_no_number_that_loses_digits(beta):
    generator = torch.Generator().manual_seed(5)
    w = sphere.sample_uniform(37, 3, generator=generator, dtype=torch.float64)
    near = w[torch.arange(211) % 37]
    x = sphere.project(near + sphere.sample_uniform(211, 3, generator=generator) / beta**0.5)
    targets = objectives.soft_labels(torch.arange(211) % 2, 2, 0.1, dtype=torch.float64)
    params = from_memories(w, targets.mean(0), beta=beta, varsigma=1.0)
    single, batch = params.to(dtype=torch.float32), Batch(x, targets).to(dtype=torch.float32)
    tiny = torch.finfo(torch.float32).tiny
    shares = torch.cat([r for _, r in memory_shares(single, batch, objectives.joint)])
    assert not ((shares > 0) & (shares < tiny)).any()
    found = accumulate(single, batch, objectives.joint)
    exact = accumulate(params, Batch(x, targets), objectives.joint)
    for name in ("w_bar", "p_bar"):
        got, wanted = getattr(found, name).double(), getattr(exact, name)
        assert float((got - wanted).norm() / wanted.norm()) < 1e-6 * max(1.0, beta)

"""Small problems side by side: each comes to what it comes to alone."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from mnemosphere.data import ArrayDataset
from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.numerics import sphere
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.side_by_side import joint_solutions


@pytest.mark.parametrize("missing", ["nothing", "a label", "part of a label"])
@pytest.mark.parametrize("tol", [0.0, 1e-300])  # with a loss that is compared, and without
def test_exact_steps_are_those_of_the_loop(missing, tol):
    generator = torch.Generator().manual_seed(3)
    several, alone = [], []
    for _ in range(3):
        x = sphere.sample_uniform(53, 5, generator=generator, dtype=torch.float64)
        targets = torch.rand(53, 4, generator=generator, dtype=torch.float64)
        targets = targets / targets.sum(1, keepdim=True)
        targets[17] *= {"nothing": 1.0, "a label": 0.0, "part of a label": 0.4}[missing]
        params = from_memories(x[:7].clone(), targets.mean(0), beta=9.0, varsigma=0.7)
        params = params.replace(p_q=params.p_q / params.p_q.sum(), p=params.p / params.p.sum())
        rows = Batch(x, targets)
        several.append((params, rows))
        solver = FixedPoint(None, learn_weights=True)
        alone.append(fit(params, ArrayDataset(rows), solver, max_iter=5).params)
    starts, batches = zip(*several, strict=True)
    solved = joint_solutions(
        Parameters.stack(starts), Batch.stack(batches), learn_beta=True, max_iter=5, tol=tol
    )
    for found, wanted in zip(solved.unstack(), alone, strict=True):
        assert_close(found.w, wanted.w, rtol=1e-10, atol=1e-12)
        assert_close(found.p, wanted.p, rtol=1e-10, atol=1e-14)
        assert_close(found.beta, wanted.beta, rtol=1e-10, atol=0)

"""Small problems side by side: each comes to what it comes to alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import gammaln, ive
from torch.testing import assert_close

from mnemosphere.data import ArrayDataset
from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.numerics import sphere
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.side_by_side import joint_pass, joint_solutions


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


def one_problem(generator, rows=53, features=5, classes=3):
    x = sphere.sample_uniform(rows, features, generator=generator, dtype=torch.float64)
    targets = torch.rand(rows, classes + 1, generator=generator, dtype=torch.float64)
    targets = targets / targets.sum(1, keepdim=True)
    params = from_memories(x[:7].clone(), targets.mean(0), beta=9.0, varsigma=0.7)
    params = params.replace(p_q=params.p_q / params.p_q.sum(), p=params.p / params.p.sum())
    return params, Batch(x, targets)


def _surplus(beta, n, resultant):
    return ive(n / 2, beta) / ive(n / 2 - 1, beta) - resultant


def pass_with_numpy(params, rows, steps, *, learn_beta):
    """(w, β, p̄) after a pass in so many batches, from the densities themselves."""
    w, p, beta, vs = params.w.numpy(), params.p.numpy(), float(params.beta), params.varsigma
    x, q = rows.x.numpy(), rows.targets.numpy()
    weight = np.ones(len(x)) if rows.sample_weight is None else rows.sample_weight.numpy()
    n = x.shape[1]
    w_bar, p_bar, half = 0.0, 0.0, steps // 2
    for k in range(1, steps + 1):
        own = slice((k - 1) * len(x) // steps, k * len(x) // steps)
        log_bessel = np.log(ive(n / 2 - 1, beta)) + beta
        log_ratio = gammaln(n / 2) + (n / 2 - 1) * np.log(2 / beta) + log_bessel
        density = np.exp(vs * beta * x[own] @ w.T - log_ratio)
        density = np.concatenate([np.ones((len(density), 1)), density], 1)
        joint = density[:, :, None] * p  # rows, components, classes
        shares = joint / joint.sum(1, keepdims=True) * (weight[own, None] * q[own])[:, None]
        rate = 1 / min(k, half)
        w_bar = (1 - rate) * w_bar + rate * shares.sum(2)[:, 1:].T @ x[own]
        p_bar = (1 - rate) * p_bar + rate * shares.sum(0)
        norms = np.linalg.norm(w_bar, axis=1)
        w = w_bar / norms[:, None]
        if learn_beta and k > half:
            pull = vs * norms.sum() / p_bar[1:].sum()
            beta = brentq(_surplus, 1e-6, 1e4, args=(n, pull), xtol=1e-12)
    return w, beta, p_bar


@pytest.mark.parametrize("learn_beta", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_pass_is_that_of_the_densities(learn_beta, weighted):
    generator = torch.Generator().manual_seed(5)
    several = [one_problem(generator) for _ in range(3)]
    if weighted:
        weight = torch.rand(53, generator=generator, dtype=torch.float64)
        several = [(params, Batch(rows.x, rows.targets, weight)) for params, rows in several]
    starts, batches = zip(*several, strict=True)
    solved = joint_pass(
        Parameters.stack(starts), Batch.stack(batches), learn_beta=learn_beta, steps=11
    )
    for found, (params, rows) in zip(solved.unstack(), several, strict=True):
        w, beta, p_bar = pass_with_numpy(params, rows, 11, learn_beta=learn_beta)
        np.testing.assert_allclose(found.w, w, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(found.beta, beta, rtol=1e-8)
        # Memories share each class as they answer for its rows; what the prior holds stays.
        share = found.p[1:] / found.p[1:].sum(0)
        np.testing.assert_allclose(share, p_bar[1:] / p_bar[1:].sum(0), rtol=1e-8)
        assert_close(found.p.sum(0), params.p_q, rtol=1e-10, atol=0)
        assert_close(found.p.sum(1), found.p_h, rtol=1e-10, atol=0)
        assert_close(found.p_h[0], params.p_h[0], rtol=1e-10, atol=0)


def test_a_pass_over_one_problem_and_over_fewer_rows_than_steps():
    params, rows = one_problem(torch.Generator().manual_seed(6), rows=11)
    alone = joint_pass(params, rows, learn_beta=True)
    assert_close(alone.w, joint_pass(params, rows, learn_beta=True, steps=11).w)
    twice = Parameters.stack([params, params]), Batch.stack([rows, rows])
    for own in joint_pass(*twice, learn_beta=True).unstack():
        assert_close(own.w, alone.w, rtol=1e-12, atol=1e-13)
        assert_close(own.p, alone.p, rtol=1e-12, atol=1e-14)


def test_rows_that_weigh_nothing_do_not_count():
    generator = torch.Generator().manual_seed(7)
    params, rows = one_problem(generator)
    weight = (torch.arange(53) >= 30).double()  # the first batches weigh nothing at all
    found = joint_pass(params, Batch(rows.x, rows.targets, weight), learn_beta=True)
    other = sphere.sample_uniform(30, 5, generator=generator, dtype=torch.float64)
    x = torch.cat([other, rows.x[30:]])
    again = joint_pass(params, Batch(x, rows.targets, weight), learn_beta=True)
    assert_close(again.w, found.w)
    assert_close(again.p, found.p)
    assert bool((found.w - params.w).norm() > 0.1)

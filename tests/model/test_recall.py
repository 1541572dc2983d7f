"""Both descents of the energy, step by step, against autograd, the exponential map and SciPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mnemosphere.model.recall import recall
from mnemosphere.numerics import sphere

MODES = ["all", "free", "held"]


def energy_of(oracle, params, x, class_index):
    """−log P(x|y), or −log P(x), from the whole table of components."""
    joint = oracle.log_joint(params, x)
    if class_index is None:
        return -joint.logsumexp(1)
    return params.p_q[class_index].log() - joint[:, class_index]


def mask(rows, features, seed):
    known = torch.rand(rows, features, generator=torch.Generator().manual_seed(seed)) < 0.5
    known[0], known[1] = True, False
    return known


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    beta=st.sampled_from([0.3, 3.0, 20.0, 90.0]),
    varsigma=st.floats(0.05, 1.0),
    class_index=st.sampled_from([None, 0, 3]),
    mode=st.sampled_from(MODES),
    method=st.sampled_from(["fixed-point", "gradient"]),
    rate=st.floats(0.01, 2.0),
)
def test_energy_never_increases_along_the_path(
    problem, oracle, seed, beta, varsigma, class_index, mode, method, rate
):
    params, x, _, _ = problem(seed, beta=beta, varsigma=varsigma)
    known = None if mode == "all" else mask(*x.shape, seed)
    found = recall(
        params, x, class_index=class_index, steps=11, method=method, rate=rate, known=known,
        hold_scale=mode == "held", tol=0.0, record="rows",
    )  # fmt: skip
    flat = energy_of(oracle, params, found.path.flatten(0, 1), class_index)
    energies = flat.unflatten(0, found.path.shape[:2])
    torch.testing.assert_close(found.energies, energies, rtol=1e-11, atol=1e-11)
    assert (energies[1:] <= energies[:-1] + 1e-12 * (1 + energies[:-1].abs())).all()
    assert (found.path.norm(dim=2) - 1).abs().max() < 1e-13
    assert torch.equal(found.path[0], x)
    assert torch.equal(found.path[-1], found.x)
    torch.testing.assert_close(found.energies[-1], found.energy, rtol=1e-12, atol=1e-12)
    if mode == "held":
        assert torch.equal(found.path[:, known], x[known].expand(len(found.path), -1))
    if mode == "free":  # the known coordinates keep their ratios, and their signs
        kept, given_ = found.path * known, x * known
        size = (kept * given_).sum(2) / given_.square().sum(1).clamp_min(1e-300)
        assert (size[:, known.any(1)] > 0).all()
        assert (kept - size[:, :, None] * given_).abs().max() < 1e-14


@pytest.mark.parametrize("class_index", [None, 1])
@pytest.mark.parametrize("varsigma", [0.4, 1.0])
def test_one_gradient_step_is_that_of_autograd(problem, oracle, class_index, varsigma):
    """x' lies on the great circle along −grad E, as far as the tangent of η‖grad E‖/β_eff says."""
    params, x, _, _ = problem(4, beta=7.0, varsigma=varsigma)
    rate = 0.7
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy_of(oracle, params, leaf, class_index).sum(), leaf)
    v = -rate / (varsigma * 7.0) * (gradient - (gradient * x).sum(1, keepdim=True) * x)
    size = v.norm(dim=1, keepdim=True)
    angle = torch.atan(size)
    expected = angle.cos() * x + angle.sin() * v / size  # the exponential map
    found = recall(params, x, class_index=class_index, steps=1, method="gradient", rate=rate)
    torch.testing.assert_close(found.x, expected, rtol=1e-10, atol=1e-12)


def test_curvature_along_great_circles_is_at_most_beta_eff(problem, oracle):
    """The bound behind the gradient's step, by second differences; a memory alone attains it."""
    largest = []
    for beta in (0.5, 5.0, 60.0):
        params, x, _, _ = problem(1, beta=beta, varsigma=0.9, contrast=1.0)
        x = torch.cat([x, params.w])
        generator = torch.Generator().manual_seed(0)
        along = torch.randn(*x.shape, generator=generator, dtype=torch.float64)
        u = sphere.project(sphere.to_tangent(x, along))
        t = 1e-3 / math.sqrt(beta)
        left, middle, right = (
            energy_of(oracle, params, math.cos(s) * x + math.sin(s) * u, None) for s in (-t, 0.0, t)
        )
        largest.append(float(((left - 2 * middle + right) / t**2).max()) / (0.9 * beta))
    assert max(largest) < 1 + 1e-5
    assert largest[-1] > 0.99


@pytest.mark.parametrize("mode", MODES)
def test_both_methods_and_scipy_end_in_the_same_valley(problem, oracle, mode):
    """One memory far above the others, so that there is one valley; SciPy works in angles."""
    params, *_ = problem(3, memories=5, features=7, beta=6.0, contrast=0.3)
    x = sphere.retract(params.w[:3], 0.2 * torch.randn(3, 7, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(0)))  # fmt: skip
    known = None if mode == "all" else mask(3, 7, 5)
    held = mode == "held"
    ends = [
        recall(params, x, method=m, known=known, hold_scale=held, steps=20_000, tol=1e-13)
        for m in ("fixed-point", "gradient")
    ]
    torch.testing.assert_close(ends[0].x, ends[1].x, rtol=0, atol=1e-8)
    for row in range(3):
        held_mask = np.zeros(7, bool) if known is None else known[row].numpy()
        start = x[row].numpy()
        left = np.linalg.norm(start[~held_mask])

        def place(z, held_mask=held_mask, start=start, left=left):
            y = np.where(held_mask, start, 0.0)
            if mode == "free" and held_mask.any():
                y = y * z[0]
                z = z[1:]
            y[~held_mask] = z
            if held:
                y[~held_mask] *= left / max(np.linalg.norm(z), 1e-300)
                return y
            return y / np.linalg.norm(y)

        def height(z, place=place):
            point = torch.from_numpy(place(z))[None]
            return float(energy_of(oracle, params, point, None))

        z0 = start[~held_mask]
        if mode == "free" and held_mask.any():
            z0 = np.concatenate([[1.0], z0])
        best = minimize(height, z0, method="BFGS", tol=1e-9).fun if z0.size else height(z0)
        assert float(ends[0].energy[row]) == pytest.approx(best, abs=1e-7)


def test_the_gradient_crawls_where_the_uniform_component_rules_and_the_fixed_point_does_not(
    problem,
):
    params, *_ = problem(2, features=61, beta=200.0, contrast=0.5)
    start = sphere.sample_uniform(7, 61, generator=torch.Generator().manual_seed(1)).double()
    ends = {m: recall(params, sphere.project(start), method=m) for m in ("fixed-point", "gradient")}
    assert ends["fixed-point"].energy.max() < -50
    assert ends["gradient"].energy.min() > -5


def test_bad_input_is_refused(problem):
    params, x, _, _ = problem(0)
    for change, message in (
        ({"method": "newton"}, "got 'newton'"),
        ({"record": "all"}, "and 'all'"),
        ({"rate": 0.0}, r"\(0, 2\], in steps of 1/β_eff, got 0"),
        ({"rate": 2.1}, "got 2.1"),
    ):
        with pytest.raises(ValueError, match=message):
            recall(params, x, **change)


@pytest.mark.parametrize("method", ["fixed-point", "gradient"])
def test_what_is_known_stays_also_through_a_metric(problem, method):
    """Seen through a metric, completion keeps the known coordinates before it, up to one factor."""
    params = problem(31, features=5, memories=7, beta=9.0).params
    a = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    v = torch.randn(11, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    known = mask(11, 5, 3)
    x = sphere.project((v * known) @ a.T + 1e-3 * (v @ a.T))
    given = torch.linalg.solve(a, x.T).T
    found = recall(params, x, known=known, metric=a, method=method, steps=60, record="rows")
    back = torch.linalg.solve(a, found.x.T).T
    for row in range(1, 11):
        at = known[row]
        if at.any():
            factor = (back[row, at] @ given[row, at]) / given[row, at].square().sum()
            assert factor > 0
            torch.testing.assert_close(back[row, at], factor * given[row, at], rtol=0, atol=1e-8)
    assert (found.energies.diff(dim=0) <= 1e-9).all()
    assert (found.energies[0] - found.energies[-1] > 1e-3).any()

"""The descent of the energy, step by step, against enumeration and SciPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mnemosphere.model.recall import recall
from mnemosphere.numerics import sphere

MODES = ["all", "free"]


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
)
def test_energy_never_increases_along_the_path(
    problem, oracle, seed, beta, varsigma, class_index, mode
):
    params, x, _, _ = problem(seed, beta=beta, varsigma=varsigma)
    known = None if mode == "all" else mask(*x.shape, seed)
    found = recall(
        params, x, class_index=class_index, steps=11, known=known, tol=0.0, record="rows"
    )
    flat = energy_of(oracle, params, found.path.flatten(0, 1), class_index)
    energies = flat.unflatten(0, found.path.shape[:2])
    torch.testing.assert_close(found.energies, energies, rtol=1e-11, atol=1e-11)
    assert (energies[1:] <= energies[:-1] + 1e-12 * (1 + energies[:-1].abs())).all()
    assert (found.path.norm(dim=2) - 1).abs().max() < 1e-13
    assert torch.equal(found.path[0], x)
    assert torch.equal(found.path[-1], found.x)
    torch.testing.assert_close(found.energies[-1], found.energy, rtol=1e-12, atol=1e-12)
    if mode == "free":  # the known coordinates keep their ratios, and their signs
        kept, given_ = found.path * known, x * known
        size = (kept * given_).sum(2) / given_.square().sum(1).clamp_min(1e-300)
        assert (size[:, known.any(1)] > 0).all()
        assert (kept - size[:, :, None] * given_).abs().max() < 1e-14


@pytest.mark.parametrize("mode", MODES)
def test_scipy_ends_in_the_same_valley(problem, oracle, mode):
    """One memory far above the others, so that there is one valley; SciPy works in angles."""
    params, *_ = problem(3, memories=5, features=7, beta=6.0, contrast=0.3)
    x = sphere.retract(params.w[:3], 0.2 * torch.randn(3, 7, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(0)))  # fmt: skip
    known = None if mode == "all" else mask(3, 7, 5)
    found = recall(params, x, known=known, steps=20_000, tol=1e-13)
    for row in range(3):
        held_mask = np.zeros(7, bool) if known is None else known[row].numpy()
        start = x[row].numpy()

        def place(z, held_mask=held_mask, start=start):
            y = np.where(held_mask, start, 0.0)
            if mode == "free" and held_mask.any():
                y = y * z[0]
                z = z[1:]
            y[~held_mask] = z
            return y / np.linalg.norm(y)

        def height(z, place=place):
            point = torch.from_numpy(place(z))[None]
            return float(energy_of(oracle, params, point, None))

        z0 = start[~held_mask]
        if mode == "free" and held_mask.any():
            z0 = np.concatenate([[1.0], z0])
        best = minimize(height, z0, method="BFGS", tol=1e-9).fun if z0.size else height(z0)
        assert float(found.energy[row]) == pytest.approx(best, abs=1e-7)


def test_bad_input_is_refused(problem):
    params, x, _, _ = problem(0)
    with pytest.raises(
        ValueError, match="record must be one of nothing, energies, rows, got 'all'"
    ):
        recall(params, x, record="all")


def test_what_is_known_stays_also_through_a_metric(problem):
    """Seen through a metric, completion keeps the known coordinates before it, up to one factor."""
    params = problem(31, features=5, memories=7, beta=9.0).params
    a = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    v = torch.randn(11, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    known = mask(11, 5, 3)
    x = sphere.project((v * known) @ a.T + 1e-3 * (v @ a.T))
    given = torch.linalg.solve(a, x.T).T
    found = recall(params, x, known=known, metric=a, steps=60, record="rows")
    back = torch.linalg.solve(a, found.x.T).T
    for row in range(1, 11):
        at = known[row]
        if at.any():
            factor = (back[row, at] @ given[row, at]) / given[row, at].square().sum()
            assert factor > 0
            torch.testing.assert_close(back[row, at], factor * given[row, at], rtol=0, atol=1e-8)
    assert (found.energies.diff(dim=0) <= 1e-9).all()
    assert (found.energies[0] - found.energies[-1] > 1e-3).any()

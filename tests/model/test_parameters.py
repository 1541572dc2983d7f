import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import one_pass
from mnemosphere.model.mixture import from_memories

BROKEN = {
    "off the sphere": (lambda a: a.replace(w=a.w * 1.01), "row 0 of memories has norm 1.01"),
    "vector w": (lambda a: a.replace(w=a.w[0]), r"\(P, N >= 2\) matrix, got \(7,\)"),
    "p transposed": (lambda a: a.replace(p=a.p.T), r"\(P\+1, C\+1\) = \(6, C\+1\), got \(4, 6\)"),
    "dtype": (lambda a: a.replace(p_q=a.p_q.float()), "share one dtype and device"),
    "half": (lambda a: a.to(dtype=torch.float16), "float32 or float64"),
    "beta NaN": (lambda a: a.replace(beta=a.beta * math.nan), "beta must be one finite positive"),
    "varsigma": (lambda a: a.replace(varsigma=1.5), r"varsigma must lie in \(0, 1\], got 1.5"),
    "infeasible": (lambda a: a.replace(p_h=a.p_h * 1.1), "must have equal totals"),
    "negative prior": (lambda a: a.replace(p_q=-a.p_q), "finite and non-negative"),
    "wrong marginals": (
        lambda a: a.replace(p_q=a.p_q.flip(0)),
        r"column \d of p misses its marginal by .*: rescale p",
    ),
    "negative p": (lambda a: a.replace(p=-a.p), "p must be finite and non-negative"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_parameters_are_refused_in_one_line(problem, case):
    break_it, message = BROKEN[case]
    with pytest.raises(ValueError, match=message) as caught:
        break_it(problem(3).params).check()
    assert "\n" not in str(caught.value)


def test_the_uniform_component_weighs_as_much_as_so_many_memories(problem):
    w, p_q = problem(4, memories=4).params.w, torch.tensor([0.3, 0.7]).double()
    found = from_memories(w, p_q, beta=3.0, uniform_weight=0.5)
    assert_close(found.p_h, torch.tensor([0.5, 1, 1, 1, 1]).double() / 4.5)
    assert_close(found.p, found.p_h[:, None] * p_q)
    with pytest.raises(ValueError, match=r"uniform_weight must lie in .*got -1"):
        from_memories(w, p_q, beta=3.0, uniform_weight=-1.0)


def circle(points=400):
    """Nodes and weights of the trapezoidal rule, exact to rounding for smooth functions."""
    angle = 2 * np.pi * np.arange(points) / points
    return np.stack([np.cos(angle), np.sin(angle)], 1), np.full(points, 2 * np.pi / points)


def ball_surface(heights=60, angles=80):
    """Gauss–Legendre in the height, trapezoidal around the axis."""
    z, weight = np.polynomial.legendre.leggauss(heights)
    phi = 2 * np.pi * np.arange(angles) / angles
    z, phi = (a.ravel() for a in np.meshgrid(z, phi, indexing="ij"))
    radius = np.sqrt(1 - z**2)
    nodes = np.stack([radius * np.cos(phi), radius * np.sin(phi), z], 1)
    return nodes, np.repeat(weight, angles) * 2 * np.pi / angles


SPHERES = {2: (circle, 2 * math.pi), 3: (ball_surface, 4 * math.pi)}


@pytest.mark.parametrize("n", SPHERES)
def test_density_integrates_to_one_for_any_parameters(problem, n):
    nodes, weights = SPHERES[n][0]()
    params = problem(7, features=n, memories=3, beta=6.0).params
    density = one_pass.log_joint(params, torch.from_numpy(nodes)).exp() / SPHERES[n][1]
    integral = (density * torch.from_numpy(weights)[:, None]).sum(0)
    assert_close(integral, params.p_q, rtol=1e-12, atol=0)

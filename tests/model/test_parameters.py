from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import kernel
from mnemosphere.model.parameters import (
    BoltzmannMachine,
    Parameters,
    boltzmann_machine,
    component_prior,
    from_memories,
)


def test_valid_parameters_pass(problem):
    for dtype in (torch.float32, torch.float64):
        params = problem(dtype=dtype).params
        assert params.check() is params


def off_sphere(params):
    return params.replace(w=params.w * 1.01)


def with_nan(params):
    w = params.w.clone()
    w[2, 3] = math.nan
    return params.replace(w=w)


BROKEN = {
    "off the sphere": (off_sphere, "row 0 of memories has norm 1.01"),
    "NaN in w": (with_nan, "row 2 of memories has entries that are not finite"),
    "vector w": (lambda a: a.replace(w=a.w[0]), r"\(P, N >= 2\) matrix, got \(7,\)"),
    "one feature": (lambda a: a.replace(w=a.w[:, :1]), r"\(P, N >= 2\) matrix"),
    "p transposed": (lambda a: a.replace(p=a.p.T), r"\(P\+1, C\+1\) = \(6, 4\)"),
    "p_h too short": (lambda a: a.replace(p_h=a.p_h[1:]), r"p_h \(5,\)"),
    "dtype": (lambda a: a.replace(p_q=a.p_q.float()), "share one dtype and device"),
    "half": (lambda a: a.to(dtype=torch.float16), "must be float32 or float64"),
    "beta zero": (lambda a: a.replace(beta=a.beta * 0), "beta must be one finite positive"),
    "beta NaN": (lambda a: a.replace(beta=a.beta * math.nan), "beta must be one finite positive"),
    "beta vector": (lambda a: a.replace(beta=a.p_h), "beta must be one finite positive"),
    "varsigma": (lambda a: a.replace(varsigma=1.5), r"varsigma must lie in \(0, 1\], got 1.5"),
    "varsigma NaN": (lambda a: a.replace(varsigma=math.nan), "varsigma must lie in"),
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


def test_conversion_keeps_the_values(problem):
    params = problem(varsigma=0.25, beta=3.0).params
    single = params.to(dtype=torch.float32)
    assert {t.dtype for t in (single.w, single.p, single.beta, single.p_h, single.p_q)} == {
        torch.float32
    }
    assert single.varsigma == 0.25
    assert_close(single.w.double(), params.w, rtol=0, atol=1e-7)
    assert_close(single.beta_eff, torch.tensor(0.75))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_back_the_same_bits(problem, dtype):
    """0.1 is no float32: ς must not pass through the precision of the rest."""
    params = problem(4, varsigma=0.1, dtype=dtype).params
    back = Parameters.from_tensors({name: t.clone() for name, t in params.to_tensors().items()})
    for field in dataclasses.fields(Parameters):
        one, two = getattr(params, field.name), getattr(back, field.name)
        if field.name == "varsigma":
            assert one == two == 0.1
        else:
            assert torch.equal(one, two)
            assert one.dtype == two.dtype == dtype
    assert back.check() is back


@pytest.mark.parametrize("name", ["w", "p", "beta", "varsigma", "p_h", "p_q"])
def test_a_missing_tensor_is_named(problem, name):
    tensors = problem(4).params.to_tensors()
    del tensors[name]
    with pytest.raises(KeyError, match=f"'{name}'"):
        Parameters.from_tensors(tensors)


def test_tensors_go_to_the_device_asked_for(problem):
    """'meta' is a device that every machine has."""
    back = Parameters.from_tensors(problem(4, varsigma=0.25).params.to_tensors(), device="meta")
    assert {t.device.type for t in (back.w, back.p, back.beta, back.p_h, back.p_q)} == {"meta"}
    assert back.varsigma == 0.25


def test_component_prior():
    assert_close(component_prior(4, 0.5), torch.tensor([0.5, 1, 1, 1, 1]).double() / 4.5)
    assert_close(component_prior(3, 0.0), torch.tensor([0, 1, 1, 1]).double() / 3)
    with pytest.raises(ValueError, match=r"uniform_weight must lie in .*got -1"):
        component_prior(3, -1.0)


def test_fresh_class_weights_know_nothing(problem):
    p_q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    params = from_memories(problem().params.w, p_q, beta=2.0, varsigma=0.5).check()
    predictions = kernel.log_joint(params, problem().x).softmax(1)
    assert_close(predictions, p_q.expand_as(predictions))


# The Boltzmann machine: enumeration over (y, γ) and quadrature over the sphere


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


def random_machine(n, seed=0, beta=2.5):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    w = normal(2, n)
    return BoltzmannMachine(
        w=w / w.norm(dim=1, keepdim=True),
        u=normal(2, 3),
        b=normal(2),
        pi_h=normal(3).softmax(0),
        pi_q=normal(4).softmax(0),
        beta=torch.tensor(beta, dtype=torch.float64),
    )


def gibbs_weights(machine, x):
    """π_q(y) π_h(γ) P_0(x) exp(−βH) for every state, shape (4, 3, nodes): Eq. (RBM_energy).

    Layers are one-hot vectors of 3 classes and 2 hidden units; all zeros is the last class and
    component 0.
    """
    w, u, b, pi_h, pi_q = (
        getattr(machine, name).numpy() for name in ("w", "u", "b", "pi_h", "pi_q")
    )
    beta, area = float(machine.beta), SPHERES[x.shape[1]][1]
    states = np.empty((4, 3, len(x)))
    for y, gamma in itertools.product(range(4), range(3)):
        q = np.array([float(y == k) for k in range(3)])
        h = np.array([float(gamma == m + 1) for m in range(2)])
        energy = -(x @ w.T @ h + h @ u @ q + h @ b)
        states[y, gamma] = pi_q[y] * pi_h[gamma] / area * np.exp(-beta * energy)
    return states


@pytest.mark.parametrize("n", SPHERES)
def test_the_mixture_is_the_marginal_of_the_machine(n):
    machine = random_machine(n)
    params = machine.parameters().check()
    rule, area = SPHERES[n]
    nodes, weights = rule()
    states = gibbs_weights(machine, nodes)
    z = (states * weights).sum()
    # p^γ_y is the probability of the state (y, γ), x integrated out.
    assert_close(
        params.p, torch.from_numpy((states @ weights / z).T.copy()), rtol=1e-11, atol=1e-13
    )
    # The density of (x, y), h summed out, is exp(log_joint)/Ω_N(0), at every node.
    density = kernel.log_joint(params, torch.from_numpy(nodes)).exp().numpy() / area
    np.testing.assert_allclose(density, (states.sum(1) / z).T, rtol=1e-11)
    assert (density * weights[:, None]).sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("n", SPHERES)
def test_density_integrates_to_one_for_any_parameters(problem, n):
    nodes, weights = SPHERES[n][0]()
    params = problem(7, features=n, memories=3, beta=6.0).params
    density = kernel.log_joint(params, torch.from_numpy(nodes)).exp() / SPHERES[n][1]
    integral = (density * torch.from_numpy(weights)[:, None]).sum(0)
    assert_close(integral, params.p_q, rtol=1e-12, atol=0)


def test_round_trip_from_the_machine():
    machine = random_machine(3, seed=4)
    back = boltzmann_machine(machine.parameters(), machine.pi_h)
    for name in ("w", "u", "b", "pi_h", "pi_q", "beta"):
        assert_close(getattr(back, name), getattr(machine, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pi_h", [None, [0.1, 0.2, 0.05, 0.3, 0.15, 0.2]])
def test_round_trip_from_the_mixture(problem, pi_h):
    """Whatever prior the hidden layer is given, the biases make up for it."""
    params = problem(8, beta=11.0).params
    prior = None if pi_h is None else torch.tensor(pi_h, dtype=torch.float64)
    back = boltzmann_machine(params, prior).parameters()
    for name in ("w", "p", "beta", "p_h", "p_q"):
        assert_close(getattr(back, name), getattr(params, name), rtol=1e-12, atol=1e-14)


def test_what_is_no_boltzmann_machine_is_refused(problem):
    params = problem().params
    with pytest.raises(ValueError, match=r"only ς = 1 .*, got varsigma=0\.5"):
        boltzmann_machine(params.replace(varsigma=0.5))
    with pytest.raises(ValueError, match="p has zeros"):
        boltzmann_machine(params.replace(p=params.p * torch.eye(6, 4, dtype=torch.float64)))


def test_a_class_prior_of_one_number_is_refused(problem):
    params = problem().params
    with pytest.raises(ValueError, match="class weights must be"):
        params.replace(p_q=params.beta).check()

"""Residuals and certificates, against autograd, SciPy's optimizer and dense Hessians."""

import math
from dataclasses import replace
from functools import cache, partial

import pytest
import scipy.optimize
import scipy.special
import torch

from draws import generator
from mnemosphere.model import certificates, objectives
from mnemosphere.model.certificates import certify
from mnemosphere.model.copies import split
from mnemosphere.model.curvature import Curvature, krylov
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import accumulate, evaluate
from mnemosphere.numerics import sphere
from problems import plain_log_joint
from small_models import B, C, N, P, dense_splitting_matrix, make_data, make_params, tangent_basis

EXACT = partial(krylov, tol=1e-11)


def residual(params, batch, rule=objectives.joint, **options):
    return certificates.residual(params, accumulate(params, batch, rule), rule, **options)


def solve_beta(resultant: float) -> float:
    """A_N(β) = resultant, by SciPy."""
    return scipy.optimize.brentq(
        lambda b: scipy.special.ive(N / 2, b) / scipy.special.ive(N / 2 - 1, b) - resultant,
        1e-6,
        1e4,
        xtol=1e-13,
    )


@cache
def trained(seed: int, beta: float | None, varsigma: float = 0.8) -> Mixture:
    """A stationary point on the data of `seed`; beta None is learned.

    Columns of p are free while it is sought, p = p_h p̄/mass, and their sums are declared to be
    the prescribed ones at the end: λ = 0 then solves the constrained problem too.
    """
    batch = make_data(seed)
    params = make_params(seed, beta=beta or 5.0, varsigma=varsigma)
    for _ in range(5000):
        stats = accumulate(params, batch, objectives.joint)
        p = (params.p_h / stats.mass)[:, None] * stats.p_bar
        new = params.replace(w=sphere.project(stats.w_bar), p=p)
        if beta is None:
            resultant = varsigma * float(stats.w_bar.norm(dim=1).sum() / stats.mass[1:].sum())
            new = new.replace(beta=torch.tensor(solve_beta(resultant), dtype=torch.float64))
        moved = max(float((new.w - params.w).abs().max()), float((new.p - params.p).abs().max()))
        params = new
        if moved < 1e-11:
            break
    return params.replace(p_q=params.p.sum(0)).check()


# Residual


@pytest.mark.parametrize("seed", range(2))
def test_residual_is_the_step_of_independent_solvers(seed, oracle):
    batch = make_data(seed)
    params = make_params(seed)
    found = residual(params, batch)
    gw, gp, _ = oracle.gradient("joint", params, batch.x, batch.targets)
    w_bar = -gw / params.slope  # per row of the data
    for memory in range(P):
        step = w_bar[memory] / w_bar[memory].norm() - params.w[memory]
        assert float(found.w[memory]) == pytest.approx(float(step.norm()), rel=1e-10)
    p_bar = -gp * params.p
    # β: SciPy's root of the ratio of Bessel functions.
    resultant = float(params.varsigma * w_bar.norm(dim=1).sum() / p_bar[1:].sum())
    beta = solve_beta(resultant)
    expected = abs(beta / float(params.beta) - 1)
    assert float(found.beta) == pytest.approx(expected, rel=1e-8)
    assert float(found.largest) == pytest.approx(
        max(float(found.w.max()), float(found.p.max()), expected), rel=1e-8
    )


@pytest.mark.parametrize("rule", ["conditional", "blend 0.3"])
def test_residual_without_a_step_is_the_tangent_gradient(rule, oracle):
    weight = torch.rand(B, generator=generator(1), dtype=torch.float64)
    batch = make_data(3, weight)
    params = make_params(3)
    lam = 1.0 if rule == "conditional" else 0.3
    found = residual(params, batch, objectives.JointConditional(lam))
    gw, gp, gb = oracle.gradient(rule, params, batch.x, batch.targets, weight)
    for memory in range(P):
        slope = tangent_basis(params.w[memory]).T @ gw[memory]
        unit = params.slope * params.p_h[memory + 1]
        assert float(found.w[memory]) == pytest.approx(float(slope.norm() / unit), rel=1e-10)
    # Natural gradient: least squares in the metric Σ ξ²/p over a basis of the tangent space.
    basis = []
    for i in range(P):
        for j in range(C):
            e = torch.zeros(P + 1, C + 1, dtype=torch.float64)
            e[i, j] = e[-1, -1] = 1
            e[-1, j] = e[i, -1] = -1
            basis.append(e.flatten())
    span = torch.stack(basis, 1)
    root = params.p.flatten().sqrt()
    coefficients = torch.linalg.lstsq(
        span / root[:, None], (params.p * gp).flatten()[:, None] / root[:, None]
    ).solution
    natural = (span @ coefficients).reshape(P + 1, C + 1)
    torch.testing.assert_close(found.p, natural.abs().sum(1) / params.p_h)
    a = scipy.special.ive(N / 2, 5.0) / scipy.special.ive(N / 2 - 1, 5.0)
    assert float(found.beta) == pytest.approx(abs(float(gb)) / a, rel=1e-9)


def test_a_memory_answers_for_rows_also_where_label_weights_can_be_negative():
    batch, params = make_data(3), make_params(3)
    mass = certify(params, batch, objectives.conditional).mass
    log_joint = plain_log_joint(params, batch.x)
    uniform = (params.p[0].sum().log() - log_joint.logsumexp(1)).exp().sum()
    assert float(mass.min()) > 0
    assert float(mass.sum() + uniform) == pytest.approx(B)


def test_beta_counts_only_where_it_is_learned():
    batch = make_data(7)
    params = trained(7, 4.0)
    assert residual(params, batch, learn_beta=False).largest < 1e-8
    assert float(residual(params, batch).beta) > 0.01
    held = certify(params, batch, learn_beta=False)
    learned = certify(params, batch)
    assert held.residual.largest <= held.tol
    assert "not at rest" not in held.kinds
    assert learned.residual.largest > learned.tol
    assert set(learned.kinds) == {"not at rest"}


# Certificate


@pytest.mark.parametrize(("seed", "beta"), [(5, 2.0), (7, 4.0), (5, 20.0), (7, None)])
def test_kinds_agree_with_the_dense_hessian_of_the_grown_network(seed, beta):
    batch = make_data(seed)
    learn_beta = beta is None
    params = trained(seed, beta)
    found = certify(params, batch, learn_beta=learn_beta, method=EXACT, tol=1e-6)
    assert found.residual.largest <= found.tol
    loss = evaluate(params, batch, objectives.joint)
    for memory, kind in enumerate(found.kinds):
        values = torch.linalg.eigvalsh(
            dense_splitting_matrix(params, memory, batch, objectives.joint)
        )
        assert kind == ("saddle" if values[0] < 0 else "minimum")
        torch.testing.assert_close(found.lambda_min[memory], values[0], rtol=1e-8, atol=1e-12)
        grown = split(params, torch.tensor([memory]), found.direction, 1e-3)
        change = evaluate(grown, batch, objectives.joint) - loss
        assert (change < 0) == (kind == "saddle")


def test_a_memory_that_rests_is_told_from_one_that_moves():
    """Cold memories far apart hardly see each other: moving one leaves the others at rest."""
    batch = make_data(7)
    params = trained(7, 20.0)
    u = torch.zeros_like(params.w)
    u[0] = 0.01 * tangent_basis(params.w[0])[:, 0]
    moved = params.replace(w=sphere.retract(params.w, u))
    found = certify(moved, batch, learn_beta=False, tol=2e-3)
    assert found.kinds == ("not at rest", "saddle", "saddle")


def test_an_unresolved_curvature_is_no_minimum():
    batch = make_data(7)
    params = trained(7, 2.0)
    exact = EXACT(params, batch)

    def rough(factor: float, error: float):
        def method(*_args, **_options) -> Curvature:
            return replace(
                exact,
                beta_split=torch.full_like(exact.beta_split, factor * float(params.slope)),
                residual=torch.full_like(exact.residual, error),
            )

        return method

    for factor, error, kind in (
        (1.1, 0.2, "not at rest"),
        (1.1, 0.05, "minimum"),
        (0.9, 0.2, "saddle"),  # the quotient of a poor direction already proves it
        (math.inf, 0.2, "minimum"),
    ):
        found = certify(params, batch, learn_beta=False, method=rough(factor, error))
        assert set(found.kinds) == {kind}

"""The saddle-point equations against plain loops, and the solver's promises."""

import math

import pytest
import torch

from draws import generator, unit_rows
from mnemosphere.numerics import polytope
from mnemosphere.theory import problem, solver
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory.problem import SaddlePointProblem

INF = math.inf


def labels(n, columns, seed=0):
    q = torch.rand(n, columns, dtype=torch.float64, generator=generator(seed)) ** 2 + 0.02
    return q / q.sum(1, keepdim=True)


def clamped(rho=2.0, upsilon=0.9, beta=5.0, seed=0):
    p_h = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    return SaddlePointProblem.clamped(
        unit_rows(11, 53, seed), labels(11, 5, seed), p_h=p_h, beta=beta, rho=rho, upsilon=upsilon
    )


def uniform(rho=2.0, upsilon=0.9, beta=5.0):
    p_h = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    p_q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    return SaddlePointProblem.uniform(
        5, 3, beta=beta, rho=rho, upsilon=upsilon, n_features=101, p_h=p_h, labels=p_q.expand(5, -1)
    )


def step_by_loops(problem, m, p, n_features):
    """Eqs. (uniform_saddle-point) and (saddle-point), read off the page entry by entry."""
    from mnemosphere.theory import log_omega

    b = torch.tensor(problem.beta, dtype=torch.float64)
    zero = torch.tensor(0.0, dtype=torch.float64)
    ratio = float(log_omega(b, n_features) - log_omega(zero, n_features))

    def sigma_of(x):
        return 1.0 if math.isinf(x) else x / (math.sqrt(x * x + 1.0) + 1.0)

    beta_eff = sigma_of(2.0 * problem.upsilon) * problem.beta
    n_teacher, n_student = m.shape
    columns = p.shape[1]
    m_hat = torch.zeros_like(m)
    p_bar = torch.zeros_like(p)
    for b_ in range(n_teacher):
        for y in range(columns):
            # m^{μ* 0} = log(ratio)/β_eff, as in the paper, instead of subtracting it elsewhere.
            terms = [math.exp(ratio) * float(p[0, y])]
            terms += [
                math.exp(beta_eff * float(m[b_, k])) * float(p[k + 1, y]) for k in range(n_student)
            ]
            for g, term in enumerate(terms):
                share = float(problem.targets[b_, y]) * term / sum(terms)
                p_bar[g, y] += share
                if g > 0:
                    m_hat[b_, g - 1] += share
    new = torch.zeros_like(m)
    for k in range(n_student):
        x_bar = sum(m_hat[b_, k] * problem.patterns[b_] for b_ in range(n_teacher))
        norm = float(x_bar.norm())
        for b_ in range(n_teacher):
            overlap = float(problem.patterns[b_] @ x_bar)
            new[b_, k] = sigma_of(2.0 * beta_eff * problem.rho * norm) * overlap / norm
    return new, m_hat, p_bar


@pytest.mark.parametrize("make", [clamped, uniform])
@pytest.mark.parametrize(("rho", "upsilon"), [(2.0, 0.9), (INF, 0.9), (2.0, INF), (INF, INF)])
def test_step_is_the_equation_on_the_page(make, rho, upsilon):
    problem = make(rho=rho, upsilon=upsilon)
    state = sp.random_starts(problem, 2, generator=generator(3))
    after = sp.step(problem, state)
    for s in range(2):
        m, m_hat, p_bar = step_by_loops(problem, state.m[s], state.p[s], problem.n_features)
        torch.testing.assert_close(after.m[s], m, rtol=0, atol=1e-13)
        c = sp.conjugate(problem, sp.OrderParameters(state.m[s], state.p[s]))
        torch.testing.assert_close(c.m_hat, m_hat, rtol=0, atol=1e-14)
        torch.testing.assert_close(c.p_bar, p_bar, rtol=0, atol=1e-13)
        # p = p_bar/ζ: the ratio is a sum of a row and a column part, and the marginals hold.
        zeta = p_bar / after.p[s]
        mixed = zeta - zeta[:1] - zeta[:, :1] + zeta[0, 0]
        assert float(mixed.abs().max()) < 1e-8 * float(zeta.max())
        polytope.check(after.p[s], problem.p_h, problem.p_q, tol=1e-10)


def clamped_without_labels(rho):
    x = unit_rows(13, 53, 4)
    return SaddlePointProblem.clamped(x, n_student=3, beta=5.0, rho=rho, upsilon=0.9)


def large(rho):
    """With so many unknowns that there are no Newton steps."""
    x = unit_rows(101, 53, 4)
    return SaddlePointProblem.clamped(x, n_student=7, beta=5.0, rho=rho, upsilon=INF)


@pytest.mark.parametrize(
    ("make", "rho"),
    [(clamped_without_labels, 0.7), (clamped_without_labels, INF), (uniform, INF), (large, INF)],
)
def test_solutions_do_not_move_and_do_not_depend_on_the_method(make, rho):
    problem = make(rho=rho)
    starts = sp.random_starts(problem, 5, generator=generator(5))
    found = solver.solve(problem, starts, tol=1e-9).raise_if_failed()
    assert float(sp.residual(problem, found.state).max()) < 1e-8
    state, passes = starts, 0
    while float(sp.residual(problem, state).max()) > 1e-9:
        state, passes = sp.step(problem, state), passes + 1
    last = sp.conjugate(problem, state)
    # The best solution is the same by plain passes, of which there are more.
    best = sp.free_entropy_at(problem, last, last.x_bar).max()
    torch.testing.assert_close(found.objective.max(), best, rtol=0, atol=1e-7)
    assert (int(found.iterations.max()) < passes / 3) == (make is not large)


@pytest.mark.parametrize(
    ("upsilon", "rho", "beta", "overlap"),
    [(1.0, 2.0, 10.0, 0.960), (0.5, 2.0, 10.0, 0.940), (1.0, 0.5, 10.0, 0.850)],
)
def test_known_overlaps_in_the_broken_phase(upsilon, rho, beta, overlap):
    problem = SaddlePointProblem.uniform(2, 2, beta=beta, rho=rho, upsilon=upsilon, n_features=300)
    found = solver.solve(problem, sp.random_starts(problem, 20, generator=generator()))
    found.raise_if_failed()
    best = found.m[int(found.objective.argmax())]
    assert abs(float(best.amax(0).min()) - overlap) < 6e-4
    assert sorted(best.argmax(0).tolist()) == [0, 1]


def test_temperatures_outside_the_theory_warn():
    with pytest.warns(problem.ValidityWarning, match="not small against n_features"):
        SaddlePointProblem.uniform(2, 2, beta=60.0, rho=1.0, upsilon=1.0, n_features=100)
    with pytest.warns(problem.ValidityWarning, match="lower beta, or raise upsilon"):
        SaddlePointProblem.uniform(2, 2, beta=5.0, rho=1.0, upsilon=0.01, n_features=100)
    # The exact posterior has an overlap of 0.36 here, the equations have 0.78.
    with pytest.warns(problem.ValidityWarning, match="relative size 5"):
        SaddlePointProblem.uniform(1, 1, beta=100.0, rho=2.0, upsilon=0.01, n_features=1000)
    # At ϱ = υ = ∞ the equations are stationarity conditions, exact at every temperature.
    SaddlePointProblem.uniform(2, 2, beta=60.0, rho=INF, upsilon=INF, n_features=100)

"""Saddle-point equations with the noise of the examples, against exact posteriors and Gibbs sampling."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit

from draws import generator
from mnemosphere import theory
from mnemosphere.numerics import bessel
from mnemosphere.theory import OrderParameters, SaddlePointProblem
from problems import slow_but
from research.theory.example_noise import parting_eigenvalues, solve_with_noise


def weak(n_teacher, n_student, b, beta_eff, rho, n, **more):
    """A teacher of β* = b√N and a student of this β_eff; it warns, as it should."""
    upsilon = b / math.sqrt(n)
    beta = beta_eff / theory.varsigma_of_noise(upsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", theory.ValidityWarning)
        return SaddlePointProblem.uniform(
            n_teacher, n_student, beta=beta, rho=rho, upsilon=upsilon, n_features=n, **more
        )


def aligned(problem, *, high=0.9, low=0.05):
    m = torch.full((problem.n_teacher, problem.n_student), low, dtype=torch.float64)
    index = torch.arange(problem.n_student)
    m[index % problem.n_teacher, index] = high
    return OrderParameters(m, problem.p_h[:, None] * problem.p_q)


@pytest.mark.parametrize("p_0", [0.0, 0.2])
def test_strong_teachers_have_the_equations_without_noise(p_0):
    p_h = torch.tensor([p_0, 0.5 - p_0 / 2, 0.5 - p_0 / 2], dtype=torch.float64)
    labels = torch.tensor([[0.7, 0.3], [0.2, 0.8]], dtype=torch.float64)
    problem = SaddlePointProblem.uniform(
        2, 2, beta=6.0, rho=1.3, upsilon=0.7, n_features=10**8, p_h=p_h, labels=labels
    )
    start = aligned(problem)
    plain = theory.solve_saddle_point(problem, OrderParameters(start.m[None], start.p[None]))
    found = solve_with_noise(problem, start)
    torch.testing.assert_close(found.m, plain.m[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(found.p, plain.p[0], rtol=0, atol=1e-6)
    f = theory.free_entropy(problem, plain.m, plain.m_hat, plain.p)
    assert found.free_entropy == pytest.approx(float(f[0]), abs=1e-5)


def test_one_memory_is_the_exact_posterior():
    b, beta_eff, rho, n, sets = 1.0, 3.0, 2.0, 1000, 4
    problem = weak(1, 1, b, beta_eff, rho, n)
    found = solve_with_noise(problem, aligned(problem))
    # The overlap loses the factor 1/√(1 + 1/(ϱb²)), and the gain grows by as much.
    stretch = math.sqrt(1.0 + 1.0 / (rho * b * b))
    closed = theory.varsigma_of_noise(beta_eff * rho * stretch) / stretch
    assert float(found.m) == pytest.approx(closed, abs=2e-3)
    g, beta = generator(1), torch.tensor(problem.beta, dtype=torch.float64)
    overlaps, log_z = [], []
    for _ in range(sets):
        teacher = theory.sample_teacher(1, n, upsilon=problem.upsilon, generator=g)
        total = theory.sample_data(teacher, rho, generator=g).x.sum(0)
        kappa = beta * total.norm()
        mean = bessel.mean_resultant(kappa, n) * (teacher.w @ total) / total.norm()
        overlaps.append(float(mean))
        ratio = bessel.log_omega_ratio(kappa, n) - round(rho * n) * bessel.log_omega_ratio(beta, n)
        log_z.append(float(ratio) / n)
    overlaps, log_z = torch.tensor(overlaps), torch.tensor(log_z)
    assert (
        abs(float(overlaps.mean()) - float(found.m)) < 0.003 + 4 * float(overlaps.std()) / sets**0.5
    )
    assert abs(float(log_z.mean()) - found.free_entropy) < 0.02 + 4 * float(log_z.std()) / sets**0.5


CASES = {
    "broken": (2, 2, 2.0, 3.0, 2.0, {}),
    "fewer memories": (3, 2, 2.5, 5.0, 2.0, {}),
    "uniform": (2, 2, 2.0, 3.0, 2.0, {"p_h": torch.tensor([0.2, 0.4, 0.4])}),
    "labels": (2, 2, 1.5, 2.25, 2.0, {"labels": torch.tensor([[0.8, 0.2], [0.3, 0.7]]).double()}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_weak_teachers_agree_with_gibbs_sampling(case):
    n_teacher, n_student, b, beta_eff, rho, more = CASES[case]
    n, sets, problem = 500, 2, None
    gaps, plain_gaps = [], []
    for seed in range(sets):
        g = generator(seed)
        problem = weak(n_teacher, n_student, b, beta_eff, rho, n, **more)
        teacher = theory.sample_teacher(
            n_teacher, n, problem.n_columns - 1, upsilon=problem.upsilon, generator=g,
            soft_labels=problem.targets if "labels" in more else None,
        )  # fmt: skip
        # Vectors of a finite teacher are not quite orthogonal: solve for those it has.
        problem = problem.replace(patterns=teacher.w, uniform_teacher=False)
        start = aligned(problem)
        found = solve_with_noise(problem, start)
        wide = OrderParameters(start.m[None], start.p[None])
        plain = theory.solve_saddle_point(problem, wide).m[0]
        data = theory.sample_data(teacher, rho, generator=g)
        posterior = theory.sample_posterior(
            teacher, data, n_memories=n_student, beta=problem.beta, p_h=problem.p_h,
            start="teacher", n_chains=2, n_burn_in=40, n_sweeps=80, generator=g,
        )  # fmt: skip
        sampled = posterior.trace.mean((0, 1))
        best = found.m.argmax(0), torch.arange(n_student)
        gaps.append(float((sampled - found.m)[best].mean()))
        plain_gaps.append(float((sampled - plain)[best].mean()))
    assert abs(sum(gaps)) / sets < 0.025
    assert abs(sum(plain_gaps)) / sets > 2 * abs(sum(gaps)) / sets


TWO, MORE = [(2, 1.5, 2.0), (2, 6.0, 0.01)], [(3, 1.6, 1.5), (3, 5.0, 0.02), (4, 2.0, 0.8)]


@pytest.mark.parametrize("case", slow_but(TWO, TWO + MORE))
def test_at_the_teachers_temperature_two_students_agree_as_student_and_teacher_do(case):
    """Nishimori's identity: with β = β* the teacher is one more draw from the posterior.

    The noise of a field is b: at b = 6 shares are steps, and an integral that misses them breaks it.
    """
    n_memories, b, rho = case
    problem = weak(n_memories, n_memories, b, b * b, rho, 10**8)
    found = solve_with_noise(problem, aligned(problem))
    torch.testing.assert_close(found.q, found.m, rtol=0, atol=5e-7)
    assert float(found.m[0, 0] - found.m[0, 1]) > 0.2


@pytest.mark.parametrize(("b", "overlap"), [(0.5, 0.170), (0.7, 0.231)])
def test_two_memories_that_fit_noise_solve_the_scalar_equations(b, overlap):
    """At β_eff/b = 6 the shares are steps; SciPy integrates them."""
    rho, beta_eff = 2.0, 3.0
    problem = weak(2, 2, b, beta_eff, rho, 1000)
    found = solve_with_noise(problem, aligned(problem))
    (same, other), s2 = found.q[0].tolist(), problem.noise
    slope = math.sqrt(2.0 * s2 * (same - other))

    def inner(xi):
        return expit(slope * xi) ** 2 * math.exp(-xi * xi / 2) / math.sqrt(2 * math.pi)

    edge = np.array([-1, 1]) * 20 / slope
    square = quad(inner, -12, 12, points=edge, epsabs=1e-12, limit=400)[0]  # E r², and E r = ½
    own, common = 2 * rho * s2 * (2 * square - 0.5), rho * s2  # of 2 teachers, along (1, ∓1)

    def excess(scale):
        return 0.5 / (scale + own) + 0.5 / (scale + common) - (1.0 - same)

    scale = brentq(excess, -min(own, common) + 1e-9, 1e6, xtol=1e-14)
    m = rho * beta_eff / (scale + common) / 2
    assert float(found.m.mean()) == pytest.approx(m, abs=1e-7)
    assert (same - other) == pytest.approx(own / (scale + own) ** 2, abs=1e-6)
    assert m == pytest.approx(overlap, abs=5e-4)


def test_three_memories_that_fit_noise_have_the_overlap_of_samples():
    problem = weak(3, 3, 0.5, 3.0, 2.0, 1000)
    found = solve_with_noise(problem, aligned(problem))
    assert float(found.m.mean()) == pytest.approx(0.0972, abs=1e-4)
    many = weak(6, 6, 0.5, 3.0, 2.0, 1000)
    with pytest.raises(ValueError, match="nodes, 1048576 are allowed: lower beta"):
        solve_with_noise(many, aligned(many))


def contrasts(problem):
    """How far memories have parted towards the teacher's, and from each other."""
    found = solve_with_noise(problem, aligned(problem, high=0.6, low=0.1), tol=1e-10)
    return float(found.m[0, 0] - found.m[0, 1]), float(found.q[0, 0] - found.q[0, 1])


def test_memories_part_where_an_eigenvalue_exceeds_one():
    for b, rho in ((1.0, 1.8), (1.0, 2.2), (1.3, 0.6), (1.3, 0.8)):
        problem = weak(2, 2, b, b * b, rho, 10**8)
        signal, noise, parted = parting_eigenvalues(problem)
        assert signal == pytest.approx(rho * b**4 / 2, rel=1e-3)
        assert noise == pytest.approx(rho * b**4 / 2, rel=1e-3)
        towards, apart = contrasts(problem)
        assert (towards > 1e-3) == (apart > 1e-3) == (signal > 1) == (parted > 1)


@pytest.mark.parametrize("n_memories", [2, 3])
def test_after_noise_has_parted_memories_the_third_eigenvalue_decides(n_memories):
    def at(b):
        return weak(n_memories, n_memories, b, 3.0, 2.0, 10**8)

    line = brentq(lambda b: parting_eigenvalues(at(b))[2] - 1.0, 0.8, 1.6)
    for b, found in ((0.95 * line, False), (1.05 * line, True)):
        signal, noise, parted = parting_eigenvalues(at(b))
        assert min(signal, noise) > 5  # at the symmetric state both are unstable on both sides
        assert (parted > 1) == found
        towards, apart = contrasts(at(b))
        assert (towards > 1e-3) == found
        assert apart > 0.5


def test_without_noise_the_eigenvalue_is_that_of_the_papers_transition():
    for n_teacher, n_student, rho in ((2, 2, 2.0), (3, 5, 0.7)):
        problem = SaddlePointProblem.uniform(
            n_teacher, n_student, beta=5.0, rho=rho, upsilon=1.0, n_features=10**9
        )
        line = theory.symmetric_transition(problem, "beta")
        signal, noise, parted = parting_eigenvalues(problem.replace(beta=line))
        assert signal == parted == pytest.approx(1.0, abs=1e-6)
        assert noise < 1e-6


def test_near_a_transition_little_noise_moves_overlaps_far_and_a_warning_says_so():
    b, n = math.sqrt(1.75 / (2 * 0.02)), 10**6  # terms of relative size 0.02 are dropped
    problem = weak(2, 2, b, 1.75, 2.0, n)
    assert problem.noise / (2 * problem.beta_eff) == pytest.approx(0.02, rel=1e-3)
    start = aligned(problem)
    plain = theory.solve_saddle_point(problem, OrderParameters(start.m[None], start.p[None])).m[0]
    noisy = solve_with_noise(problem, start).m
    assert plain[0].sort().values.tolist() == pytest.approx([0.500, 0.649], abs=1e-3)
    assert noisy[0].sort().values.tolist() == pytest.approx([0.420, 0.699], abs=2e-3)
    with pytest.warns(
        theory.ValidityWarning, match="a transition at a distance of 0.012 multiplies"
    ):
        problem.warn_if_invalid()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weak(2, 2, b, 1.3, 2.0, n).warn_if_invalid()  # away from it, fewer dropped

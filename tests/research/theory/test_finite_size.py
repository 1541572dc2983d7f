"""Corrections of order 1/N: exact for one memory, within the marginals for labels."""

import math

import pytest
import torch
from scipy import special

from class_formula import log_omega
from draws import generator
from mnemosphere import theory
from mnemosphere.numerics import vmf
from research.theory.finite_size import finite_size_corrections


def solved(problem, n_starts=12):
    starts = theory.random_starts(problem, n_starts, generator=generator())
    found = theory.solve_saddle_point(problem, starts, tol=1e-12).raise_if_failed()
    return found[int(found.objective.argmax())], float(found.objective.max())


@pytest.mark.parametrize(("n_teacher", "upsilon", "beta"), [(1, 0.7, 3.0), (2, 0.4, 4.5)])
def test_one_memory_is_exact(n_teacher, upsilon, beta):
    # The posterior of one memory is von Mises–Fisher around S = Σ x, and Z = Ω(β‖S‖)/Ω(β)^M.
    n, rho, n_draws = 61, 1.0, 2000
    problem = theory.SaddlePointProblem.uniform(
        n_teacher, 1, beta=beta, rho=rho, upsilon=upsilon, n_features=n
    )
    state, value = solved(problem)
    found = finite_size_corrections(problem, state)
    kappa, seed = torch.tensor(upsilon * n, dtype=torch.float64), generator(3)
    w = torch.eye(n_teacher, n, dtype=torch.float64)
    n_rows = round(rho * n_teacher * n)
    # Σ x in distribution: counts of the patterns, then vMF examples, in batches.
    overlap, level = [], []
    for _ in range(n_draws // 100):
        cluster = torch.randint(n_teacher, (100, n_rows), generator=seed)
        total = vmf.sample(w[cluster], kappa, generator=seed).sum(1)  # (100, N)
        norm = total.norm(dim=1)
        size = beta * norm.numpy()
        ratio = special.ive(n / 2, size) / special.ive(n / 2 - 1, size)
        overlap.append(torch.tensor(ratio) * total[:, :n_teacher].mean(1) / norm)
        level.append(torch.tensor(log_omega(size, n)) - n_rows * log_omega(beta, n))
    scaled = n * (torch.cat(overlap) - float(state.m.mean()))
    gap = torch.cat(level) - n * rho * n_teacher * value
    for sample, theirs in ((scaled, float(found.m.mean())), (gap, found.log_z)):
        error = float(sample.std()) / math.sqrt(n_draws)
        assert abs(theirs) > 10 * error  # there is something to see
        # The next order is 1/N of the first, with a factor of a few.
        assert abs(float(sample.mean()) - theirs) < 4 * error + 5 * abs(theirs) / n


def test_labels_move_class_weights_within_their_marginals():
    labels = torch.tensor([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1]], dtype=torch.float64)
    problem = theory.SaddlePointProblem.uniform(
        2, 2, beta=10.0, rho=1.0, upsilon=0.5, n_features=1000, labels=labels
    )
    state, _ = solved(problem)
    found = finite_size_corrections(problem, state)
    torch.testing.assert_close(found.p.sum(0), torch.zeros(3).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.p.sum(1), torch.zeros(3).double(), rtol=0, atol=1e-12)
    # Gibbs sampling at N = 100, 300 and 1000 has N·Δm = −2.03 ± 0.11, −2.00 ± 0.04, −2.00 ± 0.07.
    own = found.m.gather(0, state.m.argmax(0, keepdim=True)).mean()
    assert float(own) == pytest.approx(-2.01, abs=0.12)

"""Log Z by integration against its closed form, and the branches of three memories on two."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from mnemosphere import theory
from mnemosphere.theory.tempering import Ladder
from research.theory import levels, line, occupation


def test_log_z_of_one_memory_is_its_closed_form():
    # Z = Ω(β‖Σx‖)/Ω(β)^M, Ω against the uniform density.
    n, beta, seed = 11, 4.0, torch.Generator().manual_seed(2)
    teacher = theory.sample_teacher(1, n, upsilon=0.7, generator=seed)
    data = theory.sample_data(teacher, 2.0, generator=seed)

    def log_omega(kappa):
        order = n / 2 - 1
        level = np.log(special.ive(order, kappa)) + kappa - order * np.log(kappa / 2)
        return level + special.gammaln(n / 2)

    exact = log_omega(beta * float(data.x.sum(0).norm())) - len(data.x) * log_omega(beta)
    found = levels.log_z(data, teacher.w, [1.5, beta], n_nodes=7, n_sweeps=250, generator=seed)
    assert found == pytest.approx(exact, abs=0.4)
    assert abs(exact) > 5


def problem(beta, n=300):
    return theory.SaddlePointProblem.uniform(2, 3, beta=beta, rho=1.0, upsilon=1.0, n_features=n)


def test_an_idle_memory_wins_at_beta_8_in_the_limit_and_is_no_solution_when_warm():
    assert list(occupation.branches(problem(6.0))) == ["paired"]
    both = occupation.branches(problem(8.0))
    assert both["idle"][1] - both["paired"][1] == pytest.approx(0.0062, abs=1e-4)
    # What is of order 1 goes the other way: the pair is found more often up to N = 450.
    p = problem(8.0).p_h[:, None]
    level = {
        name: theory.finite_size_corrections(problem(8.0), theory.OrderParameters(m, p)).log_z
        for name, (m, _) in both.items()
    }
    assert level["paired"] - level["idle"] == pytest.approx(2.76, abs=0.05)


def test_visits_count_idle_memories_at_every_beta():
    seed = torch.Generator().manual_seed(0)
    teacher, data = occupation.balanced(100, 1.0, 1.0, generator=seed)
    assert int((data.cluster == 0).sum()) == 100
    assert math.isnan(occupation.predicted(problem(6.0, 100), teacher, data))
    # The first half of the chains starts idle, the other paired; both are metastable when cold.
    cold = Ladder(torch.tensor([20.0, 20.5]).double())
    share, acceptance = occupation.idle_share(
        teacher.w, data.x, cold, n_chains=2, n_sweeps=10, generator=seed
    )
    assert share.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert acceptance > 0


@pytest.fixture(scope="module")
def rungs():
    """The ladder of a size, which takes seconds to find."""
    return line.ladder(97)


def test_rungs_follow_the_line_of_equal_weight_to_its_end(rungs):
    two, gap = line.solve_both(line.BETA, 1 / 3)
    assert two
    assert gap == pytest.approx(0.0062, abs=1e-4)
    t = line.equal_entropy(7.0)
    two, gap = line.solve_both(7.0, t)
    assert two
    assert abs(gap) < 2e-4
    # At finite N the pair's larger f₁ is made up for by a lighter third memory, which suits an idle
    # one: the gap there, times N, is what f₁ lacks.
    n = 400
    assert n * line.solve_both(7.0, t + line.shift(7.0) / n)[1] == pytest.approx(1.54, abs=0.1)
    # Past the end one solution passes into the other.
    t = line.equal_entropy(5.2)
    assert not line.solve_both(5.2, t)[0]
    for side, idle in ((-0.001, True), (0.001, False)):
        m = line.solve(5.2, t + side)[1].m[1, :, 2]
        assert (float((m[0] - m[1]).abs()) < 1e-3) == idle
    assert (float(rungs.betas[0]), float(rungs.betas[-1])) == (5.2, line.BETA)
    assert rungs.p_h[-1].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    torch.testing.assert_close(rungs.p_h.sum(1), torch.ones(len(rungs.betas)).double())


def test_visits_along_the_line_forget_their_start_and_meet_the_theory(rungs, monkeypatch):
    monkeypatch.setattr(line, "ladder", lambda n, run: rungs)
    found = line.visit_on_line([97], n_sets=1, n_chains=10, n_sweeps=90, grid=(3, 2))
    np.testing.assert_allclose(found.share, (found.from_idle + found.from_paired) / 2)
    teacher, data = occupation.balanced(
        97, 1.0, 1.0, generator=torch.Generator().manual_seed(10 * 97)
    )
    expected = occupation.predicted(problem(8.0, 97), teacher, data)
    np.testing.assert_allclose(found.log_odds[0, 0], expected)
    assert abs(found.measured()[0] - expected).item() < 1.0
    assert float(np.abs(found.from_idle - found.from_paired).max()) < 0.3
    assert float(found.acceptance.min()) > 0.1
    assert found.draw().get_xlabel().startswith("inverse")

"""The data behind the theory's pictures, against closed forms."""

import math

import numpy as np
import pytest

from draws import generator
from mnemosphere import theory
from mnemosphere.theory.newton import newton
from research.theory import weak
from research.theory.branches import trace_branches
from research.theory.finite_size import study_finite_size
from research.theory.hierarchy import trace_hierarchy, tree_patterns
from research.theory.overlaps import Sampling
from research.theory.phases import map_phases
from research.theory.setting import Setting


def test_two_memories_break_where_the_line_says():
    setting = Setting(2, 2, rho=1.3, n_features=10_000)
    x, beta = [0.3, 0.7, 1.5], [2.0, 4.0, 7.0]
    found = map_phases(setting, "upsilon", x, beta, generator=generator())
    # β_eff² = P* + P/ϱ, written out anew.
    varsigma = [2 * u / (math.sqrt(4 * u * u + 1) + 1) for u in x]
    line = [math.sqrt(2 + 2 / 1.3) / v for v in varsigma]
    np.testing.assert_allclose(found.line, line, rtol=1e-12)
    above = np.array(beta)[:, None] > np.array(line)
    assert 0 < above.sum() < above.size
    np.testing.assert_array_equal(found.phase, np.where(above, 2, 0))
    np.testing.assert_array_equal(found.broken_wins, above)
    assert found.unconverged == 0


@pytest.fixture(scope="module")
def three():
    beta = np.linspace(3.3, 3.6, 7).tolist()
    return trace_branches(Setting(3, 3), beta, n_starts=20, generator=generator())


def test_bifurcations_of_three_memories(three):
    place = {(name, kind): value for name, kind, value in three.bifurcations}
    line = theory.symmetric_transition(Setting(3, 3).problem(), "beta")
    assert place["symmetric", "crossing"] == pytest.approx(line, abs=1e-6)
    assert place["broken", "end"] == pytest.approx(3.319182, abs=1e-5)
    curves = {curve.name: curve for curve in three.curves}
    trunk, broken = curves["symmetric"], curves["broken"]
    np.testing.assert_array_equal(trunk.stable, trunk.beta < line)
    assert broken.stable[broken.beta > 3.3192].all()  # nearer to the fold rounding decides
    # Behind the fold an unstable solution leads from the broken branch to the symmetric one.
    bridge = curves["broken, behind its fold"]
    assert not bridge.stable[bridge.beta > 3.3192].any()
    assert bridge.beta[-1] == pytest.approx(line, abs=1e-4)
    # There λ = β_eff a = 1 and β_eff² = P* + P/ϱ = 4.5.
    np.testing.assert_allclose(bridge.overlaps[-1], math.sqrt(1 / 4.5), rtol=0, atol=1e-6)
    drawn = three.draw_tree()
    assert drawn.get_xlim() == (trunk.beta[0], trunk.beta[-1])


@pytest.mark.slow
def test_branches_are_all_solutions_at_every_beta_and_keep_apart_where_they_cross():
    beta = np.linspace(3.25, 4.45, 13)
    found = trace_branches(Setting(3, 3), beta.tolist(), n_starts=90, generator=generator())
    place = {(name, kind): value for name, kind, value in found.bifurcations}
    start = {curve.name: float(curve.beta[0]) for curve in found.curves}
    line = theory.symmetric_transition(Setting(3, 3).problem(), "beta")
    # Of the saddles one starts in a fold, two on the trunk, and one forks off another.
    assert place["partly broken 2+1 (a)", "end"] == pytest.approx(3.397005, abs=1e-5)
    forks = [start[name] for name in ("broken (b)", "partly broken 2+1 (b)", "broken (c)")]
    assert forks == pytest.approx([line, line, 3.881833], abs=1e-5)
    assert place["partly broken 2+1 (b)", "crossing"] == pytest.approx(3.881833, abs=1e-5)
    # At 4.2067 two saddles cross.
    for value in (3.65, 4.15, 4.25):
        traced = {
            tuple(sorted(round(float(np.interp(value, c.beta, top)), 5) for top in c.overlaps.T))
            for c in found.curves
            if c.beta[0] <= value <= c.beta[-1]
        }
        problem = Setting(3, 3).problem(beta=value)
        expected = {
            tuple(sorted(round(float(s.m[:, group[0]].max()), 5) for group in s.symmetry.groups))
            for s in theory.find_solutions(problem, 180, generator=generator())
        }
        assert traced == expected


def pair():
    """Two patterns at angle ±θ from their mean: (cos θ, sin θ)."""
    x, _ = tree_patterns(1, generator=generator())
    return float(x[0, 0]), abs(float(x[0, 1]))


def test_two_patterns_part_two_memories_at_cos_over_sin_squared():
    cos, sin = pair()
    split = cos / sin**2
    beta = np.geomspace(0.5 * split, 3.0 * split, 8).tolist()
    found = trace_hierarchy(1, 2, beta, generator=generator())
    assert found.splits == pytest.approx([split], rel=1e-8)
    # Below they sit on the mean, far above each on its pattern.
    below = found.beta < split
    np.testing.assert_allclose(found.positions[:, below], 0.0, atol=1e-9)
    np.testing.assert_allclose(found.positions[:, -1], [-sin, sin], rtol=0.05)
    np.testing.assert_array_equal(found.n_groups, np.where(found.beta > split + 1e-6, 2, 1))
    ((beta_saddle, path),) = found.saddles
    assert beta_saddle[-1] == pytest.approx(beta[-1])
    np.testing.assert_allclose(path, 0.0, atol=1e-9)


@pytest.mark.slow
def test_a_deeper_tree_parts_top_down_where_the_jacobian_says():
    beta = np.geomspace(1.5, 20.0, 16).tolist()
    found = trace_hierarchy(2, 4, beta, generator=generator())
    assert len(found.splits) == 3
    assert (np.diff(found.n_groups) >= 0).all()
    # The first split, from the full Jacobian of four coinciding memories by another route.
    x, _ = tree_patterns(2, generator=generator())
    problem = theory.SaddlePointProblem.clamped(
        x, n_student=4, beta=found.splits[0], rho=math.inf, upsilon=math.inf
    )
    direction = x.sum(0) / x.sum(0).norm()
    m = (x @ direction)[:, None].expand(-1, 4)
    state = newton(problem, theory.OrderParameters(m, problem.p_h[:, None])).state
    assert float(theory.spectrum(problem, state)[0]) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("n", [1, 2])
def test_a_strong_teacher_is_sampled_where_theory_has_it(n):
    own, parted, mean, excess = weak.sampled(
        n, 4.0, 3.0, 5.0, 101, sweeps=40, generator=generator()
    )
    assert own == pytest.approx(parted, abs=0.1)
    assert abs(excess) < 0.1 * abs(mean)


def test_one_memory_at_finite_size_is_off_by_what_is_computed():
    setting, sampling = Setting(1, 1, 5.0, 1.0, 0.5), Sampling(12, 1, n_burn_in=10, n_sweeps=40)
    data = study_finite_size([60], sampling, generator=generator(), settings=[setting])
    (row,), branches = data["rows"], data["branches"]
    (found,) = row["sampled"]
    assert abs(found["gap"] - row["computed"]) < 0.3 + 4 * found["gap_error"]
    assert found["mean"] == pytest.approx(row["theory"] + row["computed"] / 60, abs=0.02)
    assert branches["gap"] > 0 > -branches["f_1"]

"""Solutions that differ by more than a permutation, named by symmetry, sorted."""

import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from draws import generator
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory import solutions
from mnemosphere.theory.problem import SaddlePointProblem
from research.theory.branches import orbit


def uniform(n_teacher, n_student, beta=10.0, **marginals):
    return SaddlePointProblem.uniform(
        n_teacher, n_student, beta=beta, rho=2.0, upsilon=1.0, n_features=300, **marginals
    )


def test_three_memories_on_three_teachers_have_six_solutions_and_no_more():
    problem = uniform(3, 3, beta=4.0)
    found = solutions.find_solutions(problem, 120, generator=generator())
    assert [s.index for s in found] == [0, 1, 2, 3, 3, 4]
    assert (found[0].symmetry.kind, found[-1].symmetry.kind) == ("broken", "symmetric")
    assert sorted(found[0].symmetry.specialization) == [0, 1, 2]
    assert sum(s.count for s in found) == 120
    columns = [found[i].m.T.sort(1).values.sort(0).values for i in (2, 3)]
    chain = [[0.240, 0.521, 0.576], [0.307, 0.521, 0.588], [0.307, 0.576, 0.588]]
    ring = [[0.278, 0.565, 0.565]] * 3
    for m, expected in zip(columns, (chain, ring), strict=True):
        torch.testing.assert_close(m, torch.tensor(expected).double(), rtol=0, atol=1e-3)
    for s in found:
        # The index is that of the free entropy over the memories, by autograd.
        x_bar = sp.conjugate(problem, s.state).x_bar
        w = sp.mean_memories(problem, x_bar)

        def value(w, p=s.p):
            entropy = 0.5 * torch.log1p(-(w * w).sum(1)).sum()
            log_norm = torch.logsumexp(problem.beta_eff * w.T + p[1:, 0].log(), 1)
            return entropy + problem.rho * log_norm.sum()

        curvature = torch.linalg.eigvalsh(hessian(value, w).reshape(9, 9))
        assert int((curvature > 1e-9).sum()) == s.index
        assert s.stable == (s.index == 0)
        assert float(jacobian(value, w).abs().max()) < 1e-8
    # Morse: over all stationary points in a ball, with −F rising to its edge, (−1)^index sums to 1.
    assert sum((-1) ** s.index * orbit(s.m) for s in found) == 1
    assert [orbit(s.m) for s in found] == [6, 9, 18, 6, 9, 1]


def test_more_memories_than_teachers():
    found = solutions.find_solutions(uniform(3, 5), 80, generator=generator())
    values = [s.free_entropy for s in found]
    assert values == sorted(values, reverse=True)
    best = found[0]
    # Five memories on three teachers: two pairs of twins and a single one.
    assert best.symmetry.kind == "partially broken"
    assert [len(group) for group in best.symmetry.groups] == [2, 2, 1]
    assert set(best.symmetry.specialization) == {0, 1, 2}
    assert any(s.symmetry.kind == "symmetric" for s in found)
    for s in found:
        assert float(sp.residual(s.problem, s.state)) < 1e-9


@pytest.mark.parametrize("labeled", [False, True])
def test_permutations_do_not_change_the_signature_and_other_changes_do(labeled):
    marginals = {}
    if labeled:
        marginals = {"labels": torch.tensor([[0.5, 0.3, 0.2]]).double().expand(5, -1)}
    problem = uniform(5, 3, **marginals)
    state = sp.random_starts(problem, 1, generator=generator(1))
    mark = solutions.signature(problem, state)
    memories, teachers = torch.tensor([2, 0, 1]), torch.tensor([3, 0, 4, 2, 1])
    rows = torch.cat([torch.tensor([0]), memories + 1])
    moved = sp.OrderParameters(state.m[:, teachers][:, :, memories], state.p[:, rows])
    torch.testing.assert_close(solutions.signature(problem, moved), mark, rtol=0, atol=1e-12)
    other = state.m.clone()
    other[0, 2, 1] += 1e-3
    changed = solutions.signature(problem, sp.OrderParameters(other, state.p))
    assert float((changed - mark).abs().max()) > 1e-5
    # Memories moved without their class weights are another state.
    if labeled:
        torn = solutions.signature(problem, sp.OrderParameters(state.m[:, :, memories], state.p))
        assert float((torn - mark).abs().max()) > 1e-4


def test_cycles_that_look_alike_locally_are_told_apart():
    # Six memories, each shared between two teachers: one ring of six, or two rings of three.
    problem = uniform(6, 6)
    ring, rings = torch.zeros(6, 6).double(), torch.zeros(6, 6).double()
    for j in range(6):
        ring[[j, (j + 1) % 6], j] = 0.6
        rings[[j, j - j % 3 + (j + 1) % 3], j] = 0.6
    p = problem.p_h[:, None]
    marks = solutions.signature(
        problem, sp.OrderParameters(torch.stack([ring, rings]), torch.stack([p, p]))
    )
    assert float((marks[0] - marks[1]).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("m", "kind"),
    [
        ([[0.5], [0.5]], "symmetric"),
        ([[0.9], [0.1]], "broken"),
        ([[0.5, 0.5], [0.5, 0.5]], "symmetric"),
        ([[0.9, 0.1], [0.1, 0.9]], "broken"),
        ([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]], "partially broken"),
        ([[0.0, 1e-9], [0.0, 0.0]], "paramagnetic"),
    ],
)
def test_names(m, kind):
    state = sp.OrderParameters(torch.tensor(m, dtype=torch.float64), torch.empty(0))
    assert solutions.classify(state).kind == kind

"""The descent of the energy, step by step, against enumeration and SciPy."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import generator
from mnemosphere.model.mixture import Mixture
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
    known = torch.rand(rows, features, generator=generator(seed)) < 0.5
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
    found = recall(params, x, class_index=class_index, steps=11, known=known, tol=0.0, record=True)
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


@pytest.mark.parametrize("class_index", [None, 2])
@pytest.mark.parametrize("mode", ["all", "free"])
def test_the_tangent_gradient_vanishes_where_recall_ends(problem, oracle, class_index, mode):
    """Tangent to what may still move: the sphere, and the slice of it that agrees with x."""
    params, x, _, _ = problem(5, beta=8.0, clustered=True)
    known = None if mode == "all" else mask(*x.shape, 3)
    found = recall(params, x, class_index=class_index, steps=20_000, known=known, tol=1e-14)
    end = found.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy_of(oracle, params, end, class_index).sum(), end)
    tested = 0
    for row in range(x.shape[0]):
        columns = torch.eye(x.shape[1], dtype=torch.float64)
        if known is not None:
            columns = torch.cat([columns[:, ~known[row]], (x[row] * known[row])[:, None]], 1)
        # Directions allowed, less their part along the radius.
        columns = columns - torch.outer(found.x[row], found.x[row] @ columns)
        slope = gradient[row] @ columns
        opposed = mode == "free" and bool((found.x[row] * known[row]).norm() < 1e-6)
        if not opposed:  # no best scale there: the known part shrinks without end
            assert slope.norm() < 1e-11
            tested += 1
    assert tested > 15
    assert found.converged.float().mean() > 0.8


def test_completion_of_a_stored_pattern_finds_scale_and_rest(problem):
    """Half of a memory's entries, put on the sphere alone, bring the whole memory back."""
    params, *_ = problem(3, features=61, memories=5, beta=80.0)
    known = torch.rand(5, 61, generator=generator(1)) < 0.5
    start = sphere.project(params.w * known)
    found = recall(params, start, known=known, steps=200, tol=1e-13)
    assert found.converged.all()
    assert ((found.x * params.w).sum(1) > 0.9999).all()
    assert ((start * params.w).sum(1) < 0.9).all()


def test_known_part_that_opposes_all_memories_shrinks_but_keeps_its_ratios(problem):
    params, *_ = problem(0, memories=1, beta=5.0)
    w = params.w[0]
    known = torch.tensor([[True, True, True, False, False, False, False]])
    x = sphere.project(-w[None] * known)
    one = recall(params, x, known=known, steps=1)
    torch.testing.assert_close(one.x[0, :3], x[0, :3] / 2)
    many = recall(params, x, known=known, steps=60)
    assert many.energy < one.energy
    torch.testing.assert_close(many.x[0, 3:], w[3:] / w[3:].norm())
    assert many.x[0, 0] / many.x[0, 1] == pytest.approx(float(x[0, 0] / x[0, 1]), rel=1e-12)


def test_a_class_leads_to_its_own_memories_in_single_precision():
    """Even where the start is e^150 times denser in the other class."""
    w = torch.tensor([[1.0, 0.0, 0.0], [-0.6, 0.8, 0.0]])
    p = torch.tensor([[0.1, 0.1], [0.4, 0.0], [0.0, 0.4]])
    params = Mixture(w, p, torch.tensor(100.0), 1.0, p.sum(1), p.sum(0)).check()
    x = w[:1].clone()
    for y in (0, 1):
        for class_index in (y, torch.tensor([y])):
            found = recall(params, x, class_index=class_index)
            torch.testing.assert_close(found.x[0], w[y])


def test_rows_do_not_depend_on_their_company(problem):
    """Rows that stop early, a class for each row: each row as if alone."""
    params, x, _, _ = problem(4, beta=9.0)
    y = torch.arange(x.shape[0]) % 4
    known = mask(*x.shape, 8)
    found = recall(params, x, class_index=y, known=known, steps=40, tol=1e-5)
    for row in range(x.shape[0]):
        part = slice(row, row + 1)
        alone = recall(
            params, x[part], class_index=int(y[row]), known=known[part], steps=40, tol=1e-5
        )
        torch.testing.assert_close(found.x[part], alone.x, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.energy[part], alone.energy)
        assert found.steps[row] == alone.steps[0]
        assert found.converged[row] == alone.converged[0]
    assert len(set(found.steps.tolist())) > 2


@pytest.mark.parametrize(
    "k", [0, 1, 5, 40]
)  # in the last three, row 1 once had a made-up known part
def test_what_is_known_stays_also_through_a_metric(problem, k):
    """Seen through a metric, completion keeps the known coordinates before it, up to one factor."""
    params = problem(31 + k, features=5, memories=7, beta=9.0).params
    a = torch.randn(5, 5, generator=generator(1 + k), dtype=torch.float64)
    v = torch.randn(11, 5, generator=generator(2 + k), dtype=torch.float64)
    known = mask(11, 5, 3 + k)
    x = sphere.project((v * known) @ a.T + 1e-3 * (v @ a.T))
    given = torch.linalg.solve(a, x.T).T
    found = recall(params, x, known=known, metric=a, steps=60, record=True)
    back = torch.linalg.solve(a, found.x.T).T
    for row in range(1, 11):
        at = known[row]
        if at.any():
            factor = (back[row, at] @ given[row, at]) / given[row, at].square().sum()
            assert factor > 0
            torch.testing.assert_close(back[row, at], factor * given[row, at], rtol=0, atol=1e-8)
    assert (found.energies.diff(dim=0) <= 1e-9).all()
    assert (found.energies[0] - found.energies[-1] > 1e-3).any()

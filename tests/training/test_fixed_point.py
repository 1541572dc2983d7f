from __future__ import annotations

import itertools
import math

import mpmath
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mnemosphere.model.kernel import accumulate, log_joint
from mnemosphere.model.objectives import conditional, joint, marginal, soft_labels
from mnemosphere.model.parameters import component_prior, from_memories
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training.batches import Batch, Data, row_batches
from mnemosphere.training.fixed_point import FixedPoint, bound, maximize_bound, residual
from mnemosphere.training.loop import train


def whole(case):
    return Batch(case.x, case.targets, case.sample_weight, 1.0)


def statistics(case, params, rule=joint):
    return accumulate(params, case.x, case.targets, rule, sample_weight=case.sample_weight)


def assert_feasible(params, tol=1e-11):
    assert_close(params.w.norm(dim=1), torch.ones(params.n_memories).double(), rtol=0, atol=1e-13)
    assert (params.p >= 0).all()
    assert_close(params.p.sum(1), params.p_h, rtol=tol, atol=tol)
    assert_close(params.p.sum(0), params.p_q, rtol=tol, atol=tol)
    assert params.beta > 0


# The law: the loss never increases


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 31),
    features=st.sampled_from([2, 3, 7, 61]),
    memories=st.integers(1, 37),
    classes=st.integers(1, 5),
    log_beta=st.floats(-4.0, 5.0),
    varsigma=st.sampled_from([0.05, 0.25, 0.6, 1.0]),
    labels=st.sampled_from(["full", "none", "mixed"]),
    weighted=st.booleans(),
    contrast=st.floats(0.0, 6.0),
    clustered=st.booleans(),
    learn_beta=st.booleans(),
    rule=st.sampled_from([joint, marginal]),
)
def test_the_loss_never_increases(problem, log_beta, learn_beta, rule, **kwargs):
    case = problem(beta=math.exp(log_beta), **kwargs)
    solver = FixedPoint(learn_beta=learn_beta)
    params, state = case.params, solver.start(case.params)
    before = math.inf
    for _ in range(5):
        stats = statistics(case, params, rule)
        loss = float(stats.mean_loss)
        # Exponents of size β carry a rounding error of β·eps.
        assert loss <= before + 1e-10 * (1 + abs(loss)) + 1e-14 * float(params.beta)
        before = loss
        params, state = solver.step(params, state, stats, whole(case))
        assert_feasible(params)
        if not learn_beta:
            assert params.beta == case.params.beta


def test_the_loss_never_increases_in_float32(problem):
    case = problem(3, rows=211, memories=29, features=17, varsigma=0.25, clustered=True)
    single = case._replace(
        params=case.params.to(dtype=torch.float32), x=case.x.float(), targets=case.targets.float()
    )
    losses = [
        record.loss
        for record in train(single.params, single.data, FixedPoint(), max_epochs=20).history
    ]
    assert all(b <= a + 1e-5 for a, b in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 0.1


# The M-step is exact


@pytest.fixture
def stepped(problem):
    case = problem(4, rows=53, varsigma=0.4, weighted=True)
    stats = statistics(case, case.params)
    return case.params, stats, maximize_bound(case.params, stats.w_bar, stats.p_bar)


def q_function(params, stats):
    """The bound from its definition, with Ω from mpmath: Σ p̄ log p + Σ_μ ςβ⟨w̄,w⟩ − mass·log Ω."""
    n, beta = params.n_features, float(params.beta)
    half = mpmath.mpf(n) / 2
    log_ratio = float(
        mpmath.log(mpmath.gamma(half) * (2 / mpmath.mpf(beta)) ** (half - 1))
        + mpmath.log(mpmath.besseli(half - 1, beta))
    )
    value = float((stats.p_bar * params.p.log()).sum())
    value += params.varsigma * beta * float((stats.w_bar * params.w).sum())
    return value - log_ratio * float(stats.p_bar[1:].sum())


def test_bound_is_the_bound(stepped):
    old, stats, new = stepped
    for params in (old, new):
        mine = float(bound(params, stats.w_bar, stats.p_bar))
        assert mine == pytest.approx(q_function(params, stats), rel=1e-12)


def test_the_bound_touches_the_loss_with_its_gradient(stepped):
    """At the parameters of the statistics, bound and minus the summed loss have one gradient."""
    old, stats, _ = stepped
    leaves = [t.clone().requires_grad_() for t in (old.w, old.p)]
    value = bound(old.replace(w=leaves[0], p=leaves[1]), stats.w_bar, stats.p_bar)
    gradient = stats.gradient(old)
    for mine, of_loss in zip(torch.autograd.grad(value, leaves), gradient[:2], strict=True):
        assert_close(mine, -of_loss * stats.count)
    h = 1e-5
    slope = (
        q_function(old.replace(beta=old.beta + h), stats)
        - q_function(old.replace(beta=old.beta - h), stats)
    ) / (2 * h)
    assert slope == pytest.approx(-float(gradient.beta * stats.count), rel=1e-7)


def test_beta_step_is_stationary_and_a_maximum(stepped):
    _, stats, new = stepped
    h = 1e-3 * float(new.beta)
    low, here, high = (
        q_function(new.replace(beta=new.beta + shift), stats) for shift in (-h, 0.0, h)
    )
    assert abs(high - low) / 2 < 1e-3 * (2 * here - low - high)
    assert here > max(low, high)


def test_memory_step_is_the_maximum_on_the_sphere(stepped):
    _, stats, new = stepped
    pull = (stats.w_bar * new.w).sum(1)
    others = sphere.sample_uniform(
        997, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    assert (stats.w_bar @ others.T <= pull[:, None]).all()
    assert_close(sphere.to_tangent(new.w, stats.w_bar), torch.zeros_like(new.w), rtol=0, atol=1e-13)


def test_class_step_is_the_maximum_on_the_polytope(stepped):
    """No move that keeps the marginals gains: p̄/p is a sum of a row part and a column part."""
    old, stats, new = stepped
    ratio = stats.p_bar / new.p
    centered = ratio - ratio.mean(0) - ratio.mean(1, keepdim=True) + ratio.mean()
    assert_close(centered, torch.zeros_like(ratio), rtol=0, atol=1e-8 * float(ratio.max()))
    assert_close(new.p, polytope.maximize(stats.p_bar, old.p_h, old.p_q).p)


def test_a_fixed_beta_is_kept(stepped):
    old, stats, new = stepped
    fixed = maximize_bound(old, stats.w_bar, stats.p_bar, learn_beta=False)
    assert fixed.beta == old.beta
    assert torch.equal(fixed.w, new.w)


def test_a_memory_without_pull_stays(problem):
    case = problem(5)
    stats = statistics(case, case.params)
    w_bar = stats.w_bar.clone()
    w_bar[3] = 0.0
    new = maximize_bound(case.params, w_bar, stats.p_bar)
    assert_close(new.w[3], case.params.w[3])
    assert_feasible(new)


def test_no_pull_at_all_and_perfect_pull_keep_beta_finite(problem):
    params = problem(6).params
    p_bar = params.p
    none = maximize_bound(params, torch.zeros_like(params.w), p_bar)
    full = maximize_bound(params, p_bar[1:].sum(1, keepdim=True) * params.w, p_bar)
    assert 0 < none.beta < 1e-6
    assert torch.isfinite(full.beta)
    assert full.beta > 1e6


# Convergence and residual


def test_a_converged_run_is_stationary(problem, oracle):
    """What the solver converges to is a stationary point of the plain loss on the manifold."""
    case = problem(7, rows=101, memories=3, labels="full", clustered=True, contrast=1.0)
    result = train(case.params, case.data, FixedPoint(), max_epochs=50, tol=1e-13)
    assert result.status == "converged"
    params = result.params
    gw, gp, gb = oracle.gradient("joint", params, case.x, case.targets)
    assert sphere.to_tangent(params.w, gw).abs().max() < 1e-6
    tangent = polytope.to_tangent(params.p, params.p * gp, params.p_h, params.p_q)
    assert tangent.abs().max() < 1e-6
    assert abs(float(gb)) < 1e-6
    assert float(residual(params, params)) == 0.0


def test_residual_measures_each_part(problem):
    params = problem(8).params
    turned = params.w.clone()
    turned[2] = -turned[2]
    assert float(residual(params, params.replace(w=turned))) == pytest.approx(2.0)
    assert float(residual(params, params.replace(beta=params.beta * 1.25))) == pytest.approx(0.25)
    p = params.p.clone()
    p[4] = p[4].flip(0)
    moved = float((params.p[4] - p[4]).abs().sum() / params.p_h[4])
    assert float(residual(params, params.replace(p=p))) == pytest.approx(moved)


# Dead memories


def crowd(dtype=torch.float64):
    """Two tight groups of rows, memories on one of them alone, and one memory far from all."""
    generator = torch.Generator().manual_seed(1)
    centers = torch.eye(2, 19, dtype=dtype)
    noise = torch.randn(60, 19, generator=generator, dtype=dtype) * 0.05
    classes = torch.arange(60) // 30
    x = sphere.project(centers[classes] + noise)
    w = sphere.project(torch.stack([x[0], x[1], x[2], -x[0]]))
    p_q = torch.tensor([0.48, 0.48, 0.04], dtype=dtype)
    params = from_memories(w, p_q, beta=120.0)
    return params, Data(x, soft_labels(classes, 2, 0.1, dtype=dtype))


def test_a_dead_memory_is_put_on_a_row_that_is_explained_badly():
    params, data = crowd()
    stats = accumulate(params, data.x, data.targets, joint)
    assert stats.mass[4] < 1e-3  # dead
    solver = FixedPoint()
    batch = Batch(data.x, data.targets, None, 1.0)
    new, _ = solver.step(params, solver.start(params), stats, batch)
    (row,) = (data.x @ new.w[3] > 1 - 1e-12).nonzero().ravel().tolist()
    density = log_joint(params, data.x).logsumexp(1)
    assert row >= 30  # of the group that no memory is near
    assert density[row] == pytest.approx(float(density.min()))
    label = new.p[4] / new.p[4].sum()
    assert label[1] == label.max()
    result = train(params, data, solver, max_epochs=30)
    overlap = result.params.w @ torch.eye(2, 19, dtype=torch.float64).T
    assert (overlap.amax(0) > 0.95).all()  # both groups have a memory now
    assert (accumulate(result.params, data.x, data.targets, joint).mass[1:] > 1e-3).all()


def test_a_memory_that_answers_for_something_is_left_alone():
    params, data = crowd()
    generator = torch.Generator().manual_seed(2)
    alive = params.replace(
        w=data.x[torch.randperm(60, generator=generator)[:4]], beta=torch.tensor(5.0).double()
    )
    stats = accumulate(alive, data.x, data.targets, joint)
    solver = FixedPoint()
    batch = Batch(data.x, data.targets, None, 1.0)
    new, _ = solver.step(alive, solver.start(alive), stats, batch)
    expected = maximize_bound(alive, stats.w_bar, stats.p_bar)
    assert_close(new.w, expected.w)
    assert_close(new.p, expected.p)


def test_dead_memories_without_labels_get_the_prior():
    params, data = crowd()
    unlabelled = Data(data.x, torch.zeros_like(data.targets))
    solver = FixedPoint()
    stats = accumulate(params, unlabelled.x, unlabelled.targets, joint)
    batch = Batch(unlabelled.x, unlabelled.targets, None, 1.0)
    new, _ = solver.step(params, solver.start(params), stats, batch)
    assert_feasible(new)
    assert_close(new.p[4] / new.p[4].sum(), params.p_q, rtol=1e-6, atol=1e-6)


# Batches


def test_one_batch_of_all_rows_is_the_exact_step(problem):
    case = problem(9)
    exact = train(case.params, case.data, FixedPoint(), max_epochs=4)
    large = train(case.params, case.data, FixedPoint(batch_size=1000), max_epochs=4)
    assert torch.equal(exact.params.w, large.params.w)
    assert torch.equal(exact.params.p, large.params.p)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_reach_the_loss_of_exact_steps(problem, weighted):
    case = problem(
        10, rows=1009, memories=11, features=13, varsigma=0.5, clustered=True, weighted=weighted
    )
    exact = train(case.params, case.data, FixedPoint(), max_epochs=20)
    steps = train(case.params, case.data, FixedPoint(batch_size=101), max_epochs=5)
    assert_feasible(steps.params)
    reached = float(statistics(case, steps.params).mean_loss)
    assert reached == pytest.approx(exact.history[-1].loss, abs=0.03)
    # and from the first pass on they are ahead
    assert steps.history[1].loss < exact.history[1].loss


def test_marginals_hold_after_every_batch(problem):
    case = problem(11, rows=97, memories=13, contrast=4.0, weighted=True)
    solver = FixedPoint(batch_size=17)
    params, state = case.params, solver.start(case.params)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for rows in row_batches(97, 17, generator, case.x.device):
            part = case.data.take(rows)
            batch = Batch(part.x, part.targets, part.sample_weight, part.n_rows / 97)
            stats = accumulate(
                params, batch.x, batch.targets, joint, sample_weight=batch.sample_weight
            )
            params, state = solver.step(params, state, stats, batch)
            assert_feasible(params)
    assert float(state["passes"]) == pytest.approx(3.0)


def test_rows_without_weight_do_not_poison_a_batch(problem):
    case = problem(12, rows=13, weighted=True)
    weight = case.sample_weight.clone()
    weight[::2] = 0.0
    data = Data(case.x, case.targets, weight)
    result = train(case.params, data, FixedPoint(batch_size=1), max_epochs=2)
    assert_feasible(result.params)
    kept = data.take(weight > 0)
    other = train(case.params, kept, FixedPoint(batch_size=1), max_epochs=2)
    assert torch.equal(result.params.w, other.params.w)


# Symmetry


def symmetric_case(problem):
    case = problem(13, rows=61, memories=5, weighted=True, varsigma=0.4)
    assert statistics(case, case.params).mass.min() > 1e-3  # no re-seeding
    return case


def step(case):
    solver = FixedPoint()
    return solver.step(
        case.params, solver.start(case.params), statistics(case, case.params), whole(case)
    )[0]


def test_rotation(problem):
    case = symmetric_case(problem)
    turn = torch.linalg.qr(
        torch.randn(7, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    )[0]
    turned = case._replace(params=case.params.replace(w=case.params.w @ turn), x=case.x @ turn)
    a, b = step(case), step(turned)
    assert_close(b.w, a.w @ turn, rtol=1e-10, atol=1e-10)
    assert_close(b.p, a.p, rtol=1e-9, atol=1e-12)
    assert_close(b.beta, a.beta, rtol=1e-10, atol=0)


def test_permutation_of_memories_and_classes(problem):
    case = symmetric_case(problem)
    memory, column = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([2, 3, 1, 0])
    component = torch.cat([torch.zeros(1, dtype=torch.int64), memory + 1])
    params = case.params
    moved = params.replace(
        w=params.w[memory],
        p=params.p[component][:, column],
        p_h=params.p_h[component],
        p_q=params.p_q[column],
    )
    a, b = step(case), step(case._replace(params=moved, targets=case.targets[:, column]))
    assert_close(b.w, a.w[memory], rtol=1e-10, atol=1e-10)
    assert_close(b.p, a.p[component][:, column], rtol=1e-9, atol=1e-12)
    assert_close(b.beta, a.beta, rtol=1e-10, atol=0)


# Borders


def test_no_uniform_component(problem):
    case = problem(14, rows=43)
    params = from_memories(case.params.w, case.params.p_q, beta=3.0, uniform_weight=0.0)
    result = train(params, case.data, FixedPoint(), max_epochs=5)
    assert_feasible(result.params)
    assert (result.params.p[0] == 0).all()
    assert_close(result.params.p_h, component_prior(5, 0.0))


def test_objectives_with_negative_weights_are_refused(problem):
    case = problem()
    with pytest.raises(ValueError, match="train it with the SGD solver"):
        train(case.params, case.data, FixedPoint(), rule=conditional)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="batch_size must be >= 1 or None, got 0"):
        FixedPoint(batch_size=0)

import itertools
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from draws import generator
from fixed_points import assert_feasible, crowd
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import displacement, maximize_bound
from mnemosphere.model.mixture import from_memories
from mnemosphere.model.objectives import joint, marginal
from mnemosphere.model.one_pass import accumulate, log_joint
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint


def statistics(case, params, rule=joint):
    return accumulate(params, case.batch, rule)


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
    learn_weights=st.booleans(),
    rule=st.sampled_from([joint, marginal]),
)
def test_the_loss_never_increases(problem, log_beta, learn_beta, learn_weights, rule, **kwargs):
    case = problem(beta=math.exp(log_beta), **kwargs)
    solver = FixedPoint(learn_beta=learn_beta, learn_weights=learn_weights)
    params, state = case.params, solver.start(case.params)
    before = math.inf
    for _ in range(5):
        stats = statistics(case, params, rule)
        loss = float(stats.mean_loss)
        # Exponents of size β carry a rounding error of β·eps.
        assert loss <= before + 1e-10 * (1 + abs(loss)) + 1e-14 * float(params.beta)
        before = loss
        params, state = solver.step(params, state, stats, case.batch, 1.0)
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
        for record in fit(
            single.params, single.dataset, FixedPoint(None, tol=0), max_iter=20
        ).history
    ]
    assert all(b <= a + 1e-5 for a, b in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 0.1


# Convergence and residual


def test_a_converged_run_is_stationary(problem, oracle):
    """What the solver converges to is a stationary point of the plain loss on the manifold."""
    case = problem(7, rows=101, memories=3, labels="full", clustered=True, contrast=1.0)
    result = fit(case.params, case.dataset, FixedPoint(None, tol=1e-13), max_iter=50)
    assert result.status == "converged"
    params = result.params
    gw, gp, gb = oracle.gradient("joint", params, case.x, case.targets)
    assert sphere.to_tangent(params.w, gw).abs().max() < 1e-6
    tangent = polytope.to_tangent(params.p, params.p * gp, params.p_h, params.p_q)
    assert tangent.abs().max() < 1e-6
    assert abs(float(gb)) < 1e-6
    assert result.history[-1].residual < 1e-6


# Dead memories


def test_a_dead_memory_is_put_on_a_row_that_is_explained_badly():
    params, rows = crowd()
    stats = accumulate(params, rows, joint)
    assert stats.mass[4] < 1e-3  # dead
    solver = FixedPoint(None)
    new, _ = solver.step(params, solver.start(params), stats, rows, 1.0)
    (row,) = (rows.x @ new.w[3] > 1 - 1e-12).nonzero().ravel().tolist()
    density = log_joint(params, rows.x).logsumexp(1)
    assert row >= 30  # of the group that no memory is near
    assert density[row] == pytest.approx(float(density.min()))
    label = new.p[4] / new.p[4].sum()
    assert label[1] == label.max()
    result = fit(params, ArrayDataset(rows), solver, max_iter=30)
    overlap = result.params.w @ torch.eye(2, 19, dtype=torch.float64).T
    assert (overlap.amax(0) > 0.95).all()  # both groups have a memory now
    assert (accumulate(result.params, rows, joint).mass[1:] > 1e-3).all()


def test_a_memory_that_answers_for_something_is_left_alone():
    params, rows = crowd()
    generator = torch.Generator().manual_seed(2)
    alive = params.replace(
        w=rows.x[torch.randperm(60, generator=generator)[:4]], beta=torch.tensor(5.0).double()
    )
    stats = accumulate(alive, rows, joint)
    solver = FixedPoint(None)
    new, _ = solver.step(alive, solver.start(alive), stats, rows, 1.0)
    expected = maximize_bound(alive, stats.w_bar, stats.p_bar)
    assert_close(new.w, expected.w)
    assert_close(new.p, expected.p)


def test_dead_memories_without_labels_get_the_prior():
    params, rows = crowd()
    unlabeled = Batch(rows.x, torch.zeros_like(rows.targets))
    solver = FixedPoint(None)
    stats = accumulate(params, unlabeled, joint)
    new, _ = solver.step(params, solver.start(params), stats, unlabeled, 1.0)
    assert_feasible(new)
    assert_close(new.p[4] / new.p[4].sum(), params.p_q, rtol=1e-6, atol=1e-6)


# Batches


@pytest.mark.parametrize(
    "solver", [FixedPoint(batch_size=1000, tol=0), FixedPoint(None, tol=0, by_pass=True)]
)
def test_one_batch_of_all_rows_is_the_exact_step(problem, solver):
    case = problem(9)
    exact = fit(case.params, case.dataset, FixedPoint(None, tol=0), max_iter=4)
    large = fit(case.params, case.dataset, solver, max_iter=4)
    assert torch.equal(exact.params.w, large.params.w)
    assert torch.equal(exact.params.p, large.params.p)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_reach_the_loss_of_exact_steps(problem, weighted):
    case = problem(
        10, rows=1009, memories=11, features=13, varsigma=0.5, clustered=True, weighted=weighted
    )
    exact = fit(case.params, case.dataset, FixedPoint(None, tol=0), max_iter=20)
    steps = fit(case.params, case.dataset, FixedPoint(batch_size=101, tol=0), max_iter=5)
    assert_feasible(steps.params)
    reached = float(statistics(case, steps.params).mean_loss)
    assert reached == pytest.approx(exact.history[-1].loss, abs=0.03)
    # and from the first pass on they are ahead
    assert steps.history[1].loss < exact.history[1].loss


# Symmetry


def symmetric_case(problem):
    case = problem(13, rows=61, memories=5, weighted=True, varsigma=0.4)
    assert statistics(case, case.params).mass.min() > 1e-3  # no re-seeding
    return case


def step(case):
    solver = FixedPoint(None)
    return solver.step(
        case.params, solver.start(case.params), statistics(case, case.params), case.batch, 1.0
    )[0]


def test_rotation(problem):
    case = symmetric_case(problem)
    turn = torch.linalg.qr(torch.randn(7, 7, generator=generator(3), dtype=torch.float64))[0]
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
    result = fit(params, case.dataset, FixedPoint(None, tol=0), max_iter=5)
    assert_feasible(result.params)
    assert (result.params.p[0] == 0).all()
    assert_close(result.params.p_h, params.p_h)


CPU = torch.device("cpu")


@pytest.mark.parametrize(("n_rows", "size"), [(1999, None), (2000, 256), (60000, 3000)])
def test_auto_takes_twenty_steps_per_pass_of_large_data(n_rows, size):
    solver = FixedPoint().resolve(n_rows, learn_beta=False, device=CPU)
    assert solver == FixedPoint(size, learn_beta=False)
    assert solver.rows_per_step == size
    with pytest.raises(ValueError, match="batch_size is 'auto': call resolve"):
        _ = FixedPoint().rows_per_step


def test_a_fitted_model_resumes_as_if_a_pass_had_been_taken_in(problem):
    """At the fixed point the running mean that it stands for gives the model back."""
    case = problem(15, rows=101, memories=3, labels="full", clustered=True, contrast=1.0)
    solver = FixedPoint(None, tol=1e-13)
    params = fit(case.params, case.dataset, solver, max_iter=300).params
    state = solver.resume(params)
    again = maximize_bound(params, state["w_bar"], state["p_bar"])
    assert float(displacement(params, again).largest) < 1e-9
    stats = statistics(case, params)
    # β is that of the mean pull, so the summed lengths agree, and p̄ where the multipliers are 1.
    assert_close(
        state["w_bar"].norm(dim=1).sum() / state["p_bar"][1:].sum(),
        stats.w_bar.norm(dim=1).sum() / stats.p_bar[1:].sum(),
        rtol=1e-6,
        atol=0,
    )
    assert float(state["passes"]) == 1.0

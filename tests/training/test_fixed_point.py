from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate, log_joint
from mnemosphere.model.m_step import displacement, maximize_bound
from mnemosphere.model.objectives import conditional, joint, marginal, soft_labels
from mnemosphere.model.parameters import component_prior, from_memories
from mnemosphere.numerics import maximize_gpu, polytope, sphere
from mnemosphere.training import steps
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint


def statistics(case, params, rule=joint):
    return accumulate(params, case.batch, rule)


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
        for record in fit(single.params, single.dataset, FixedPoint(None), max_iter=20).history
    ]
    assert all(b <= a + 1e-5 for a, b in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 0.1


# Convergence and residual


def test_a_converged_run_is_stationary(problem, oracle):
    """What the solver converges to is a stationary point of the plain loss on the manifold."""
    case = problem(7, rows=101, memories=3, labels="full", clustered=True, contrast=1.0)
    result = fit(case.params, case.dataset, FixedPoint(None), max_iter=50, tol=1e-13)
    assert result.status == "converged"
    params = result.params
    gw, gp, gb = oracle.gradient("joint", params, case.x, case.targets)
    assert sphere.to_tangent(params.w, gw).abs().max() < 1e-6
    tangent = polytope.to_tangent(params.p, params.p * gp, params.p_h, params.p_q)
    assert tangent.abs().max() < 1e-6
    assert abs(float(gb)) < 1e-6
    assert result.history[-1].residual < 1e-6


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
    return params, Batch(x, soft_labels(classes, 2, 0.1, dtype=dtype))


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


def test_one_batch_of_all_rows_is_the_exact_step(problem):
    case = problem(9)
    exact = fit(case.params, case.dataset, FixedPoint(None), max_iter=4)
    large = fit(case.params, case.dataset, FixedPoint(batch_size=1000), max_iter=4)
    assert torch.equal(exact.params.w, large.params.w)
    assert torch.equal(exact.params.p, large.params.p)


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_reach_the_loss_of_exact_steps(problem, weighted):
    case = problem(
        10, rows=1009, memories=11, features=13, varsigma=0.5, clustered=True, weighted=weighted
    )
    exact = fit(case.params, case.dataset, FixedPoint(None), max_iter=20)
    steps = fit(case.params, case.dataset, FixedPoint(batch_size=101), max_iter=5)
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
        for batch in case.dataset.batches(17, generator=generator):
            stats = accumulate(params, batch, joint)
            share = batch.n_rows / case.dataset.n_rows
            params, state = solver.step(params, state, stats, batch, share)
            assert_feasible(params)
    assert float(state["passes"]) == pytest.approx(3.0)


def test_rows_without_weight_do_not_poison_a_batch(problem):
    case = problem(12, rows=13, weighted=True)
    weight = case.sample_weight.clone()
    weight[::2] = 0.0
    dataset = ArrayDataset.of(case.x, case.targets, weight)
    result = fit(case.params, dataset, FixedPoint(batch_size=1), max_iter=2)
    assert_feasible(result.params)
    kept = ArrayDataset(Batch(case.x, case.targets, weight).take(weight > 0))
    other = fit(case.params, kept, FixedPoint(batch_size=1), max_iter=2)
    assert torch.equal(result.params.w, other.params.w)


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
    result = fit(params, case.dataset, FixedPoint(None), max_iter=5)
    assert_feasible(result.params)
    assert (result.params.p[0] == 0).all()
    assert_close(result.params.p_h, component_prior(5, 0.0))


def test_objectives_with_negative_weights_are_refused(problem):
    case = problem()
    with pytest.raises(ValueError, match="train it with the SGD solver"):
        fit(case.params, case.dataset, FixedPoint(None), rule=conditional)


def test_bad_settings_are_refused():
    for size in (0, -3, 2.5, "all"):
        with pytest.raises(ValueError, match="batch_size must be >= 1, None or 'auto', got"):
            FixedPoint(batch_size=size)


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("n_rows", "size"),
    [(1999, None), (2000, 256), (5119, 256), (5200, 260), (60000, 3000)],
)
def test_auto_takes_twenty_steps_per_pass_of_large_data(n_rows, size):
    solver = FixedPoint().resolve(n_rows, learn_beta=False, device=CPU)
    assert solver == FixedPoint(size, learn_beta=False)
    assert solver.rows_per_step == size
    with pytest.raises(ValueError, match="batch_size is 'auto': call resolve"):
        _ = FixedPoint().rows_per_step


@pytest.mark.parametrize("size", [None, 7, 70000])
def test_a_size_asked_for_is_kept(size):
    assert FixedPoint(size).resolve(60000, learn_beta=True, device=CPU) == FixedPoint(size)


def test_a_fitted_model_resumes_as_if_a_pass_had_been_taken_in(problem):
    """At the fixed point the running mean that it stands for gives the model back."""
    case = problem(15, rows=101, memories=3, labels="full", clustered=True, contrast=1.0)
    solver = FixedPoint(None)
    params = fit(case.params, case.dataset, solver, max_iter=300, tol=1e-13).params
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


# Steps that stay on a GPU


def captured_where(n_columns, size, *, cuda=True):
    params = SimpleNamespace(w=SimpleNamespace(is_cuda=cuda), n_columns=n_columns)
    return FixedPoint(size).can_capture(params)


def test_batches_on_a_gpu_can_be_captured_where_the_kernel_works(problem, monkeypatch):
    assert not FixedPoint(7).can_capture(problem().params)  # on a processor
    for works in (False, True):
        monkeypatch.setattr(maximize_gpu, "_works", lambda works=works: works)
        assert captured_where(11, 7) == works
        assert captured_where(32, 7) == works
        assert not captured_where(33, 7)
        assert not captured_where(11, None)
        assert not captured_where(11, 7, cuda=False)


@pytest.fixture
def stand_in(monkeypatch):
    """The device's path on the processor: the exact maximizer in the kernel's place."""
    answer = {"error": None, "calls": 0}

    def maximize(p_bar, rows, cols, lam, omega, *, tol, max_iter):
        answer["calls"] += 1
        found = polytope.maximize(p_bar, rows, cols)
        lam.copy_(found.col_multipliers)
        omega.copy_(found.row_multipliers)
        error = found.error if answer["error"] is None else torch.tensor(answer["error"]).double()
        return found.p, error

    monkeypatch.setattr(maximize_gpu, "maximize", maximize)
    monkeypatch.setattr(maximize_gpu, "usable", lambda n_columns: True)
    monkeypatch.setattr(FixedPoint, "can_capture", lambda self, params: True)
    return answer


def three_passes(case, solver, params=None):
    params = case.params if params is None else params
    state = solver.start(params)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for batch in case.dataset.batches(17, generator=generator):
            stats = accumulate(params, batch, joint)
            share = batch.n_rows / case.dataset.n_rows
            params, state = solver.step(params, state, stats, batch, share)
        params, state = solver.end_pass(params, state, batch, case.dataset.n_rows)
    return params, state


@pytest.mark.parametrize("learn_beta", [False, True])
def test_steps_on_the_device_are_those_of_the_host(problem, stand_in, monkeypatch, learn_beta):
    """The same but for β, which comes near within a pass; then it is that of the running mean."""
    case = problem(16, rows=97, memories=5, varsigma=0.6, clustered=True, contrast=1.0)
    solver = FixedPoint(batch_size=17, learn_beta=learn_beta)
    there, state = three_passes(case, solver)
    assert stand_in["calls"] == 3 * (6 + 1)
    expected = maximize_bound(there, state["w_bar"], state["p_bar"], learn_beta=learn_beta)
    assert_close(there.w, expected.w, rtol=1e-12, atol=1e-12)
    assert_close(there.p, expected.p, rtol=1e-9, atol=1e-12)
    assert_close(there.beta, expected.beta, rtol=1e-9, atol=0)
    assert float(state["passes"]) == pytest.approx(3.0)
    monkeypatch.setattr(FixedPoint, "can_capture", lambda self, params: False)
    here, kept = three_passes(case, solver)
    assert_feasible(there)
    losses = [float(statistics(case, params).mean_loss) for params in (there, here)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    if not learn_beta:
        assert_close(there.w, here.w, rtol=1e-9, atol=1e-9)
        assert_close(there.p, here.p, rtol=1e-9, atol=1e-9)
        assert_close(state["w_bar"], kept["w_bar"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("error", [math.nan, 0.5])
def test_class_weights_stay_where_the_device_fails_until_the_host_mends_them(
    problem, stand_in, error
):
    case = problem(17, rows=97, memories=5)
    solver = FixedPoint(batch_size=17)
    stand_in["error"] = error
    batch = next(iter(case.dataset.batches(17)))
    stats = accumulate(case.params, batch, joint)
    params, state = solver.step(case.params, solver.start(case.params), stats, batch, 17 / 97)
    assert torch.equal(params.p, case.params.p)
    assert not torch.equal(params.w, case.params.w)
    assert (state["col_multipliers"] == 0).all()  # the next search starts anew
    assert (state["row_multipliers"] == 0).all()
    after, state = solver.end_pass(params, state, batch, 97)
    exact = maximize_bound(params, state["w_bar"], state["p_bar"])
    assert_close(after.p, exact.p, rtol=1e-10, atol=1e-14)
    assert_close(after.beta, exact.beta, rtol=1e-10, atol=0)
    assert_feasible(after)


def test_a_rough_solution_is_used_within_a_pass_and_mended_at_its_end(problem, stand_in):
    case = problem(17, rows=97, memories=5)
    solver = FixedPoint(batch_size=17)
    stand_in["error"] = 1e-3
    batch = next(iter(case.dataset.batches(17)))
    stats = accumulate(case.params, batch, joint)
    params, state = solver.step(case.params, solver.start(case.params), stats, batch, 17 / 97)
    assert_close(params.p, maximize_bound(params, state["w_bar"], state["p_bar"]).p)
    assert (state["row_multipliers"] > 0).any()
    _, mended = solver.end_pass(params, state, batch, 97)
    assert (mended["row_multipliers"] == 0).all()


def test_dead_memories_are_put_on_rows_at_the_end_of_a_pass(stand_in):
    params, rows = crowd()
    solver = FixedPoint(batch_size=20)
    state = solver.start(params)
    for first in (0, 20, 40):
        batch = rows.take(slice(first, first + 20))
        stats = accumulate(params, batch, joint)
        params, state = solver.step(params, state, stats, batch, 1 / 3)
    mass = state["p_bar"].sum(1)
    assert mass[1:].min() < 1e-3 * mass.sum() / 60  # dead, and left so on the device
    assert float((rows.x @ params.w[mass[1:].argmin()]).max()) < 1 - 1e-9
    dead = int(mass[1:].argmin())
    params, state = solver.end_pass(params, state, rows, 60)
    assert float((rows.x @ params.w[dead]).max()) > 1 - 1e-12
    assert_feasible(params)


def test_an_exact_solver_has_nothing_to_do_at_the_end_of_a_pass(problem, stand_in):
    case = problem(9)
    solver = FixedPoint(None)
    state = solver.start(case.params)
    assert solver.end_pass(case.params, state, case.batch, 23) == (case.params, state)
    assert stand_in["calls"] == 0


@pytest.mark.skipif(
    not maximize_gpu.usable(4), reason="needs a GPU and Triton: captured steps are not tested"
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_captured_fit_is_as_good_as_that_on_the_processor(problem, weighted):
    case = problem(
        18, rows=1009, memories=11, features=13, beta=9.0, varsigma=0.7, labels="full",
        clustered=True, contrast=1.0, weighted=weighted,
    )  # fmt: skip
    own = torch.arange(11) % 3
    index = own[(case.x @ case.params.w.T).argmax(1)]
    rows = Batch(case.x, soft_labels(index, 3, 0.1, dtype=torch.float64), case.sample_weight)
    start = from_memories(case.x[:11], rows.targets.mean(0), beta=9.0)
    accuracy = []
    for device in ("cpu", "cuda"):
        weight = None if rows.sample_weight is None else rows.sample_weight.to(device)
        data = ArrayDataset.of(rows.x.to(device), rows.targets.to(device), weight)
        result = fit(start.to(device=device), data, FixedPoint(101), max_iter=6)
        params = result.params.to(device="cpu")
        assert_feasible(params, tol=1e-6)
        found = log_joint(params, case.x)[:, :-1].argmax(1)
        accuracy.append(float((found == index).double().mean()))
    assert accuracy[0] > 0.8
    assert accuracy[1] == pytest.approx(accuracy[0], abs=0.02)


# Class weights once per pass


@pytest.mark.parametrize("weighted", [False, True])
def test_class_weights_wait_for_the_end_of_a_pass(problem, weighted):
    case = problem(41, rows=97, memories=5, varsigma=0.6, clustered=True, weighted=weighted)
    solver = FixedPoint(batch_size=17, once_per_pass=True)
    params, state = case.params, solver.start(case.params)
    means = {"w": torch.zeros_like(params.w), "p": torch.zeros_like(params.p)}
    done = 0.0
    for batch in case.dataset.batches(17, generator=torch.Generator().manual_seed(0)):
        stats, share = accumulate(params, batch, joint), batch.n_rows / 97
        params, state = solver.step(params, state, stats, batch, share)
        done += share
        assert torch.equal(params.p, case.params.p)
        # Class weights look back for half a pass, memories for a fifth.
        for name, sums, window in (("w", stats.w_bar, 0.2), ("p", stats.p_bar, 0.5)):
            rate = min(1.0, share / min(done, window))
            means[name] += rate * (sums / stats.count - means[name])
        assert_close(params.w, sphere.project(means["w"]), rtol=1e-10, atol=1e-12)
    assert_close(state["p_bar"], means["p"], rtol=1e-12, atol=1e-15)
    ended, _ = solver.end_pass(params, state, batch, 97)
    expected = maximize_bound(params, means["w"], means["p"])
    assert_close(ended.p, expected.p, rtol=1e-9, atol=1e-13)
    assert_close(ended.w, expected.w, rtol=1e-9, atol=1e-12)
    assert_close(ended.beta, expected.beta, rtol=1e-9, atol=0)
    assert_feasible(ended)


def test_a_dead_memory_is_found_at_the_end_of_a_pass(problem):
    case = problem(42, rows=97, memories=7, clustered=True)
    solver = FixedPoint(batch_size=17, once_per_pass=True)
    params, state = case.params, solver.start(case.params)
    for batch in case.dataset.batches(17):
        stats = accumulate(params, batch, joint)
        params, state = solver.step(params, state, stats, batch, batch.n_rows / 97)
    alive, _ = solver.end_pass(params, state, batch, 97)
    assert float((batch.x @ alive.w[-1]).max()) < 1 - 1e-6
    for name in ("w_bar", "p_bar"):
        state[name][-1] = 0.0
    ended, _ = solver.end_pass(params, state, batch, 97)
    worst = log_joint(params, batch.x).logsumexp(1).argmin()
    assert_close(ended.w[-1], batch.x[worst], rtol=1e-12, atol=1e-12)
    assert_close(ended.w[:-1], params.w[:-1], rtol=1e-12, atol=1e-12)
    assert_feasible(ended)


def test_exact_steps_learn_class_weights_at_once(problem):
    case = problem(43, rows=61, memories=5)
    found = [
        fit(case.params, case.dataset, FixedPoint(None, once_per_pass=once), max_iter=3).params
        for once in (False, True)
    ]
    assert torch.equal(found[0].p, found[1].p)


def test_one_wait_at_the_end_of_a_pass_on_a_device(problem, stand_in):
    """The kernel's path: once per pass, β exact, nothing within it."""
    case = problem(44, rows=97, memories=5, varsigma=0.6, clustered=True)
    there, state = three_passes(case, FixedPoint(batch_size=17, once_per_pass=True))
    assert stand_in["calls"] == 3
    expected = maximize_bound(there, state["w_bar"], state["p_bar"])
    assert_close(there.p, expected.p, rtol=1e-9, atol=1e-12)
    assert_close(there.beta, expected.beta, rtol=1e-9, atol=0)


def test_a_look_ahead_finds_multipliers(problem, stand_in):
    case = problem(45, rows=97, memories=5, clustered=True)
    solver = FixedPoint(batch_size=17, once_per_pass=True)
    state = {**solver.start(case.params), "p_bar": statistics(case, case.params).p_bar}
    solver.look_ahead(case.params, state)
    right = polytope.maximize(state["p_bar"], case.params.p_h, case.params.p_q)
    assert_close(state["col_multipliers"], right.col_multipliers)
    FixedPoint(batch_size=17).look_ahead(case.params, state)
    assert stand_in["calls"] == 1


@pytest.mark.skipif(not maximize_gpu.usable(4), reason="needs a GPU and Triton")
def test_a_graph_that_was_kept_gives_the_same_fit(problem):
    case = problem(46, rows=1009, memories=11, features=13, labels="full", clustered=True)
    to = {"dtype": torch.float32, "device": torch.device("cuda")}
    params, rows = case.params.to(**to), ArrayDataset(case.batch.to(dtype=torch.float32))
    rows = ArrayDataset(Batch(rows.rows.x.cuda(), rows.rows.targets.cuda()))
    solver = FixedPoint(101, once_per_pass=True)
    steps._kept.clear()
    found = [fit(params, rows, solver, max_iter=3) for _ in range(2)]
    assert len(steps._kept) == 1
    for name in ("w", "p", "beta"):
        assert torch.equal(getattr(found[0].params, name), getattr(found[1].params, name))
    assert found[0].history[-1].loss == found[1].history[-1].loss
    here = fit(case.params, case.dataset, solver, max_iter=3)
    assert found[1].history[-1].loss == pytest.approx(here.history[-1].loss, rel=2e-2)
    fit(params.replace(varsigma=0.5), rows, solver, max_iter=1)  # another graph
    assert len(steps._kept) == 2


@pytest.mark.skipif(not maximize_gpu.usable(4), reason="needs a GPU and Triton")
def test_class_weights_once_per_pass_resume_with_the_same_bits(problem, tmp_path):
    case = problem(47, rows=211, memories=7, labels="full", clustered=True)
    params = case.params.to(device="cuda")
    rows = ArrayDataset(Batch(case.x.cuda(), case.targets.cuda()))
    solver = FixedPoint(23, once_per_pass=True)
    whole = fit(params, rows, solver, max_iter=4)
    file = Checkpoint(tmp_path / "run.safetensors")
    fit(params, rows, solver, max_iter=2, callbacks=[file])
    resumed = fit(params, rows, solver, max_iter=4, callbacks=[file])
    assert torch.equal(resumed.params.w, whole.params.w)
    assert torch.equal(resumed.params.p, whole.params.p)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_bad_numbers_on_a_gpu_are_refused_all_the_same(problem):
    case = problem(48, rows=211, memories=7)
    params, solver = case.params.to(device="cuda"), FixedPoint(23)
    x, q = case.x.cuda(), case.targets.cuda()
    for rows, message in (
        (Batch(2 * x, q), "norm"),
        (Batch(x, -q), "label weights"),
        (Batch(x, q, torch.full_like(x[:, 0], -1.0)), "sample_weight"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(params, ArrayDataset(rows), solver, max_iter=1)
    with pytest.raises(ValueError, match="memories"):
        fit(params.replace(w=3 * params.w), ArrayDataset(Batch(x, q)), solver, max_iter=1)

"""Curvature along a split, against dense eigendecompositions of autograd's Hessian and Jacobian."""

import pytest
import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.curvature import Descent, Krylov, Nearest, split_temperature
from mnemosphere.model.duplicate import duplicate, split
from mnemosphere.model.kernel import accumulate, evaluate, log_joint_differentiable
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training.fixed_point import maximize_bound, residual

B, N, P, C = 41, 7, 3, 2
EVERY_ROW = Nearest(rows_per_memory=B, strongest=B, steps=N)
METHODS = [EVERY_ROW, Krylov(tol=1e-11)]
RULES = [objectives.joint, objectives.marginal, objectives.Blend(0.3), objectives.Unsupervised(0.2)]


def make_data(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(5, N, generator=generator, dtype=torch.float64)
    which = torch.randint(5, (B,), generator=generator)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    return sphere.project(centers[which] + 0.6 * noise), objectives.soft_labels(
        which % C, C, 0.1, dtype=torch.float64
    )


def make_params(seed: int, *, beta: float = 5.0, varsigma: float = 0.8) -> Parameters:
    generator = torch.Generator().manual_seed(100 + seed)
    p = torch.rand(P + 1, C + 1, generator=generator, dtype=torch.float64) + 0.1
    p = p / p.sum()
    w = sphere.project(torch.randn(P, N, generator=generator, dtype=torch.float64))
    return Parameters(
        w, p, torch.tensor(beta, dtype=torch.float64), varsigma, p.sum(1), p.sum(0)
    ).check()


def converge_memories(params: Parameters, x: Tensor, q: Tensor) -> Parameters:
    """A fixed point of w ← w_bar/‖w_bar‖ with class weights and β held."""
    for _ in range(20000):
        w = sphere.project(accumulate(params, x, q, objectives.joint).w_bar)
        moved = (w - params.w).abs().max()
        params = params.replace(w=w)
        if moved < 1e-15:
            break
    assert moved < 1e-13
    return params


def tangent_basis(w: Tensor) -> Tensor:
    """Orthonormal columns (N, N−1) orthogonal to w (N,)."""
    return torch.linalg.qr(torch.cat([w[:, None], torch.eye(N, dtype=w.dtype)], 1)).Q[:, 1:]


def dense_splitting_matrix(
    params: Parameters, memory: int, x: Tensor, q: Tensor, rule, sample_weight: Tensor | None = None
) -> Tensor:
    """Autograd Hessian of the loss of the split network in coordinates of the tangent space."""
    basis = tangent_basis(params.w[memory])
    grown = duplicate(params, torch.tensor([memory]))

    def loss(coordinates: Tensor) -> Tensor:
        u = basis @ coordinates
        first = params.w[memory] + u
        second = params.w[memory] - u
        rows = [*params.w.unbind()]
        rows[memory] = first / first.norm()
        w = torch.stack([*rows, second / second.norm()])
        losses, _ = rule(log_joint_differentiable(grown.replace(w=w), x), q)
        if sample_weight is None:
            return losses.mean()
        return (losses * sample_weight).sum() / sample_weight.sum()

    return torch.autograd.functional.hessian(loss, torch.zeros(N - 1, dtype=torch.float64))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("weighted", [False, True])
def test_lambda_min_and_direction_are_those_of_the_dense_hessian(method, rule, weighted):
    x, q = make_data(0)
    params = make_params(0)
    weight = None
    if weighted:
        weight = torch.rand(B, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = method(params, x, q, rule, sample_weight=weight)
    for memory in range(P):
        dense = dense_splitting_matrix(params, memory, x, q, rule, weight)
        values, vectors = torch.linalg.eigh(dense)
        u = tangent_basis(params.w[memory]) @ vectors[:, 0]
        torch.testing.assert_close(found.lambda_min[memory], values[0], rtol=1e-9, atol=1e-12)
        cosine = float(found.direction[memory] @ u)
        assert abs(cosine) == pytest.approx(1, abs=1e-9)


def test_directions_are_unit_and_tangent():
    x, q = make_data(1)
    params = make_params(1)
    for method in (*METHODS, Descent(batch_size=13)):
        found = method(params, x, q)
        torch.testing.assert_close(found.direction.norm(dim=1), torch.ones(P, dtype=torch.float64))
        assert (found.direction * params.w).sum(1).abs().max() < 1e-12


def test_value_belongs_to_the_direction_returned():
    """The quotient is exact even for a poor direction: one Krylov step, or a short descent."""
    x, q = make_data(2)
    params = make_params(2)
    for method in (Nearest(B, B, steps=1), Descent(batch_size=13)):
        found = method(params, x, q)
        for memory in range(P):
            dense = dense_splitting_matrix(params, memory, x, q, objectives.joint)
            u = tangent_basis(params.w[memory]).T @ found.direction[memory]
            torch.testing.assert_close(found.lambda_min[memory], u @ dense @ u)
            assert found.lambda_min[memory] >= torch.linalg.eigvalsh(dense)[0] - 1e-12


def test_descent_comes_close_to_the_dense_eigenvalue():
    x, q = make_data(3)
    params = make_params(3)
    found = Descent(epochs=30, batch_size=13, learning_rate=0.05)(params, x, q)
    for memory in range(P):
        values = torch.linalg.eigvalsh(
            dense_splitting_matrix(params, memory, x, q, objectives.joint)
        )
        assert float(found.lambda_min[memory] - values[0]) < 0.03 * float(values[-1] - values[0])


def test_a_sample_of_rows_is_the_problem_of_those_rows():
    """Rows that are not among the strongest do not enter, neither in T nor in the overlap."""
    x, q = make_data(4)
    params = make_params(4)
    found = Nearest(rows_per_memory=B, strongest=11, steps=N)(params, x, q)
    beta = params.beta_eff
    shares = torch.zeros(B, P, dtype=torch.float64)
    joint = log_joint_differentiable(params, x)
    for y in range(C + 1):
        h = params.w.new_zeros(B, P)
        for memory in range(P):
            alone = params.replace(p=torch.zeros_like(params.p))
            alone.p[memory + 1, y] = params.p[memory + 1, y]
            h[:, memory] = log_joint_differentiable(alone, x)[:, y]
        shares += q[:, y, None] * (h - joint[:, y, None]).exp()
    for memory in range(P):
        rows = shares[:, memory].argsort(descending=True)[:11]
        r, near, w = shares[rows, memory], x[rows], params.w[memory]
        basis = tangent_basis(w)
        spread = torch.linalg.eigvalsh(basis.T @ (near.T * r) @ near @ basis)[-1] / B
        expected = beta * (r * (near @ w)).sum() / B - beta**2 * spread
        torch.testing.assert_close(found.lambda_min[memory], expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("beta", [1.0, 2.5, 4.0, 8.0, 20.0])
def test_saddle_exactly_above_the_split_temperature(seed, beta):
    x, q = make_data(seed)
    params = converge_memories(make_params(seed, beta=beta), x, q)
    beta_split = split_temperature(params, x, q, method=Krylov(tol=1e-11))
    stats = accumulate(params, x, q, objectives.joint)
    for memory in range(P):
        dense = dense_splitting_matrix(params, memory, x, q, objectives.joint)
        assert (torch.linalg.eigvalsh(dense)[0] < 0) == (params.beta_eff > beta_split[memory])
        # DESIGN: ‖w_bar‖ / λ_max(Σ r x_⊥ x_⊥ᵀ), read off the dense matrix.
        top = (
            params.beta_eff * stats.w_bar[memory].norm() / B - torch.linalg.eigvalsh(dense)[0]
        ) / (params.beta_eff**2)
        torch.testing.assert_close(
            beta_split[memory], stats.w_bar[memory].norm() / B / top, rtol=1e-9, atol=0
        )


def test_cold_and_hot_networks_lie_on_either_side():
    """The scan above is worth something: it meets minima and saddles."""
    x, q = make_data(0)
    for beta, saddles in ((1.0, False), (20.0, True)):
        params = converge_memories(make_params(0, beta=beta), x, q)
        beta_split = split_temperature(params, x, q, method=Krylov(tol=1e-11))
        assert bool((params.beta_eff > beta_split).any()) == saddles


@pytest.mark.parametrize("seed", range(3))
def test_antisymmetric_eigenvalue_of_the_fixed_point_map(seed):
    """It equals β_eff/β_split(μ): the autograd Jacobian of the duplicated network's map."""
    x, q = make_data(seed)
    params = converge_memories(make_params(seed), x, q)
    beta_split = split_temperature(params, x, q, method=Krylov(tol=1e-12))
    for memory in range(P):
        grown = duplicate(params, torch.tensor([memory]))

        def step(w: Tensor, grown: Parameters = grown) -> Tensor:
            w = w.requires_grad_() if not w.requires_grad else w
            joint = log_joint_differentiable(grown.replace(w=w), x)
            total = (q * joint).sum()
            (gradient,) = torch.autograd.grad(total, w, create_graph=True)
            return gradient / gradient.norm(dim=1, keepdim=True)

        jacobian = torch.autograd.functional.jacobian(step, grown.w)  # (P+1, N, P+1, N)
        copy = P
        block = jacobian[memory, :, memory] - jacobian[memory, :, copy]
        basis = tangent_basis(params.w[memory])
        block = basis.T @ block @ basis
        assert (block - block.T).abs().max() < 1e-10  # the tangent block is symmetric
        top = torch.linalg.eigvalsh(block)[-1]
        torch.testing.assert_close(top, params.beta_eff / beta_split[memory], rtol=1e-10, atol=0)


def test_a_memory_without_rows_is_no_saddle():
    x, q = make_data(5)
    params = make_params(5, beta=300.0, varsigma=1.0)
    far = -sphere.project(x.sum(0, keepdim=True))
    x = sphere.project(x + 5 * x.mean(0))
    params = params.replace(w=torch.cat([far, x[:1], x[1:2]]))
    found = EVERY_ROW(params, x, q)
    assert bool(torch.isfinite(found.lambda_min).all())
    assert bool(torch.isfinite(found.direction).all())
    assert abs(float(found.lambda_min[0])) < 1e-12


def test_the_same_generator_gives_the_same_bits():
    x, q = make_data(6)
    params = make_params(6)
    runs = [
        Nearest(rows_per_memory=5, strongest=7, steps=3)(
            params, x, q, generator=torch.Generator().manual_seed(8)
        )
        for _ in range(2)
    ]
    assert torch.equal(runs[0].direction, runs[1].direction)
    assert torch.equal(runs[0].lambda_min, runs[1].lambda_min)


@pytest.mark.parametrize("n", [2, 3])
def test_small_dimensions(n):
    """The tangent space of a circle is a line: one direction, whatever the number of steps."""
    generator = torch.Generator().manual_seed(0)
    x = sphere.project(torch.randn(B, n, generator=generator, dtype=torch.float64))
    _, q = make_data(0)
    params = make_params(0)
    params = params.replace(w=sphere.project(params.w[:, :n]))
    found = Nearest(B, B, steps=8)(params, x, q)
    assert (found.direction * params.w).sum(1).abs().max() < 1e-12
    assert found.residual.max() < 1e-10


def test_bad_settings_are_refused():
    for make in (
        lambda: Nearest(steps=0),
        lambda: Krylov(tol=0.0),
        lambda: Krylov(steps=1),
        lambda: Descent(learning_rate=0.0),
        lambda: Descent(decay=1.0),
    ):
        with pytest.raises(ValueError, match="got"):
            make()


# Duplication


@pytest.mark.parametrize("which", [[], [0], [2, 0], [1, 2, 0]])
def test_duplication_changes_neither_density_nor_loss(which):
    x, q = make_data(7)
    params = make_params(7)
    grown = duplicate(params, torch.tensor(which, dtype=torch.long)).check()
    assert grown.n_memories == P + len(which)
    before, after = (log_joint_differentiable(m, x) for m in (params, grown))
    assert (before - after).abs().max() < 1e-12
    for rule in RULES:
        assert evaluate(params, x, q, rule) == pytest.approx(evaluate(grown, x, q, rule), abs=1e-12)
    assert grown.p_h[0] == params.p_h[0]
    assert torch.equal(grown.p[0], params.p[0])


def test_a_fixed_point_stays_a_fixed_point():
    x, q = make_data(8)
    params = make_params(8, beta=20.0)
    for _ in range(300):
        stats = accumulate(params, x, q, objectives.joint)
        old, params = params, maximize_bound(params, stats.w_bar, stats.p_bar)
        if residual(old, params) < 1e-11:
            break
    for which in ([1], [0, 2], [0, 1, 2]):
        grown = duplicate(params, torch.tensor(which))
        stats = accumulate(grown, x, q, objectives.joint)
        assert residual(grown, maximize_bound(grown, stats.w_bar, stats.p_bar)) < 2e-11


@pytest.mark.parametrize("seed", range(3))
def test_loss_falls_after_a_small_split_of_a_saddle(seed):
    """By ½δ²λ_min to leading order, for each memory alone."""
    x, q = make_data(seed)
    params = converge_memories(make_params(seed, beta=25.0), x, q)
    found = Krylov(tol=1e-11)(params, x, q)
    loss = evaluate(params, x, q, objectives.joint)
    saddles = (found.lambda_min < 0).nonzero()[:, 0]
    assert saddles.shape[0] > 0
    delta = 1e-3
    for memory in saddles:
        grown = split(params, memory[None], found.direction, delta).check()
        change = evaluate(grown, x, q, objectives.joint) - loss
        assert change < 0
        expected = 0.5 * delta**2 * float(found.lambda_min[memory])
        assert change == pytest.approx(expected, rel=1e-2)


def test_split_moves_only_the_pair():
    params = make_params(9)
    u = EVERY_ROW(params, *make_data(9)).direction
    grown = split(params, torch.tensor([2]), u, 0.3)
    torch.testing.assert_close(grown.w[:2], params.w[:2], rtol=1e-14, atol=0.0)
    torch.testing.assert_close(
        sphere.project(grown.w[2] + grown.w[3]), params.w[2], rtol=1e-12, atol=1e-12
    )
    # tan of the angle between a copy and the old place is δ.
    cosine = grown.w[2:] @ params.w[2]
    torch.testing.assert_close(cosine, torch.full_like(cosine, (1 + 0.09) ** -0.5))


def test_bad_choices_of_memories_are_refused():
    params = make_params(0)
    for which in ([3], [-1], [1, 1]):
        with pytest.raises(ValueError, match="distinct indices"):
            duplicate(params, torch.tensor(which))
    with pytest.raises(ValueError, match="vector of memory indices"):
        duplicate(params, torch.tensor([0.5]))


def test_duplicated_weights_stay_in_the_polytope():
    params = make_params(4)
    grown = duplicate(params, torch.tensor([0, 1]))
    assert polytope.check(grown.p, grown.p_h, grown.p_q, tol=1e-12) is grown.p

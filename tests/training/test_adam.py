from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere.data import ArrayDataset
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.m_step import share_out
from mnemosphere.model.metric import relevances
from mnemosphere.model.objectives import JointConditional, conditional, soft_labels
from mnemosphere.model.parameters import from_memories
from mnemosphere.numerics import sphere
from mnemosphere.training.adam import Adam
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.fit import fit
from mnemosphere.training.noise import SphereNoise
from runs import seeded

RULES = {"conditional": conditional, "blend 0.3": JointConditional(0.3)}


def take(solver, params, state, case, rule=conditional):
    return solver.step(params, state, accumulate(params, case.batch, rule), case.batch, 1.0)


def run(solver, case, steps, rule=conditional):
    params, state = case.params, solver.start(case.params)
    for _ in range(steps):
        params, state = take(solver, params, state, case, rule)
    return params


def sums_removed(p, g):
    """Solve for (α, β) by least squares: p·(g − α_γ − β_y) has no row and no column sum."""
    rows, cols = p.shape
    design = np.zeros((rows * cols, rows + cols))
    for i in range(rows):
        for j in range(cols):
            design[i * cols + j, [i, rows + j]] = 1
    weighted = design * p.reshape(-1, 1)
    multipliers = np.linalg.lstsq(design.T @ weighted, weighted.T @ g.reshape(-1), rcond=None)[0]
    return p * (g - (design @ multipliers).reshape(rows, cols))


@pytest.mark.parametrize("rule", RULES)
def test_the_first_step_goes_down_the_gradient_by_the_rate(problem, oracle, rule):
    """Against autograd: each memory by one angle, each row of log p by one length."""
    case = problem(31, rows=29, weighted=True, clustered=True, varsigma=0.5)
    turn, rate = 0.07, 0.03
    solver = Adam(steps=100, angle=turn, learning_rate=rate, tolerance=1e-13, floor=0.0)
    new = run(solver, case, 1, RULES[rule])
    old = case.params
    gw, gp, gb = (
        g.numpy() for g in oracle.gradient(rule, old, case.x, case.targets, case.sample_weight)
    )
    for before, after, g in zip(old.w.numpy(), new.w.numpy(), gw, strict=True):
        down = -(g - (g @ before) * before)
        down /= np.linalg.norm(down)
        expected = (before + turn * down) / math.hypot(1, turn)
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12)
    p = old.p.numpy()
    xi = sums_removed(p, gp)
    moved = np.log(new.p.numpy() / p) + rate * xi / np.linalg.norm(xi, axis=1, keepdims=True)
    # What is left is the scaling back to the marginals, one number per row plus one per column.
    left = moved - moved[:1] - moved[:, :1] + moved[0, 0]
    np.testing.assert_allclose(left, 0, rtol=0, atol=1e-10)
    expected = float(old.beta) * math.exp(-0.1 * rate * np.sign(gb))
    assert float(new.beta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_constraints_hold_however_large_the_steps(problem, rule):
    case = problem(32, rows=31, weighted=True, beta=20.0)
    new = run(Adam(steps=40, angle=1.0, learning_rate=0.5, tolerance=1e-13), case, 11, RULES[rule])
    one = torch.ones(len(new.w), dtype=new.w.dtype)
    assert_close(new.w.norm(dim=1), one, rtol=0, atol=1e-12)
    assert_close(new.p.sum(1), new.p_h, rtol=1e-12, atol=0)
    assert_close(new.p.sum(0), new.p_q, rtol=1e-12, atol=0)
    assert new.p.min() >= 0
    assert new.beta > 0


def test_plain_sweeps_keep_the_columns_and_nearly_the_rows(problem, oracle):
    case = problem(41, rows=31, labels="full", clustered=True)
    solver = Adam(steps=40, angle=0.3, learning_rate=0.3, tolerance=None)
    swept = run(solver, case, 40)
    assert_close(swept.p.sum(0), swept.p_q, rtol=1e-12, atol=0)
    assert_close(swept.p.sum(1), swept.p_h, rtol=1e-3, atol=0)
    exact = run(Adam(steps=40, angle=0.3, learning_rate=0.3, tolerance=1e-13), case, 40)
    losses = [
        float(oracle.mean_loss("conditional", params, case.x, case.targets))
        for params in (case.params, swept, exact)
    ]
    assert losses[0] - losses[1] > 0.8 * (losses[0] - losses[2]) > 0


def test_small_steps_descend_the_conditional_loss(problem, oracle):
    case = problem(33, rows=37, labels="full", clustered=True)
    params, state = case.params, None
    solver = Adam(
        steps=1000, angle=1e-3, learning_rate=1e-3, decay=(0.0, 0.0), floor=0.0, tolerance=1e-13
    )
    state = solver.start(params)
    losses = []
    for _ in range(20):
        losses.append(float(oracle.mean_loss("conditional", params, case.x, case.targets)))
        params, state = take(solver, params, state, case)
    assert (np.diff(losses) < 0).all()


def test_it_finds_a_far_lower_conditional_loss(problem, oracle):
    case = problem(34, rows=41, labels="full", clustered=True)
    best = run(Adam(steps=60, angle=0.2, learning_rate=0.2), case, 60)
    before, after = (
        float(oracle.mean_loss("conditional", params, case.x, case.targets))
        for params in (case.params, best)
    )
    floor = float(torch.special.entr(case.targets).sum(1).mean())  # the labels' own entropy
    assert after - floor < 0.5 * (before - floor)


def test_single_precision_stays_so(problem):
    case = problem(43, rows=29, dtype=torch.float32)
    params = run(Adam(steps=9), case, 5)
    assert params.check().beta.dtype == torch.float32


def test_held_beta_stays(problem):
    case = problem(35)
    assert run(Adam(steps=9, learn_beta=False), case, 5).beta == case.params.beta


def test_the_rate_fades_along_half_a_cosine(problem):
    """With no memory of earlier gradients every step of a memory turns it by atan(rate)."""
    case = problem(36, rows=17, clustered=True)
    solver = Adam(steps=10, angle=0.2, decay=(0.0, 0.0), floor=0.0)
    params, state = case.params, solver.start(case.params)
    for t in range(12):
        new, state = take(solver, params, state, case)
        chord = (new.w - params.w).norm(dim=1)
        angle = 2 * torch.asin(chord / 2)
        rate = 0.1 * (1 + math.cos(math.pi * min(t / 10, 1)))
        assert_close(angle, torch.full_like(angle, math.atan(rate)), rtol=1e-8, atol=1e-12)
        params = new


def test_a_memory_that_no_row_answers_to_stays(problem):
    case = problem(37, rows=19, beta=60.0)
    w = case.params.w.clone()
    w[2] = -w[0]
    x = w[0] + 0.3 * case.x
    case = case._replace(x=x / x.norm(dim=1, keepdim=True))
    case = case._replace(params=case.params.replace(w=w))
    new = run(Adam(steps=50), case, 3)
    turned = (new.w - w).norm(dim=1)
    assert turned[0] > 0.1
    assert turned[1:].max() < 1e-6


def test_a_small_gradient_makes_a_small_step(problem, oracle):
    """Below the floor the step is as much smaller as the gradient is."""
    case = problem(42, rows=29, labels="full", clustered=True)
    turn, floor = 0.05, 0.8
    new = run(Adam(steps=100, angle=turn, floor=floor), case, 1)
    old = case.params.w
    g = oracle.gradient("conditional", case.params, case.x, case.targets)[0]
    g = (g - (g * old).sum(1, keepdim=True) * old).norm(dim=1)
    prior = case.params.p_h[1:]
    per_mass = ((prior * (g / prior) ** 2).sum() / prior.sum()).sqrt()
    least = floor * prior * per_mass
    assert (g < least).any()
    assert (g > least).any()
    tangent = ((new.w - old).norm(dim=1) / 2).asin().mul(2).tan()
    assert_close(tangent, turn * g / torch.maximum(g, least), rtol=1e-8, atol=0)


def test_classes_may_be_renamed(problem):
    case = problem(38, rows=23, labels="full", clustered=True)
    order = torch.tensor([2, 0, 3, 1])
    renamed = case._replace(
        params=case.params.replace(p=case.params.p[:, order], p_q=case.params.p_q[order]),
        targets=case.targets[:, order],
    )
    solver = Adam(steps=30, tolerance=1e-13)
    one, other = run(solver, case, 12), run(solver, renamed, 12)
    assert_close(other.w, one.w, rtol=0, atol=1e-9)
    assert_close(other.p, one.p[:, order], rtol=1e-8, atol=1e-12)
    assert_close(other.beta, one.beta, rtol=1e-10, atol=0)


def test_copies_go_on_as_their_parent(problem):
    """A memory and its copy with half its class weights each move as the memory would have."""
    case = problem(39, rows=27, clustered=True)
    solver = Adam(steps=30, tolerance=1e-13)
    params, state = case.params, solver.start(case.params)
    for _ in range(3):
        params, state = take(solver, params, state, case)
    source = torch.tensor([0, 1, 2, 3, 4, 1, 3])
    share = torch.tensor([1, 0.5, 1, 0.5, 1, 0.5, 0.5], dtype=torch.float64)
    grown = params.replace(
        w=params.w[source],
        p=torch.cat([params.p[:1], share[:, None] * params.p[1:][source]]),
        p_h=torch.cat([params.p_h[:1], share * params.p_h[1:][source]]),
    )
    expanded = solver.expand_state(state, grown, source)
    for _ in range(4):
        params, state = take(solver, params, state, case)
        grown, expanded = take(solver, grown, expanded, case)
    assert_close(grown.w, params.w[source], rtol=0, atol=1e-10)
    assert_close(grown.p[1:], share[:, None] * params.p[1:][source], rtol=1e-8, atol=1e-12)
    assert_close(grown.beta, params.beta, rtol=1e-10, atol=0)


def test_a_checkpoint_with_other_noise_is_refused(problem, tmp_path):
    case = problem(41, rows=19)
    path = tmp_path / "run.safetensors"

    def go(noise):
        fit(
            case.params, case.dataset, Adam(steps=9), rule=conditional, max_iter=1, noise=noise,
            callbacks=[Checkpoint(path)],
        )  # fmt: skip

    go(SphereNoise(0.4))
    for noise in (SphereNoise(0.5), None):
        with pytest.raises(ValueError, match="of another run"):
            go(noise)


def test_resolved_for_few_rows_and_for_a_gpu():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    solver = Adam(90, batch_size=100)
    here = solver.resolve(53, learn_beta=False, device=cpu)
    assert (here.rows_per_step, here.learn_beta, here.tolerance) == (53, False, 1e-7)
    there = solver.resolve(5000, learn_beta=True, device=gpu)
    assert (there.rows_per_step, there.learn_beta, there.tolerance) == (100, True, None)
    assert here.steps == there.steps == 90
    assert not solver.exact


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be >= 1, got 0"),
        ({"steps": 1, "batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"steps": 1, "sweeps": 0}, "sweeps must be >= 1, got 0"),
        ({"steps": 1, "learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        ({"steps": 1, "angle": -1.0}, "angle must be > 0, got -1.0"),
        ({"steps": 1, "floor": -1.0}, "floor must be finite and >= 0"),
        ({"steps": 1, "decay": (0.9, 1.0)}, "both decays must lie in"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Adam(**settings)


def test_a_feature_of_pure_noise_comes_to_count_for_nothing():
    """Of three features two tell the classes apart: the third ends with hardly any relevance."""
    z = torch.randn(211, 3, generator=seeded(3), dtype=torch.float64)
    targets = soft_labels((z[:, 0] + z[:, 1] > 0).long(), 2, 0.1, dtype=torch.float64)
    x = sphere.project(torch.cat([z, torch.full_like(z[:, :1], 3**0.5)], 1))
    params = from_memories(x[:9], targets.mean(0), beta=8.0, varsigma=0.9)
    own = params.p_h[:, None] * torch.cat([params.p_q[None], targets[:9]])
    params = share_out(params, own, hold_classes=True)
    params = params.replace(metric=torch.eye(4, dtype=torch.float64))
    solver = Adam(60, batch_size=211, learn_weights=True, metric_angle=0.1, metric_decay=1 / 211)
    found = fit(params, ArrayDataset.of(x, targets), solver, rule=conditional, max_iter=60).params
    relevance = relevances(found.metric[:, :3])
    assert relevance[2] < 0.01
    assert (relevance[:2] > 1.3).all()

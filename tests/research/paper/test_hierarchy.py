"""Narrow minima are saddles of wider networks: what the quick run measured, and its tools."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from mnemosphere.model import Batch, Parameters, from_memories, objectives
from mnemosphere.model.kernel import log_joint_differentiable
from mnemosphere.numerics import sphere
from research.paper.fixed_points import (
    descend,
    finite_differences,
    splitting_spectra,
)

B, N, P, C = 23, 7, 3, 2


@pytest.fixture(scope="module")
def small():
    """A few rows and memories that are at no special place."""
    generator = torch.Generator().manual_seed(5)
    x = sphere.sample_uniform(B, N, generator=generator, dtype=torch.float64)
    classes = torch.randint(C, (B,), generator=generator)
    data = Batch(x, objectives.soft_labels(classes, C, 0.1, dtype=torch.float64))
    w = sphere.sample_uniform(P, N, generator=generator, dtype=torch.float64)
    return from_memories(w, data.targets.mean(0), beta=11.0, varsigma=0.6), data


@pytest.fixture(scope="module")
def levels(quick_runs):
    return quick_runs.result("hierarchy")["measured"]["levels"]


def autograd_spectrum(params: Parameters, data: Batch, mu: int) -> torch.Tensor:
    """Eigenvalues of the Hessian of the loss in the move that parts two copies of memory μ."""
    w = params.w[mu]
    basis = torch.linalg.svd(w[None], full_matrices=True).Vh[1:]  # (N−1, N) tangent at w

    def loss(z: torch.Tensor) -> torch.Tensor:
        pair = [(w + s * (z @ basis)) / (w + s * (z @ basis)).norm() for s in (1.0, -1.0)]
        memories = torch.cat([params.w[:mu], pair[0][None], params.w[mu + 1 :], pair[1][None]])
        half = params.p[mu + 1] / 2
        p = torch.cat([params.p[: mu + 1], half[None], params.p[mu + 2 :], half[None]])
        p_h = p.sum(1)
        grown = Parameters(memories, p, params.beta, params.varsigma, p_h, params.p_q)
        return -(data.targets * log_joint_differentiable(grown, data.x)).sum(1).mean()

    hessian = torch.autograd.functional.hessian(loss, torch.zeros(N - 1, dtype=torch.float64))
    return torch.linalg.eigvalsh(hessian)


def test_spectra_are_those_of_the_hessian(small):
    params, data = small
    for mu, values in enumerate(splitting_spectra(params, data)):
        assert values.shape == (N - 1,)
        torch.testing.assert_close(
            values, autograd_spectrum(params, data, mu), rtol=1e-9, atol=1e-11
        )


def test_finite_differences_are_the_curvature_of_a_direction(small):
    params, data = small
    generator = torch.Generator().manual_seed(1)
    u = sphere.sample_uniform(P, N, generator=generator, dtype=torch.float64)
    u = sphere.project(sphere.to_tangent(params.w, u))
    found = finite_differences(params, data, u)
    for mu in range(P):
        # The extreme eigenvalues bound every direction's curvature.
        spectrum = autograd_spectrum(params, data, mu)
        assert spectrum[0] - 1e-3 < found[mu] < spectrum[-1] + 1e-3


def test_descent_never_rises_and_holds_what_it_is_told_to(small):
    params, data = small
    free = descend(params, data, tol=1e-3, max_steps=400)
    assert free.residual < 1e-3
    assert all(b <= a + 1e-12 for a, b in pairwise(free.losses))
    held = descend(params, data, tol=1e-3, max_steps=400, only_memories=True)
    assert held.params.p is params.p
    assert held.params.beta is params.beta
    assert all(b <= a + 1e-12 for a, b in pairwise(held.losses))
    assert free.losses[-1] < held.losses[-1] < held.losses[0]
    assert descend(params, data, tol=1e-10, max_steps=7).losses == free.losses[:8]


def test_moving_a_class_between_copies_leaves_the_loss(small):
    """The flat directions that make a labeled memory a saddle at any β."""
    params, data = small
    half = params.p[1] / 2
    shift = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64) * 0.3 * half.min()
    p = torch.cat([params.p[:1], (half + shift)[None], params.p[2:], (half - shift)[None]])
    twins = Parameters(
        torch.cat([params.w, params.w[:1]]), p, params.beta, params.varsigma, p.sum(1), params.p_q
    )
    torch.testing.assert_close(
        log_joint_differentiable(twins, data.x),
        log_joint_differentiable(params, data.x),
        rtol=1e-13,
        atol=1e-13,
    )


def test_every_level_is_a_fixed_point_with_a_lower_loss(levels):
    assert [level["memories"] for level in levels] == [1, 2, 4]
    assert all(level["residual"] < 1e-8 for level in levels)
    for above, below in pairwise(levels):
        assert below["loss"] < above["loss"] - 0.1
        # The way down starts at the saddle: at the loss of the level above, moved a little.
        losses = below["descent"]["loss"]
        assert above["loss"] - 0.2 < losses[0] < above["loss"]
        assert all(b <= a + 1e-12 for a, b in pairwise(losses))
        assert losses[-1] == pytest.approx(below["loss"], abs=1e-10)


def test_duplication_keeps_the_loss_and_the_fixed_point(levels):
    for level in levels:
        found = level["duplicated"]
        assert abs(found["loss_change"]) < 1e-12
        assert abs(found["merged_back_loss_change"]) < 1e-12
        assert found["residual"] < 2e-8


def test_a_memory_is_a_saddle_where_beta_eff_exceeds_beta_split(levels):
    for level in levels:
        for mu in range(level["memories"]):
            above = level["beta_eff"] > level["beta_split"][mu]
            curvature = level["lambda_min"][mu]
            assert (curvature < 0) == above
            assert (level["kinds"][mu] == "saddle") == above
            assert (level["unstable_directions"][mu] > 0) == above
            assert level["finite_difference"][mu] == pytest.approx(curvature, rel=1e-3)
            assert level["dense_lambda_min"][mu] == pytest.approx(curvature, rel=1e-6)


def test_copies_part_above_beta_split_only_unless_class_weights_are_free(quick_runs):
    scan = quick_runs.result("hierarchy")["measured"]["scan"]
    sides = set()
    for point in scan["points"]:
        unstable = point["beta_eff"] > point["beta_split"]
        sides.add(unstable)
        assert (point["lambda_min"] < 0) == unstable
        held, free = point["labels_held"], point["labels_free"]
        assert (held["distance"] > 0.05) == unstable
        assert (held["gain"] > 1e-4) == unstable
        assert free["distance"] > 0.05
        assert free["gain"] > max(held["gain"], 1e-4)
    assert sides == {True, False}

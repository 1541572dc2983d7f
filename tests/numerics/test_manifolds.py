"""One set of laws for both constraint sets: the verbs mean the same on each."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from mnemosphere.numerics import polytope, sphere
from polytopes import C, R, marginals, matrix, rng

B, N = 3, 11
ROWS, COLS = marginals(31)
BATCHED = torch.stack([marginals(seed)[0] for seed in (32, 33, 34)])


@dataclass(frozen=True)
class Space:
    """A constraint set: its verbs with everything but the points filled in."""

    project: Callable[[Tensor], Tensor]
    to_tangent: Callable[[Tensor, Tensor], Tensor]
    retract: Callable[[Tensor, Tensor], Tensor]
    check: Callable[[Tensor], Tensor]
    inner: Callable[[Tensor, Tensor, Tensor], Tensor]  # (x, a, b): the metric at x
    ambient: Callable[[int], Tensor]  # seed: points to project
    vectors: Callable[[Tensor, int], Tensor]  # (x, seed): vectors at x that are not tangent
    dimension: int  # of the tangent space at each of the B points


def normal(seed: int, *shape: int) -> Tensor:
    return torch.tensor(rng(seed).normal(size=shape))


SPHERE = Space(
    project=sphere.project,
    to_tangent=sphere.to_tangent,
    retract=sphere.retract,
    check=sphere.check,
    inner=lambda x, a, b: (a * b).sum(-1),
    ambient=lambda seed: 7.0 * normal(seed, B, N),
    vectors=lambda x, seed: normal(seed, *x.shape),
    dimension=N - 1,
)


def in_polytope(rows: Tensor) -> Space:
    return Space(
        project=lambda k: polytope.project(k, rows, COLS, tol=1e-13),
        to_tangent=lambda p, g: polytope.to_tangent(p, g, rows, COLS),
        retract=lambda p, v: polytope.retract(p, v, rows, COLS, tol=1e-13),
        check=lambda p: polytope.check(p, rows, COLS, tol=1e-12),
        inner=lambda p, a, b: (a * b / p).sum((-2, -1)),  # Fisher's
        ambient=lambda seed: matrix(seed, B, R, C, decades=2.0),
        vectors=lambda p, seed: p * normal(seed, *p.shape),
        dimension=(R - 1) * (C - 1),
    )


POLYTOPE = in_polytope(ROWS)
SPACES = [
    pytest.param(SPHERE, id="sphere"),
    pytest.param(POLYTOPE, id="polytope"),
    pytest.param(in_polytope(BATCHED), id="polytopes"),
]
laws = pytest.mark.parametrize("space", SPACES)


@laws
def test_project_lands_in_the_set_and_leaves_its_points(space):
    x = space.project(space.ambient(1))
    assert space.check(x) is x
    torch.testing.assert_close(space.project(x), x, rtol=1e-11, atol=0)


@laws
def test_to_tangent_is_orthogonal_in_the_metric(space):
    """What it takes away meets no tangent vector; and the tangent vectors fill their space."""
    x = space.project(space.ambient(6))
    g = space.vectors(x, 7)
    removed = g - space.to_tangent(x, g)
    others = [space.to_tangent(x, space.vectors(x, 100 + k)) for k in range(space.dimension + 5)]
    for v in others:
        size = (space.inner(x, removed, removed) * space.inner(x, v, v)).sqrt()
        assert bool((space.inner(x, removed, v).abs() <= 1e-11 * size).all())
    span = torch.stack(others, 1).flatten(2)  # (B, vectors, coordinates)
    ranks = torch.linalg.matrix_rank(span, rtol=1e-10)
    assert ranks.tolist() == [space.dimension] * B


@laws
def test_a_retraction_sets_out_along_its_vector(space):
    """d/dt retract(x, t·v) = v at 0: central differences, whose error falls as h²."""
    x = space.project(space.ambient(9))
    v = space.to_tangent(x, space.vectors(x, 10))
    errors = []
    for h in (1e-3, 5e-4):
        slope = (space.retract(x, h * v) - space.retract(x, -h * v)) / (2 * h)
        errors.append(float((slope - v).abs().max() / v.abs().max()))
    assert errors[0] < 1e-4
    assert errors[1] < 0.3 * errors[0] + 1e-9


@laws
@pytest.mark.parametrize("length", [1e-3, 1.0, 30.0])
def test_a_retraction_stays_in_the_set(space, length):
    x = space.project(space.ambient(11))
    v = space.to_tangent(x, space.vectors(x, 12))
    moved = space.retract(x, length * v)
    assert space.check(moved) is moved
    assert float((moved - x).abs().max()) > 1e-5


@laws
def test_points_off_the_set_are_refused(space):
    x = space.project(space.ambient(13))
    with pytest.raises(ValueError, match=r"norm 1\.01, not 1|misses its marginal"):
        space.check(1.01 * x)


# What only the polytope has


def test_project_is_the_nearest_point_in_relative_entropy():
    """No step along the tangent space lowers Σ p log(p/k): log(p/k) is a row and a column part."""
    k = matrix(14)
    p = polytope.project(k, ROWS, COLS)
    ratio = (p / k).log()
    left = ratio - ratio[:1] - ratio[:, :1] + ratio[0, 0]
    torch.testing.assert_close(left, torch.zeros_like(left), rtol=0, atol=1e-9)


def test_a_set_number_of_sweeps_comes_near_and_keeps_the_columns():
    p = POLYTOPE.project(matrix(15))
    v = 0.3 * POLYTOPE.to_tangent(p, p * normal(16, R, C))
    exact = polytope.retract(p, v, ROWS, COLS, tol=1e-13)
    errors = []
    for sweeps in (1, 5, 40):
        near = polytope.retract(p, v, ROWS, COLS, tol=None, sweeps=sweeps)
        torch.testing.assert_close(near.sum(0), COLS, rtol=1e-13, atol=0)
        errors.append(float((near - exact).abs().max()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-10

"""A Newton step on the free entropy that climbs where Newton's would fall back to a saddle.

Near a solution the map z → T(z) of the saddle-point equations moves as slowly as the eigenvalues
λ of its Jacobian are near 1: along valleys in which labels are shared out between memories that
nearly coincide, and off saddles that are all but flat. With J = K L Lᵀ in the factors of
`stability.linearize` and M = Lᵀ K L Newton's step solves (1 − M) y = Lᵀ (T(z) − z), and ends in
z + dz = T(z) + K L y. Here y is what raises the quadratic model most among all |y| ≤ radius:
(1 − λ + σ) y = Lᵀ (T(z) − z) with σ so large that no mode is left with a negative factor. Where a
λ is above 1 that goes the whole radius, most of it along what is unstable, however slow it is.

Valleys bend. A step along the flat directions therefore ends beside the valley floor, and a second
step in the steep directions alone, with the same factors, leads back to it, or else a plain one.
Where the free entropy falls, a plain step is taken, and the next one is shorter.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory import stability
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import Point, conjugate, free_entropy_at, respond

# Largest number of unknowns for which a dense eigendecomposition is cheaper than waiting.
MAX_UNKNOWNS = 300

# Elements of one batch of matrices.
_BATCH_ELEMENTS = 1 << 23

# Directions with |1 − λ| above this are steep.
_STEEP = 1e-3

# Share of a class weight that a step leaves at least, and the weight below which it takes nothing:
# those that vanish do so by factors.
_KEPT, _LEAST = 1e-3, 1e-13

# The radius after a step that succeeds, within limits, and after one that fails, by its length.
_LONGER, _RADII, _SHORTER = 3.0, (0.05, 10.0), 0.2

# A slope below this is rounding: a saddle met by symmetry is not left.
_ROUNDING = 1e-11


def unknowns(problem: SaddlePointProblem) -> int:
    """Size Z of the matrices of one step."""
    labels = problem.n_columns if problem.n_columns > 1 else 0
    return problem.n_student * problem.patterns.shape[1] + (problem.n_student + 1) * labels


def saddle_free_step(
    problem: SaddlePointProblem, point: Point, image: Point, objective: Tensor, radius: Tensor
) -> tuple[Point, Tensor]:
    """Next points from S points, given their images under the map, and the next radius (S,).

    objective (S,): the free entropy there; radius (S,): the largest |y|, in which class weights
    count by the square root of p_bar. Where a step does not raise the free entropy, the next point is
    the image.
    """
    rows = max(1, _BATCH_ELEMENTS // unknowns(problem) ** 2)
    columns = (*point, *image, objective, radius)
    batches = zip(*(torch.split(t, rows) for t in columns), strict=True)
    parts = [_step(problem, batch[:2], batch[2:4], *batch[4:]) for batch in batches]
    x, p, size = (torch.cat(part) for part in zip(*parts, strict=True))
    return (x, p), size


def _step(
    problem: SaddlePointProblem, point: Point, image: Point, objective: Tensor, radius: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    modes = modes_at(problem, point)
    y = _within(modes.slope(point, image), modes.stiffness, radius)
    there = modes.land(image, y)
    c = conjugate(problem, respond(problem, *there))
    level, floor = free_entropy_at(problem, c, there[0]), (c.x_bar, c.p_bar)
    steep = torch.where(modes.stiffness > _STEEP, modes.stiffness, torch.inf)
    bent = modes.land(floor, modes.slope(there, floor) / steep)
    c = conjugate(problem, respond(problem, *bent))
    higher = free_entropy_at(problem, c, bent[0])
    # Up to rounding: next to a solution the residual decides, not here.
    rises = torch.maximum(level, higher) >= objective - 1e-13 * (1.0 + objective.abs())
    best, kept = (higher > level)[:, None, None], rises[:, None, None]
    x, p = (
        torch.where(kept, torch.where(best, a, b), plain)
        for a, b, plain in zip(bent, floor, image, strict=True)
    )
    length = y.norm(dim=1)
    return x, p, torch.where(rises, (_LONGER * length).clamp(*_RADII), _SHORTER * length)


@dataclass(frozen=True)
class Modes:
    """Eigenvectors of M: stiffness 1 − λ (S, R), directions L v (S, Z, R), K and the scale of z."""

    problem: SaddlePointProblem
    stiffness: Tensor
    directions: Tensor
    k: Tensor
    scale: Tensor

    def slope(self, before: Point, after: Point) -> Tensor:
        """Lᵀ (T(z) − z) in the eigenvectors (S, R)."""
        change = [(b - a).flatten(1) for a, b in zip(before, after, strict=True)]
        flat = torch.cat(change, 1) if self.problem.n_columns > 1 else change[0]
        return _product(self.directions.mT, flat / self.scale)

    def land(self, after: Point, y: Tensor) -> Point:
        """T(z) + K L y, with class weights that keep a thousandth at least."""
        gained = self.scale * _product(self.k, _product(self.directions, y))
        x, p = after
        size = x[0].numel()
        x_new = x + gained[:, :size].reshape(x.shape)
        if self.problem.n_columns == 1:
            return x_new, p
        least = torch.minimum(p, (_KEPT * p).clamp_min(_LEAST))
        return x_new, torch.maximum(p + gained[:, size:].reshape(p.shape), least)


def modes_at(problem: SaddlePointProblem, point: Point) -> Modes:
    """The modes at S points."""
    k, factor, scale = stability.linearize(problem, *point)
    middle = factor.mT @ k @ factor
    values, vectors = torch.linalg.eigh((middle + middle.mT) / 2)
    return Modes(problem, 1.0 - values, factor @ vectors, k, scale)


def _within(slope: Tensor, stiffness: Tensor, radius: Tensor) -> Tensor:
    """The y (S, R) of |y| ≤ radius that maximizes slope·y − ½ Σ stiffness y²."""
    slope = torch.where(slope.abs() > _ROUNDING, slope, 0.0)
    stiffness = stiffness - stiffness.amin(1, keepdim=True).clamp_max(0.0)
    # y = slope/(stiffness + μ) shortens with μ: bisect its logarithm.
    high = (slope.norm(dim=1) / radius).clamp_min(1e-300).log()
    low = high.clamp_max(-40.0)
    for _ in range(40):
        middle = (low + high) / 2
        y = slope / (stiffness + middle.exp().unsqueeze(-1))
        long = y.norm(dim=1) > radius
        low, high = torch.where(long, middle, low), torch.where(long, high, middle)
    found: Tensor = slope / (stiffness + high.exp().unsqueeze(-1))
    return found


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)

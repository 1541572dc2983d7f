"""Recall: descent of the energy E(x) = −log P(x|y), or −log P(x), on the sphere.

−E is a log-sum-exp of linear functions of x, so convex, hence above its tangent plane:

    −E(x') ≥ −E(x) + β_eff ⟨g, x' − x⟩,    g = Σ_μ≥1 r_μ(x) w^μ, r the shares of the components.

Whatever does not lower ⟨g, x'⟩ does not raise the energy, and x' = g/‖g‖ raises it most: the
fixed-point step, which is monotone.

With known coordinates the same holds on the smaller sphere of the rows allowed. Where rows are seen
through a metric A, those are the unit rows of the space that Av spans, v known up to its length in
the known coordinates and free in the others: the image of the free ones, and one axis across it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model import retrieval
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import in_chunks
from mnemosphere.model.retrieval import class_column
from mnemosphere.numerics import sphere

_NONE = 1e-9  # seen through a metric: what is smaller than this is rounding


@dataclass(frozen=True)
class Recall:
    """Where the energy descent of each row ended, and what was recorded on the way."""

    x: Tensor  # (B, N) unit rows
    energy: Tensor  # (B,) −log P(x|y), or −log P(x), relative to the uniform law on the sphere
    steps: Tensor  # (B,) int64: steps taken
    converged: Tensor  # (B,) bool: the last step moved the row by no more than tol
    energies: Tensor | None = None  # (S+1, B) before the first step and after each; S: most taken
    path: Tensor | None = None  # (S+1, B, N) likewise; a row that has stopped stays where it is


def recall(
    params: Mixture, x: Tensor, *, class_index: int | Tensor | None = None, steps: int = 20,
    known: Tensor | None = None, metric: Tensor | None = None, tol: float = 1e-6,
    record: bool = False,
) -> Recall:  # fmt: skip
    """Descend the energy of the effective density from each row; it never increases.

    At a fixed point g ∥ x: the gradient has no tangent part. Strides are long also where the
    uniform component has nearly all of the density and the slope is next to nothing.

    With `known`, only rows that agree with x in the known coordinates are allowed: pattern
    completion. A row on the sphere is a pattern without its norm, so the known values fix the
    known coordinates up to one factor per row, which is found along with the unknown ones (they
    start from their values in x, zero if nothing is known of them).

    x: (B, N) unit rows.
    class_index: column of p, one for all rows or one per row (B,); None descends −log P(x).
    steps: the most steps taken; a row stops once a step moves it by no more than `tol`.
    known: (B, N) bool, True where x is to be kept.
    metric: (N, M) through which rows of M coordinates came to be x; known is then (B, M) of those.
    record: keep rows and energies along the path.
    """
    if steps < 0 or not tol >= 0:
        raise ValueError(f"steps and tol must be >= 0, got steps={steps}, tol={tol}")
    column = None if class_index is None else class_column(params, class_index, len(x))

    def of(rows: Tensor) -> Tensor | None:
        return None if column is None else column[rows]

    def heights(at: Tensor) -> Tensor:
        return in_chunks(
            lambda rows: retrieval.energy(params, at[rows], of(rows)), every, params.n_memories
        )

    def stepped(rows: Tensor) -> Tensor:
        kept = None if known is None else _Kept(x[rows], known[rows], metric)
        return _fixed_point_step(retrieval.pull(params, out[rows], of(rows)), out[rows], kept)

    out, every = x.clone(), torch.arange(len(x), device=x.device)
    taken, converged = torch.zeros_like(every), torch.zeros_like(every, dtype=torch.bool)
    index, path = every, [x]  # rows still moving
    for _ in range(steps):
        if len(index) == 0:
            break
        new = in_chunks(stepped, index, params.n_memories)
        moved = (new - out[index]).norm(dim=1) > tol
        out[index], converged[index] = new, ~moved
        taken[index] += 1
        path += [out.clone()] if record else []
        index = index[moved]
    energies = torch.stack([heights(at) for at in path]) if record else None
    return Recall(
        out, heights(out), taken, converged, energies, torch.stack(path) if record else None
    )


class _Kept:
    """The rows allowed: as they were given, which coordinates hold, and through which metric."""

    def __init__(self, given: Tensor, known: Tensor, metric: Tensor | None) -> None:
        self.given, self.known = given, known
        self._least = torch.finfo(given.dtype).eps  # a shorter part is the rounding of none
        self._onto: Tensor | None = None
        if metric is not None:
            # (B, N, M): images of free ones, in double precision, which tells none from little.
            columns = torch.where(known[:, None], 0.0, metric.double())
            axes, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
            axes = axes * (sizes > _NONE * sizes.amax(1, keepdim=True))[:, None]
            self._onto, self._least = axes @ axes.mT, max(self._least, _NONE)

    def free(self, g: Tensor) -> Tensor:
        """The part of each row that may change on its own."""
        if self._onto is None:
            return torch.where(self.known, 0.0, g)
        return (self._onto @ g[:, :, None].double())[:, :, 0].to(g)

    def axis(self) -> tuple[Tensor, Tensor]:
        """The known part of each row as a unit vector (zero where all of it is 0), and its norm."""
        given = self.given if self._onto is None else self.given.double()
        part = given - self.free(given)
        scale = part.norm(dim=1, keepdim=True)
        scale = torch.where(scale > self._least, scale, 0.0)
        axis = torch.where(scale > 0, part / torch.where(scale > 0, scale, 1.0), 0.0)
        return axis.to(self.given), scale.to(self.given)


def _fixed_point_step(g: Tensor, x: Tensor, kept: _Kept | None) -> Tensor:
    """The unit row x' with the largest ⟨g, x'⟩ among those allowed."""
    if kept is None:
        return _toward(g, x)
    free = kept.free(g)
    movable = free.abs().amax(1, keepdim=True) > 0
    toward = _toward(free, x)
    axis, scale = kept.axis()
    along = (g * axis).sum(1, keepdim=True)
    best = _toward(along * axis + free, x)
    # Where the known part points away from all memories it would vanish, and with it what is
    # known. Halving it is a step the same way: ⟨g, x'⟩ falls as its size grows.
    half = (x * axis).sum(1, keepdim=True) / 2
    shrunk = torch.where(movable, half * axis + (1 - half.square()).sqrt() * toward, x)
    return torch.where((along > 0) | (scale == 0), best, shrunk)


def _toward(g: Tensor, x: Tensor) -> Tensor:
    """g/‖g‖, rows of zeros left at x."""
    return sphere.project(torch.where(g.abs().amax(1, keepdim=True) > 0, g, x))

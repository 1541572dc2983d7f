"""A Newton step on the free entropy that climbs where Newton's would fall back to a saddle.

Near a solution the map z → T(z) of the saddle-point equations moves as slowly as the eigenvalues
λ of its Jacobian are near 1: along valleys in which labels are shared out between memories that
nearly coincide, and off saddles that are all but flat. With J = K L Lᵀ in the factors of
`stability.linearize` and M = Lᵀ K L Newton's step solves (1 − M) y = Lᵀ (T(z) − z), and ends in
z + dz = T(z) + K L y. Dividing by |1 − λ| in place of 1 − λ turns the step around in directions
with λ > 1: it leaves saddles along what is unstable there, however slow.

Valleys bend. A step along the flat directions therefore ends beside the valley floor, and a second
step in the steep directions alone, with the same factors, leads back to it.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from mnemosphere.theory import stability
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import conjugate, respond

# Largest number of unknowns for which a dense eigendecomposition is cheaper than waiting.
MAX_UNKNOWNS = 300

# Elements of one batch of matrices.
_BATCH_ELEMENTS = 1 << 23

# Directions with |1 − λ| above this are steep.
_STEEP = 1e-3

# Share of a class weight that a step leaves at least: those that vanish do so by factors.
KEPT = 1e-3

# Directions flatter than this are left to plain steps: their curvature is rounding.
_FLATTEST = 1e-12


def unknowns(problem: SaddlePointProblem) -> int:
    """Size Z of the matrices of one step."""
    labels = problem.n_columns if problem.n_columns > 1 else 0
    return problem.n_student * problem.patterns.shape[1] + (problem.n_student + 1) * labels


def saddle_free_step(
    problem: SaddlePointProblem,
    x_bar: Tensor,
    p_bar: Tensor,
    next_x: Tensor,
    next_p: Tensor,
    radius: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Next (x_bar, p_bar) from (S, P, D) and (S, P+1, C+1), given their images under the map.

    radius (S,): the largest |y|, in which class weights count by the square root of p_bar. The last
    that is returned is |y| (S,).
    """
    # Eigendecompositions of a batch are taken one by one, on one core: each has a part of its own.
    n_threads = torch.get_num_threads()
    rows = max(1, _BATCH_ELEMENTS // unknowns(problem) ** 2 // n_threads)
    rows = min(rows, -(-x_bar.shape[0] // n_threads))
    batches = zip(
        *(torch.split(t, rows) for t in (x_bar, p_bar, next_x, next_p, radius)), strict=True
    )
    with ThreadPoolExecutor(n_threads) as pool:
        parts = list(pool.map(lambda batch: _step(problem, *batch), batches))
    x_new, p_new, length = zip(*parts, strict=True)
    return torch.cat(x_new), torch.cat(p_new), torch.cat(length)


def _step(
    problem: SaddlePointProblem,
    x_bar: Tensor,
    p_bar: Tensor,
    next_x: Tensor,
    next_p: Tensor,
    radius: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    k, factor, scale = stability.linearize(problem, x_bar, p_bar, factor=True)
    middle = factor.mT @ k @ factor
    values, vectors = torch.linalg.eigh((middle + middle.mT) / 2)
    size = x_bar[0].numel()
    labels = problem.n_columns > 1

    def along_modes(before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> Tensor:
        """Lᵀ (T(z) − z) in the eigenvectors of M (S, R)."""
        change = [(b - a).flatten(1) for a, b in zip(before, after, strict=True)]
        flat = torch.cat(change, 1) if labels else change[0]
        return _product(vectors.mT, _product(factor.mT, flat / scale))

    def land(after: tuple[Tensor, Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
        """T(z) + K L y, with class weights that keep a thousandth at least."""
        gained = scale * _product(k, _product(factor, _product(vectors, y)))
        x_new = after[0] + gained[:, :size].reshape(x_bar.shape)
        if not labels:
            return x_new, after[1]
        p_new = after[1] + gained[:, size:].reshape(p_bar.shape)
        return x_new, torch.maximum(p_new, KEPT * after[1])

    here, image = (x_bar, p_bar), (next_x, next_p)
    y = along_modes(here, image) / (1.0 - values).abs().clamp_min(_FLATTEST)
    length = torch.minimum(y.norm(dim=1), radius)
    y = y * (length / y.norm(dim=1).clamp_min(1e-300)).unsqueeze(-1)
    there = land(image, y)
    c = conjugate(problem, respond(problem, *there))
    image = (c.x_bar, c.p_bar)
    bend = torch.where(1.0 - values > _STEEP, 1.0 - values, torch.inf)
    return *land(image, along_modes(there, image) / bend), length


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)

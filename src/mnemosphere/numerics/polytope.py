"""The transportation polytope {p ≥ 0: row sums = rows, column sums = cols}, batched.

Shapes: p (..., R, C), rows (..., R), cols (..., C). A zero in a marginal means a zero row or
column. Every solver here comes down to one small linear system in the columns, a weighted graph
Laplacian, solved without a subtraction so that weights over many decades keep their precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor

from mnemosphere.numerics import interior
from mnemosphere.numerics.interior import TINY, Array, Laplacian

_LOG_ZERO = -1e30  # stands for log 0: finite, so that differences are never NaN
_TOTALS = 1e-5  # relative slack between the two totals: float32 sums over many rows
_FLOOR = 1e-30  # relative size of the vanishing floor under p_bar in maximize


def check_marginals(rows: Tensor, cols: Tensor) -> tuple[Array, Array]:
    """Return rows (..., R) and cols (..., C) if they can be the marginals of one matrix.

    The totals may differ by 1e-5, relatively, for rounding; the solvers then rescale cols.
    """
    arrays, totals = [], []
    for name, m in (("rows", rows), ("cols", cols)):
        if m.shape[-1] == 0:
            raise ValueError(f"{name} must have at least one entry, got shape {tuple(m.shape)}")
        array = _array(m)
        if not (array.min() >= 0 and array.max() < math.inf):
            raise ValueError(f"{name} must be finite and non-negative, got {_first_bad(m)}")
        arrays.append(array)
        totals.append(array.sum(-1))
    a, b = totals
    gap = abs(a - b)
    if not ((gap <= _TOTALS * a) | (gap <= _TOTALS * b)).all():
        worst = int(gap.argmax())
        left, right = (np.broadcast_to(z, gap.shape).flat[worst] for z in (a, b))
        raise ValueError(
            f"rows and cols must have equal totals, got {left:.9g} and {right:.9g}: "
            "normalize both to sum to 1"
        )
    if not (a > 0).all():
        raise ValueError("the marginals sum to 0: give at least one positive row and column")
    return arrays[0], arrays[1]


def check(p: Tensor, rows: Tensor, cols: Tensor, *, tol: float) -> Tensor:
    """Return p if it is in the polytope, marginals within tol × total; raise if not."""
    # NumPy, of which a call takes a fraction of the time that one of torch does.
    _, matrix, r, c = _flat("p", p, rows, cols)
    if not matrix.min() >= 0:  # where it is infinite, so is a sum
        raise ValueError(f"p must be finite and non-negative, got {_first_bad(p)}")
    total = r.sum(-1, keepdims=True)
    # Of these sums einsum takes the least time: BLAS wakes its threads for them.
    for name, axes, m in (("row", "bij->bi", r), ("column", "bij->bj", c)):
        off = abs(np.einsum(axes, matrix) - m) / total
        if not off.max() <= tol:
            index = int(off.max(0).argmax())
            raise ValueError(
                f"{name} {index} of p misses its marginal by {float(off.max()):.3g} of the total "
                f"(tol {tol:.3g}): rescale p with polytope.sinkhorn"
            )
    return p


@dataclass(frozen=True)
class Maximum:
    """The maximizer p = p_bar / (λ_y + ω_γ), its multipliers, and whether the search converged.

    The gauge is min λ = 0, so λ ≥ 0 and ω > 0: sums of the two lose no precision. A zero row or
    column has the multiplier +inf.
    """

    p: Tensor  # (..., R, C)
    row_multipliers: Tensor  # ω (..., R)
    col_multipliers: Tensor  # λ (..., C)
    converged: Tensor  # (...) bool: marginals and optimality are right to the tolerance


def sinkhorn(
    log_k: Tensor,
    rows: Tensor,
    cols: Tensor,
    *,
    tol: float = 1e-9,
    max_sweeps: int = 1000,
) -> Tensor:
    """Scale k = exp(log_k) (..., R, C) to p = diag(a) k diag(b) with the given marginals.

    Paper, App. weight_normalization. Each Sinkhorn–Knopp sweep, in the log domain, sets the row
    sums and then the column sums. It crawls when k is near the boundary of the polytope, so a few
    are followed, in float64, by Newton's method on the column scalings, the rows eliminated in
    closed form, until each marginal is right to `tol`, relatively.

    Entries −inf are structural zeros. RuntimeError where they leave no solution.
    """
    batch, x, r, c = _flat("log_k", log_k, rows, cols)
    if not (x < math.inf).all():  # NaN compares false
        raise ValueError("log_k must be finite or -inf: clip the step that made it")
    zero, x = x == -math.inf, np.maximum(x, _LOG_ZERO)
    with np.errstate(divide="ignore"):
        log_r, log_c = (np.maximum(np.log(m), _LOG_ZERO) for m in (r, c))
    sweeps = min(4, max_sweeps)
    for _ in range(sweeps):
        x = log_softmax(x, -1) + log_r[..., None]
        x = log_softmax(x, -2) + log_c[:, None, :]
    while True:
        # Rows exact, p = r·softmax(x): the dual in the column scalings v is
        # Σ r logsumexp(log k + v) − Σ c v, smooth and convex.
        p = np.where(zero, 0.0, np.exp(log_softmax(x, -1) + log_r[..., None]))
        error = interior.marginal_error(p, c, r)
        left = ~(error <= tol)
        if not left.any():
            return _tensor(p, batch, log_k)
        if sweeps >= max_sweeps:
            raise RuntimeError(
                f"scaling missed its tolerance after {sweeps} sweeps (relative error "
                f"{float(error.max()):.3g}): raise max_sweeps, or check that the zeros of the "
                "matrix leave a way to carry the marginals"
            )
        edges, big = p.swapaxes(-1, -2) @ (p / np.maximum(r, TINY)[..., None]), c.argmax(-1)
        v = Laplacian(edges, big, big).solve(c - p.sum(-2))
        # |f'''| ≤ range(v) f'' along v, so this damping always descends, and a huge step through
        # a flat region (weights e^{-s}) moves by about s, which is how far the wall is.
        reach = np.maximum(np.ptp(v, -1)[:, None], TINY)
        x = x + np.where(left[:, None], v * (np.log1p(reach) / reach), 0.0)[:, None, :]
        sweeps += 1


def sweep(log_k: Tensor, rows: Tensor, cols: Tensor, sweeps: int) -> Tensor:
    """Sinkhorn–Knopp as the paper does it: `sweeps` sweeps over exp(log_k) (..., R, C), no more.

    The columns come out exact and the rows approximate. In the dtype of log_k, whose smallest
    number is also the smallest share of its row that an entry has; a row of nothing but zeros
    comes out NaN. Checks nothing and never waits for the device.
    """
    # After the rows, in the log domain, every entry is on the scale of the marginals; the smallest
    # number keeps what is divided by off zero.
    k = log_k.softmax(-1) * rows[..., None] + torch.finfo(log_k.dtype).tiny
    a = torch.ones_like(rows)
    b = cols / k.sum(-2)
    for _ in range(sweeps - 1):
        a = rows / (k @ b[..., None])[..., 0]  # (..., R, C) @ (..., C, 1)
        b = cols / (k.mT @ a[..., None])[..., 0]  # (..., C, R) @ (..., R, 1)
    return k * a[..., None] * b[..., None, :]


def to_tangent(p: Tensor, g: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Project the ambient g (..., R, C) on the tangent space at p: zero row and column sums.

    Orthogonal in the Fisher metric ⟨ξ, η⟩ = Σ ξη/p, after Douik and Hassibi:
    ξ = g − (α_γ + β_y) p, with α and β from the two sum conditions. p must have the marginals
    rows and cols. The Riemannian gradient of f is to_tangent(p, p * ∂f/∂p, rows, cols).
    """
    batch, q, r, c = _flat("p", p, rows, cols)
    h = _flat("g", g, rows, cols)[1]
    least = np.maximum(r, TINY)[..., None]
    mean, share, turned = h.sum(-1)[..., None] / least, q / least, q.swapaxes(-1, -2)
    big = c.argmax(-1)
    beta = Laplacian(turned @ share, big, big).solve(h.sum(-2) - (turned @ mean)[..., 0])
    alpha = mean - share @ beta[..., None]
    return _tensor(h - (alpha + beta[:, None, :]) * q, batch, p)


def project(k: Tensor, rows: Tensor, cols: Tensor, *, tol: float = 1e-9) -> Tensor:
    """Scale k ≥ 0 (..., R, C) into the polytope: its nearest point in relative entropy."""
    return sinkhorn(k.log(), rows, cols, tol=tol)


def retract(
    p: Tensor,
    v: Tensor,
    rows: Tensor,
    cols: Tensor,
    *,
    tol: float | None = 1e-9,
    sweeps: int = 10,
) -> Tensor:
    """Move from p along the tangent vector v and return to the polytope: p·exp(v/p), scaled.

    The retraction of Douik and Hassibi. tol: of the marginals; None takes `sweeps` sweeps
    whatever they reach, and never waits for the device.
    """
    base = p.clamp_min(torch.finfo(p.dtype).tiny)  # where p = 0 nothing moves
    log_k = base.log() + v / base
    if tol is None:
        return sweep(log_k, rows, cols, sweeps)
    return sinkhorn(log_k, rows, cols, tol=tol)


def center_rows(p: Tensor, g: Tensor, rows: Tensor) -> Tensor:
    """Subtract from each row of the gradient g its mean under p: g_y − Σ_y' p_y' g_y' / rows.

    The approximation of App. weight_normalization to the exact projection: the gradient times
    δ_yy' − p_y/p_h. It leaves Σ_y p_y g_y = 0 in each row and ignores the columns.
    """
    mass = rows.clamp(min=torch.finfo(rows.dtype).tiny)  # of a row of zeros the mean is 0
    return g - ((p * g).sum(-1) / mass)[..., None]


def maximize(
    p_bar: Tensor,
    rows: Tensor,
    cols: Tensor,
    *,
    tol: float = 1e-12,
    max_iter: int = 100,
    start: tuple[Tensor, Tensor] | None = None,
) -> Maximum:
    """Maximize Σ p̄ log p over {p ≥ 0: row sums rows, column sums cols}. Paper, Eq. (nonlinear).

    The maximizer is p = p̄/ζ with ζ = λ_y + ω_γ > 0, found by a primal-dual interior-point method: each step is
    one system in the columns, and zeros or thirty decades in p̄ cost steps, not precision.

    p_bar (..., R, C) non-negative. Its entries are taken to be at least 1e-30 of an even spread:
    where rows or columns of zeros could not carry the marginals the result is the limit of that
    vanishing floor, to about 1e-15. Solved in float64, returned in the dtype of p_bar.

    converged means marginals within tol, each relative to itself. Rarely, for p_bar over some
    forty decades, rounding hides the last digits of ζ: p then keeps its marginals and is
    optimal to a duality gap of tol × Σ p_bar, while the multipliers are approximate.

    start: (row, column) multipliers of a problem like this one, from which few steps suffice;
    those that cannot be a start, zeros for one, are not used.
    """
    batch, q, r, c = _flat("p_bar", p_bar, rows, cols)
    q = np.ascontiguousarray(q.swapaxes(-1, -2))  # columns first: see numerics.interior
    least = q.min()
    if not (least >= 0 and np.isfinite(q.max())):
        raise ValueError(f"p_bar must be finite and non-negative, got {_first_bad(p_bar)}")
    total = r.sum(-1, keepdims=True)
    mass = q.sum((-2, -1))[:, None]
    scale = np.where(mass > 0, mass, total) / total  # ζ if p_bar is spread evenly
    floor = (c * (_FLOOR / total))[:, :, None] * r[:, None, :]
    floored = np.maximum(q / scale[..., None], floor)
    if not (r.all() and c.all()):
        floored[floor == 0] = 0.0
    first = None
    if start is not None:
        omega, lam = (_array(m).reshape(-1, m.shape[-1]) / scale for m in start)
        if np.all((omega > 0) | (r == 0)) and np.all((lam >= 0) | (c == 0)):
            first = lam, omega
    path = interior.solve(floored, r, c, tol, max_iter, first)
    p = path.p
    if least == 0:
        # What only the floor holds up is dust, unless the marginals need it.
        p[(q == 0) & (p <= 1e-14 * np.minimum(c[:, :, None], r[:, None, :]))] = 0.0

    with np.errstate(over="ignore"):  # p_bar near the largest number there is
        omega, lam = path.omega * scale, path.lam * scale
    converged = (path.error <= tol) & (path.gap <= tol)
    return Maximum(
        _tensor(p.swapaxes(-1, -2), batch, p_bar),
        _tensor(np.where(r > 0, omega, np.inf), batch, p_bar),
        _tensor(np.where(c > 0, lam, np.inf), batch, p_bar),
        _tensor(converged, batch, p_bar).bool(),
    )


def _array(m: Tensor) -> Array:
    return np.ascontiguousarray(m.numpy(force=True), np.float64)


def _flat(
    name: str, m: Tensor, rows: Tensor, cols: Tensor
) -> tuple[tuple[int, ...], Array, Array, Array]:
    """(batch shape, m (B, R, C), rows (B, R), cols (B, C) of exactly their total)."""
    r, c = check_marginals(rows, cols)
    wanted = (r.shape[-1], c.shape[-1])
    if m.shape[-2:] != wanted:
        raise ValueError(f"{name} must have shape (..., {wanted[0]}, {wanted[1]}) to fit its "
                         f"marginals, got {tuple(m.shape)}")  # fmt: skip
    batch = np.broadcast_shapes(m.shape[:-2], r.shape[:-1], c.shape[:-1])
    m_, r, c = (
        np.broadcast_to(z, (*batch, *z.shape[-n:])).reshape(-1, *z.shape[-n:])
        for z, n in ((_array(m), 2), (r, 1), (c, 1))
    )
    return batch, m_, r, c * (r.sum(-1, keepdims=True) / c.sum(-1, keepdims=True))


def _tensor(array: NDArray[Any], batch: tuple[int, ...], like: Tensor) -> Tensor:
    """Arrays of a flat batch as tensors."""
    flat = torch.from_numpy(np.ascontiguousarray(array)).to(like)
    return flat.reshape((*batch, *array.shape[1:]))


def _first_bad(m: Tensor) -> str:
    index = (~((m >= 0) & torch.isfinite(m))).nonzero()[0]
    where = tuple(int(i) for i in index)
    return f"{float(m[where]):.6g} at index {where}"

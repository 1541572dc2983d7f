"""The transportation polytope {p ≥ 0: row sums = rows, column sums = cols}, batched.

Shapes: p (..., R, C), rows (..., R), cols (..., C). A zero in a marginal means a zero row or
column. Every solver here comes down to one small linear system in the columns, a weighted graph
Laplacian, solved without a subtraction so that weights over many decades keep their precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "Maximum",
    "Scaling",
    "center_rows",
    "check",
    "check_marginals",
    "maximize",
    "sinkhorn",
    "to_tangent",
]

_LOG_ZERO = -1e30  # stands for log 0: finite, so that differences are never NaN
_TINY = 1e-300  # keeps a division by zero finite in float64
_TOTALS = 1e-5  # relative slack between the two totals: float32 sums over many rows
_FLOOR = 1e-30  # relative size of the vanishing floor under p_bar in maximize


def check_marginals(rows: Tensor, cols: Tensor) -> None:
    """Raise unless rows (..., R) and cols (..., C) can be the marginals of one matrix.

    The totals may differ by 1e-5, relatively, for rounding; the solvers then rescale cols.
    """
    for name, m in (("rows", rows), ("cols", cols)):
        if not isinstance(m, Tensor) or not m.is_floating_point():
            got = m.dtype if isinstance(m, Tensor) else type(m).__name__
            raise TypeError(f"{name} must be a floating-point tensor, got {got}")
        if m.ndim == 0 or m.shape[-1] == 0:
            raise ValueError(f"{name} must have at least one entry, got shape {tuple(m.shape)}")
        if not bool(((m >= 0) & torch.isfinite(m)).all()):
            raise ValueError(f"{name} must be finite and non-negative, got {_first_bad(m)}")
    a, b = rows.double().sum(-1), cols.double().sum(-1)
    if not bool(((a - b).abs() <= _TOTALS * torch.maximum(a, b)).all()):
        gap = (a - b).abs().argmax() if a.shape == b.shape else None
        left, right = (a, b) if gap is None else (a.flatten()[gap], b.flatten()[gap])
        raise ValueError(
            f"rows and cols must have equal totals, got {_short(left)} and {_short(right)}: "
            "normalize both to sum to 1"
        )
    if not bool((a > 0).all()):
        raise ValueError("the marginals sum to 0: give at least one positive row and column")


def check(p: Tensor, rows: Tensor, cols: Tensor, *, tol: float) -> Tensor:
    """Return p if it is in the polytope, marginals within tol × total; raise if not."""
    check_marginals(rows, cols)
    if p.shape[-2:] != (rows.shape[-1], cols.shape[-1]):
        raise ValueError(
            f"p must have shape (..., {rows.shape[-1]}, {cols.shape[-1]}) to fit its marginals, "
            f"got {tuple(p.shape)}"
        )
    if not bool(((p >= 0) & torch.isfinite(p)).all()):
        raise ValueError(f"p must be finite and non-negative, got {_first_bad(p)}")
    total = rows.sum(-1, keepdim=True)
    for name, axis, m in (("row", -1, rows), ("column", -2, cols)):
        off = (p.sum(axis) - m).abs() / total
        if float(off.max()) > tol:
            index = int((off.reshape(-1, off.shape[-1]).amax(0)).argmax())
            raise ValueError(
                f"{name} {index} of p misses its marginal by {float(off.max()):.3g} of the total "
                f"(tol {tol:.3g}): rescale p with polytope.sinkhorn"
            )
    return p


@dataclass(frozen=True)
class Scaling:
    """A matrix scaled to given marginals, and how the scaling went."""

    p: Tensor  # (..., R, C)
    converged: Tensor  # (...) bool; all False where no tolerance was asked
    sweeps: int  # passes over the matrix
    error: Tensor  # (...) largest marginal error, relative to that marginal

    def raise_if_failed(self) -> Scaling:
        """Return self, or raise if a problem of the batch missed the tolerance."""
        if not bool(self.converged.all()):
            raise RuntimeError(
                f"scaling missed its tolerance after {self.sweeps} sweeps (relative error "
                f"{float(self.error.max()):.3g}): raise max_sweeps, or check that the zeros of the "
                "matrix leave a way to carry the marginals"
            )
        return self


@dataclass(frozen=True)
class Maximum:
    """The maximiser p = p_bar / (λ_y + ω_γ), its multipliers, and how the search went.

    The gauge is min λ = 0, so λ ≥ 0 and ω > 0: sums of the two lose no precision. A zero row or
    column has the multiplier +inf.
    """

    p: Tensor  # (..., R, C)
    row_multipliers: Tensor  # ω (..., R)
    col_multipliers: Tensor  # λ (..., C)
    converged: Tensor  # (...) bool
    iterations: int
    error: Tensor  # (...) largest marginal error, relative to that marginal

    def raise_if_failed(self) -> Maximum:
        """Return self, or raise if a problem of the batch missed the tolerance."""
        if not bool(self.converged.all()):
            raise RuntimeError(
                f"maximize missed its tolerance after {self.iterations} iterations (relative error "
                f"{float(self.error.max()):.3g}): raise max_iter or tol"
            )
        return self


def sinkhorn(
    log_k: Tensor,
    rows: Tensor,
    cols: Tensor,
    *,
    tol: float | None = 1e-9,
    max_sweeps: int = 1000,
) -> Scaling:
    """Scale k = exp(log_k) (..., R, C) to p = diag(a) k diag(b) with the given marginals.

    Paper, App. weight_normalization. Each Sinkhorn–Knopp sweep, in the log domain, sets the row
    sums and then the column sums. It crawls when k is near the boundary of the polytope, so with
    a tolerance (relative, on each marginal) it is followed, in float64, by Newton's method on the
    column scalings, the rows eliminated in closed form. tol=None runs exactly max_sweeps sweeps
    in the dtype of log_k, never waits for the device and checks nothing: the columns come out
    exact and the rows approximate.

    Entries −inf are structural zeros. Where they leave no solution, converged is False.
    """
    if tol is None:
        log_r, log_c = _log(rows), _log(cols)
        log_p = _sweep(log_k.clamp(min=_LOG_ZERO), log_r, log_c, max_sweeps)
        p = log_p.exp().masked_fill(log_k == -math.inf, 0.0)
        error = _error(p, rows, cols)
        return Scaling(p, torch.zeros_like(error, dtype=torch.bool), max_sweeps, error)
    check_marginals(rows, cols)
    if bool((torch.isnan(log_k) | (log_k == math.inf)).any()):
        raise ValueError("log_k must be finite or -inf: clip the step that made it")
    r, c, batch = _flat_marginals(rows, cols, log_k)
    x = log_k.detach().double().expand(*batch, *log_k.shape[-2:]).reshape(-1, *log_k.shape[-2:])
    zero = x == -math.inf
    log_r, log_c = _log(r), _log(c)
    x = x.clamp(min=_LOG_ZERO)
    sweeps = min(4, max_sweeps)
    x = _sweep(x, log_r, log_c, sweeps)
    while True:
        # Rows exact, p = r·softmax(x): the dual in the column scalings v is
        # Σ r logsumexp(log k + v) − Σ c v, smooth and convex.
        p = (torch.log_softmax(x, -1) + log_r[..., None]).exp().masked_fill(zero, 0.0)
        gap = c - p.sum(-2)
        error = _error(p, r, c)
        converged = error <= tol
        if sweeps >= max_sweeps or bool(converged.all()):
            break
        edges = p.mT @ (p / r.clamp(min=_TINY)[..., None])  # (B, C, R) @ (B, R, C)
        big = c.argmax(-1)
        v = _Laplacian(edges, big, big).solve(gap)
        # |f'''| ≤ range(v) f'' along v, so this damping always descends, and a huge step through
        # a flat region (weights e^{-s}) moves by about s, which is how far the wall is.
        reach = (v.amax(-1, keepdim=True) - v.amin(-1, keepdim=True)).clamp(min=_TINY)
        v = v * (torch.log1p(reach) / reach)
        x = x + torch.where(converged[:, None], 0.0, v)[:, None, :]
        sweeps += 1
    shape = (*batch, *log_k.shape[-2:])
    return Scaling(
        p.to(log_k.dtype).reshape(shape), converged.reshape(batch), sweeps, error.reshape(batch)
    )


def to_tangent(p: Tensor, g: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Project the ambient g (..., R, C) on the tangent space at p: zero row and column sums.

    Orthogonal in the Fisher metric ⟨ξ, η⟩ = Σ ξη/p, after Douik and Hassibi:
    ξ = g − (α_γ + β_y) p, with α and β from the two sum conditions. p must have the marginals
    rows and cols. The Riemannian gradient of f is to_tangent(p, p * ∂f/∂p, rows, cols).
    """
    q, h, r, c = (t.double() for t in (p, g, rows, cols))
    mean = h.sum(-1) / r.clamp(min=_TINY)  # (..., R)
    share = q / r.clamp(min=_TINY)[..., None]
    edges = q.mT @ share  # (..., C, R) @ (..., R, C)
    b = h.sum(-2) - (q.mT @ mean[..., None])[..., 0]
    flat = edges.reshape(-1, *edges.shape[-2:])
    n = flat.shape[-1]
    big = c.expand(*edges.shape[:-1]).reshape(-1, n).argmax(-1)
    beta = _Laplacian(flat, big, big).solve(b.reshape(-1, n)).reshape(b.shape)
    alpha = mean - (share @ beta[..., None])[..., 0]
    return (h - (alpha[..., None] + beta[..., None, :]) * q).to(p.dtype)


def center_rows(p: Tensor, g: Tensor, rows: Tensor) -> Tensor:
    """Subtract from each row of the gradient g its mean under p: g_y − Σ_y' p_y' g_y' / rows.

    The approximation of App. weight_normalization to the exact projection: the gradient times
    δ_yy' − p_y/p_h. It leaves Σ_y p_y g_y = 0 in each row and ignores the columns.
    """
    mass = torch.where(rows > 0, rows, torch.ones_like(rows))
    return g - ((p * g).sum(-1) / mass)[..., None]


def maximize(
    p_bar: Tensor,
    rows: Tensor,
    cols: Tensor,
    *,
    tol: float = 1e-12,
    max_iter: int = 100,
) -> Maximum:
    """Maximise Σ p̄ log p over {p ≥ 0: row sums rows, column sums cols}. Paper, Eq. (nonlinear).

    The maximiser is p = p̄/ζ with ζ = λ_y + ω_γ > 0. A primal-dual interior-point method follows
    p·ζ = target from the product of the marginals (where ζ is constant) to target = p̄: each
    step is one system in the columns, and zeros or thirty decades in p̄ cost steps, not precision.

    p_bar (..., R, C) non-negative. Its entries are taken to be at least 1e-30 of an even spread:
    where rows or columns of zeros could not carry the marginals the result is the limit of that
    vanishing floor, to about 1e-15. Solved in float64, returned in the dtype of p_bar.

    converged means marginals within tol, each relative to itself. Rarely, for p_bar over some
    forty decades, rounding hides the last digits of ζ: p then keeps its marginals and is
    optimal to a duality gap of tol × Σ p_bar, while the multipliers are approximate.
    """
    check_marginals(rows, cols)
    if not bool(((p_bar >= 0) & torch.isfinite(p_bar)).all()):
        raise ValueError(f"p_bar must be finite and non-negative, got {_first_bad(p_bar)}")
    if p_bar.shape[-2:] != (rows.shape[-1], cols.shape[-1]):
        raise ValueError(
            f"p_bar must have shape (..., {rows.shape[-1]}, {cols.shape[-1]}) to fit its "
            f"marginals, got {tuple(p_bar.shape)}"
        )
    r, c, batch = _flat_marginals(rows, cols, p_bar)
    shape = (*batch, *p_bar.shape[-2:])
    q = p_bar.detach().double().expand(shape).reshape(-1, *shape[-2:])
    total = r.sum(-1)[:, None, None]
    mass = q.sum((-2, -1), keepdim=True)
    scale = torch.where(mass > 0, mass, total) / total  # ζ if p_bar is spread evenly
    even = r[:, :, None] * c[:, None, :] / total
    floored = torch.maximum(q / scale, _FLOOR * even) * (even > 0)
    lam, omega, p, error, gap, iterations = _follow(floored, r, c, tol, max_iter)
    # What only the floor holds up is dust, unless the marginals need it.
    p = p.masked_fill((q == 0) & (p <= 1e-14 * torch.minimum(r[:, :, None], c[:, None, :])), 0.0)
    lam = torch.where(c > 0, lam * scale[..., 0], math.inf)
    omega = torch.where(r > 0, omega * scale[..., 0], math.inf)
    return Maximum(
        p.to(p_bar.dtype).reshape(shape),
        omega.to(p_bar.dtype).reshape(*batch, -1),
        lam.to(p_bar.dtype).reshape(*batch, -1),
        ((error <= tol) & (gap <= tol)).reshape(batch),
        iterations,
        error.reshape(batch),
    )


def _follow(
    q: Tensor, r: Tensor, c: Tensor, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int]:
    """Solve p = q/(λ+ω) in the polytope for q (B, R, C), Σ q = Σ r.

    Returns λ (B, C), ω (B, R), p, the marginal error, the relative duality gap, the steps taken.
    """
    total = r.sum(-1, keepdim=True)
    even = r[:, :, None] * (c / total)[:, None, :]
    full = bool((even > 0).all())
    p = even
    # Half and half: exact if p_bar has the right marginals. The clamp keeps the products p·ζ of a
    # poor row near those of the others; zero rows and columns are out of the way.
    lam = torch.where(c > 0, (0.5 * q.sum(-2) / c).clamp(min=0.1), 1e30)
    omega = torch.where(r > 0, (0.5 * q.sum(-1) / r).clamp(min=0.1), 1e30)
    cut = torch.full_like(even[:, :1, :1], 0.1)
    todo = torch.arange(len(q), device=q.device)
    done = (lam.clone(), omega.clone(), p.clone(), lam[:, 0].clone(), torch.zeros_like(lam[:, 0]))
    iterations = 0
    while True:
        low = lam.amin(-1, keepdim=True)
        lam, omega = lam - low, omega + low  # the gauge: sums of two non-negative numbers
        zeta = lam[:, None, :] + omega[:, :, None]
        inverse = 1.0 / zeta
        x = q * inverse
        error = _error(x, r, c)
        left = ~(error <= tol)
        n_left = int(left.sum())
        if n_left <= len(left) // 2 or iterations >= max_iter:
            gap = torch.zeros_like(error)
            if n_left > 0 and iterations >= max_iter:
                # The iterate p has the marginals, whatever ζ is; by duality its objective is
                # below the maximum by no more than Σ w − q − q log(w/q), w = p·ζ.
                x = torch.where(left[:, None, None], p, x)
                w = p * zeta
                excess = torch.where(q > 0, w - q - q * (w / q).log(), 0.0)
                gap = torch.where(left, excess.sum((-2, -1)) / total[todo, 0], 0.0)
                error = torch.where(left, _error(p, r, c), error)
            for out, value in zip(done, (lam, omega, x, error, gap), strict=True):
                out[todo] = value
            if n_left == 0 or iterations >= max_iter:
                return *done, iterations
            # Most problems of the batch are done: go on with the rest alone.
            todo, q, r, c, p, even, x = (z[left] for z in (todo, q, r, c, p, even, x))
            lam, omega, zeta, inverse, cut = (z[left] for z in (lam, omega, zeta, inverse, cut))
        # Newton on p·ζ = t·p·ζ and the marginals: p + Δp = p t − h Δζ with h = p/ζ.
        h = p * inverse
        # The target is p_bar, but for now no lower than `level` times the even spread: all the
        # products still above p_bar come down together, by the factor `cut` a step.
        w = p * zeta
        excess = torch.sub(w, q, alpha=2.0) / even.clamp(min=_TINY)
        level = excess.amax((-2, -1), keepdim=True).clamp(0.0, 1.0)
        t = (torch.maximum(q, cut * level * even) / w).clamp(max=1e3)
        live = None if full else even > 0
        if live is not None:
            t = torch.where(live, t, 1.0)
        spring = 1.0 / h.sum(-1, keepdim=True).clamp(min=_TINY)  # (B, R, 1)
        share = h * spring  # (B, R, C)
        graph = _Laplacian(h.mT @ share, lam.argmin(-1), c.argmax(-1))  # (B, C, R) @ (B, R, C)
        given = (p, inverse, h, share, spring, graph, r, c, live)
        d_lam, d_omega, d_log_zeta, d_log_p, worst = _newton(t, *given)
        step = torch.ones_like(worst)
        if float(worst.max()) > 0.9:
            # Far away: add to the target the product ΔpΔζ that the linear step leaves out, stay
            # inside p > 0 and ζ > 0, and let no product fall far below its target, where the
            # two would jam each other.
            fixed = torch.maximum(t - (d_log_zeta * d_log_p).clamp(-0.9, 0.9), 0.1 * t)
            d_lam, d_omega, d_log_zeta, d_log_p, worst = _newton(fixed, *given)
            step = 0.99 / worst.clamp(min=0.99)
            least = (0.05 * t).clamp(max=1.0)
            for _ in range(20):
                ratio = (1.0 + step * d_log_zeta) * (1.0 + step * d_log_p)
                low = (ratio < least).any(-1, keepdim=True).any(-2, keepdim=True)
                if not bool(low.any()):
                    break
                step = torch.where(low, 0.7 * step, step)
        cut = torch.where(
            step > 0.9, (cut * cut).clamp(min=1e-2), torch.where(step > 0.5, 0.1, 0.5)
        )
        p = p * (1.0 + step * d_log_p)
        lam = lam + step[..., 0] * d_lam
        omega = omega + step[..., 0] * d_omega
        iterations += 1


def _newton(
    t: Tensor,
    p: Tensor,
    inverse: Tensor,
    h: Tensor,
    share: Tensor,
    spring: Tensor,
    graph: _Laplacian,
    r: Tensor,
    c: Tensor,
    live: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Newton step of _follow to the products t·p·ζ; the last output is the worst relative fall."""
    a = p * t
    lack = (a.sum(-1) - r)[..., None] * spring  # (B, R, 1)
    d_lam = graph.solve(a.sum(-2) - c - (h.mT @ lack)[..., 0])  # (B, C, R) @ (B, R, 1)
    d_omega = (lack - share @ d_lam[..., None])[..., 0]  # (B, R, C) @ (B, C, 1)
    d_log_zeta = (d_lam[:, None, :] + d_omega[:, :, None]) * inverse
    if live is not None:
        d_log_zeta = torch.where(live, d_log_zeta, 0.0)
    d_log_p = t - 1.0 - d_log_zeta
    worst = -torch.minimum(d_log_zeta, d_log_p).amin((-2, -1), keepdim=True)
    return d_lam, d_omega, d_log_zeta, d_log_p, worst


class _Laplacian:
    """Solve Σ_j edges_ij (x_i − x_j) = b_i with x = 0 at the node `ground`.

    edges (B, n, n) symmetric, non-negative, diagonal set to 0; ground (B,). A solution needs
    Σ b = 0; what rounding left over is put on the node `sink` (B,), the one that feels it least.

    Cholesky where that is safe. Where weights differ by many decades it loses the small ones: there
    eliminate node by node (the star-mesh transform), which adds and divides positive numbers alone
    and keeps their relative precision.
    """

    def __init__(self, edges: Tensor, ground: Tensor, sink: Tensor) -> None:
        n = edges.shape[-1]
        self.sink = sink[:, None]
        edges.diagonal(dim1=-2, dim2=-1).zero_()  # summed without it: subtracting would cancel
        degree = edges.sum(-1)
        degree = torch.where(degree > 0, degree, 1.0)  # a node alone stays where it is
        strong = 1e20 * degree.amax(-1, keepdim=True).clamp(min=1e-280)
        wire = torch.zeros_like(degree).scatter_(-1, ground[:, None], strong)
        matrix = torch.diag_embed(degree + wire) - edges
        self.factor, info = torch.linalg.cholesky_ex(matrix)
        # The share of each diagonal entry that elimination leaves: what cancels is lost.
        kept = self.factor.diagonal(dim1=-2, dim2=-1).square() / (degree + wire)
        self.safe = bool(((kept > 1e-6).all(-1) & (info == 0)).all())
        if not self.safe:
            m = torch.cat([wire[..., None], edges], -1)  # (B, n, 1 + n)
            self.degree = [m[:, 0, 0]] * n
            for k in range(n - 1, -1, -1):
                self.degree[k] = m[:, k, : k + 1].sum(-1).clamp(min=_TINY)
                if k:
                    pull = m[:, :k, k + 1] / self.degree[k][:, None]
                    m[:, :k, : k + 1].addcmul_(pull[..., None], m[:, k, None, : k + 1])
            self.edges = m

    def solve(self, b: Tensor) -> Tensor:
        """Return x (B, n) for b (B, n)."""
        b = b.scatter_add(-1, self.sink, -b.sum(-1, keepdim=True))
        if self.safe:
            return torch.cholesky_solve(b[..., None], self.factor)[..., 0]
        n = b.shape[-1]
        for k in range(n - 1, 0, -1):
            b[:, :k].addcmul_(self.edges[:, k, 1 : k + 1], (b[:, k] / self.degree[k])[:, None])
        x = torch.zeros_like(self.edges[:, 0])  # (B, 1 + n), the wire's far end first
        for k in range(n):
            pull = (self.edges[:, k, : k + 1] * x[:, : k + 1]).sum(-1)
            x[:, k + 1] = (b[:, k] + pull) / self.degree[k]
        return x[:, 1:]


def _sweep(log_p: Tensor, log_r: Tensor, log_c: Tensor, sweeps: int) -> Tensor:
    # log_softmax is one fused kernel where logsumexp and a subtraction are seven.
    for _ in range(sweeps):
        log_p = torch.log_softmax(log_p, -1) + log_r[..., None]
        log_p = torch.log_softmax(log_p, -2) + log_c[..., None, :]
    return log_p


def _log(m: Tensor) -> Tensor:
    return m.log().clamp(min=_LOG_ZERO)


def _error(p: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    tiny = torch.finfo(p.dtype).tiny  # a zero marginal has a zero sum and no error
    row = ((p.sum(-1) - rows).abs() / rows.clamp(min=tiny)).amax(-1)
    col = ((p.sum(-2) - cols).abs() / cols.clamp(min=tiny)).amax(-1)
    return torch.maximum(row, col)


def _flat_marginals(rows: Tensor, cols: Tensor, p: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Float64 marginals of exactly equal totals with one batch dimension, and the batch shape."""
    batch = (rows[..., 0] + cols[..., 0] + p[..., 0, 0]).shape
    r = rows.detach().double().expand(*batch, -1).reshape(-1, rows.shape[-1])
    c = cols.detach().double().expand(*batch, -1).reshape(-1, cols.shape[-1])
    return r, c * (r.sum(-1, keepdim=True) / c.sum(-1, keepdim=True)), batch


def _first_bad(m: Tensor) -> str:
    index = (~((m >= 0) & torch.isfinite(m))).nonzero()[0]
    where = tuple(int(i) for i in index)
    return f"{float(m[where]):.6g} at index {where}"


def _short(x: Tensor) -> str:
    return f"{float(x):.9g}" if x.numel() == 1 else f"totals of shape {tuple(x.shape)}"

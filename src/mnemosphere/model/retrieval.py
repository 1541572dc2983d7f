"""Reading a trained memory: recall by energy descent, sampling, density, novelty, explanation.

Everything follows from the scores a[b,γ] = log c_γ + h[b,γ], where c_γ = p[γ,y] for a class y and
c_γ = Σ_y p[γ,y] for any class. Their log-sum-exp is the log-density of a row, their softmax the
share of each component in it. Scores are taken class by class, so that a class far from a row
loses no digits to the classes near it. Nothing of size (rows × P) is held: rows go by in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.model.kernel import chunks, log_joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere, vmf
from mnemosphere.numerics.bessel import inverse_mean_resultant, log_omega_ratio, mean_resultant

_MAX_RESULTANT = 1 - 1e-9  # of a sampled memory: its draws are then the memory itself


@dataclass(frozen=True)
class Recall:
    """Where the energy descent of each row ended."""

    x: Tensor  # (B, N) unit rows
    energy: Tensor  # (B,) −log P(x|y), or −log P(x), relative to the uniform law on the sphere
    steps: Tensor  # (B,) int64: steps taken
    converged: Tensor  # (B,) bool: the last step moved the row by no more than tol


class Neighbors(NamedTuple):
    """The memories nearest to each row, nearest first."""

    indices: Tensor  # (B, k) int64, rows of w
    overlaps: Tensor  # (B, k) ⟨w^μ, x⟩


class Shares(NamedTuple):
    """The memories that make up most of the density of each row, largest share first."""

    indices: Tensor  # (B, k) int64, rows of w
    shares: Tensor  # (B, k); with the other memories and the uniform component they sum to 1
    overlaps: Tensor  # (B, k) ⟨w^μ, x⟩
    uniform: Tensor  # (B,) share of the uniform component


def recall(
    params: Parameters,
    x: Tensor,
    *,
    class_index: int | Tensor | None = None,
    steps: int = 20,
    known: Tensor | None = None,
    hold_scale: bool = False,
    tol: float = 1e-6,
) -> Recall:
    """Descend the energy E(x) = −log P(x|y) of the effective density on the sphere.

    One step is x ← g/‖g‖ with g = Σ_μ r_μ(x) w^μ, r the shares of the memories. E never increases:
    −E is a log-sum-exp of linear functions of x, so convex, hence above its tangent plane,
    −E(x') ≥ −E(x) + β_eff Σ_μ≥1 r_μ ⟨w^μ, x' − x⟩, and x' maximises ⟨g, x'⟩ over the rows allowed.
    At a fixed point g ∥ x: the gradient has no tangent part.

    With `known`, only rows that agree with x in the known coordinates are allowed, and x' is the
    best of those: pattern completion. A row on the sphere is a pattern without its norm, so the
    known values fix the known coordinates up to one factor a row, which is found along with the
    unknown ones (they start from their values in x, zero if nothing is known of them). With
    `hold_scale` the known coordinates keep their very values, and the unknown ones share what
    these leave of the unit norm.

    x: (B, N) unit rows.
    class_index: column of p, one for all rows or one a row (B,); None descends −log P(x).
    steps: the most steps taken; a row stops once a step moves it by no more than `tol`.
    known: (B, N) bool, True where x is to be kept.
    """
    _check_rows(params, x)
    if steps < 0 or not tol >= 0:
        raise ValueError(f"steps and tol must be >= 0, got steps={steps}, tol={tol}")
    if known is not None and (known.shape != x.shape or known.dtype != torch.bool):
        raise ValueError(
            f"known must be a boolean mask of shape {tuple(x.shape)}, got {known.dtype} of shape "
            f"{tuple(known.shape)}"
        )
    scores = _Scores(params, class_index, x.shape[0])
    out = x.clone()
    energy = x.new_empty(x.shape[0])
    taken = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
    converged = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
    for rows in chunks(x.shape[0], params.n_memories, x.device):
        index = torch.arange(rows.start, rows.stop, device=x.device)  # rows still moving
        for _ in range(steps):
            old = out[index]
            g = scores.pull(old, index)
            if known is None:
                new = _toward(g, old)
            else:
                new = _complete(g, old, x[index], known[index], hold_scale)
            out[index] = new
            taken[index] += 1
            moved = (new - old).norm(dim=1) > tol
            converged[index] = ~moved
            index = index[moved]
            if index.shape[0] == 0:
                break
        energy[rows] = scores.energy(out[rows], rows)
    return Recall(out, energy, taken, converged)


def sample(
    params: Parameters,
    n: int,
    *,
    class_index: int | Tensor | None = None,
    concentration: float | None = None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Draw n rows x (n, N) and their classes y (n,), by ancestral sampling.

    (γ, y) is drawn from p, or γ from p[:, y] for a given class; x is uniform on the sphere for
    γ = 0 and von Mises–Fisher around w^γ, of concentration κ, for γ ≥ 1.

    For ς = 1, κ = β: exact draws from the model's density. For ς < 1 the effective density is no
    law: trained on x, it stands for the law of a *noisy copy* of x, of overlap ς with x, which is
    a von Mises–Fisher mixture of concentration β (Eq. (effective_loss)). What is drawn here is
    the noiseless row: A_N(κ) = A_N(β)/ς. Where β was learned, A_N(β)/ς is the mean overlap of the
    training rows with the memories that answer for them (Eq. (stationarity)), and draws have the
    same. (If A_N(β) ≥ ς, no law is that narrow: draws are the memories themselves.) The law
    proportional to the effective density would give each memory Ω_N(ςβ)/Ω_N(β) of its weight:
    next to nothing in high dimension, where nearly all draws would be uniform noise.
    For the noisy copies, sample `params.replace(varsigma=1.0)`.

    class_index: column of p, one for all draws or one a draw (n,); None draws it too.
    concentration: κ to use instead.
    """
    if n < 0:
        raise ValueError(f"n must be >= 0, got {n}")
    if concentration is None:
        resultant = mean_resultant(params.beta.double(), params.n_features) / params.varsigma
        kappa = inverse_mean_resultant(resultant.clamp_max(_MAX_RESULTANT), params.n_features)
        if params.varsigma == 1.0:
            kappa = params.beta.double()  # the same, without rounding
    elif concentration >= 0:
        kappa = torch.as_tensor(concentration, dtype=torch.float64, device=params.w.device)
    else:
        raise ValueError(f"concentration must be >= 0, got {concentration}")
    p = params.p.double()
    if class_index is None:
        y = _invert(p.sum(0), n, generator)
    else:
        y = _class_column(params, class_index, n)
    component = torch.empty_like(y)
    for column in range(params.n_columns):
        of_class = (y == column).nonzero()[:, 0]
        if of_class.shape[0] > 0:  # a class without weight has no draws
            component[of_class] = _invert(p[:, column], of_class.shape[0], generator)
    uniform = component == 0
    mean = params.w[(component - 1).clamp_min(0)]  # (n, N); any direction for the uniform one
    return vmf.sample(mean, torch.where(uniform, 0.0, kappa), generator=generator), y


def log_marginal(params: Parameters, x: Tensor) -> Tensor:
    """Log of the effective density Σ_y P(x, y) of each row relative to the uniform law, (B,).

    For ς = 1 its exponential has mean 1 over the sphere; for ς < 1 it is not normalised. Subtract
    log Ω_N(0) for the density relative to the surface measure.
    """
    _check_rows(params, x)
    return log_joint(params, x).logsumexp(1)


def novelty(params: Parameters, x: Tensor) -> Tensor:
    """P(γ = 0 | x), the share of the uniform component, (B,) in [0, 1]: near 1, nothing is known.

    It is p^0 exp(−log_marginal), so it ranks rows as the density does.
    """
    return (params.p[0].sum().log() - log_marginal(params, x)).exp().clamp_max(1.0)


def nearest(params: Parameters, x: Tensor, k: int) -> Neighbors:
    """The k memories with the largest overlap ⟨w^μ, x⟩ with each row of x (B, N)."""
    _check_rows(params, x)
    _check_k(params, k)
    indices = torch.empty(x.shape[0], k, dtype=torch.long, device=x.device)
    overlaps = x.new_empty(x.shape[0], k)
    for rows in chunks(x.shape[0], params.n_memories, x.device):
        overlaps[rows], indices[rows] = (x[rows] @ params.w.T).topk(k, dim=1)  # (B, P) -> (B, k)
    return Neighbors(indices, overlaps)


def shares(params: Parameters, x: Tensor, class_index: int | Tensor | None, k: int) -> Shares:
    """The k memories with the largest share of each row's density in a class.

    share[b,μ] = p[μ,y] exp(h[b,μ]) / exp(log_joint[b,y]): how much of the decision for class y
    rests on memory μ. x: (B, N) unit rows; class_index: one column of p, or one a row (B,), or
    None for the density summed over classes.
    """
    _check_rows(params, x)
    _check_k(params, k)
    scores = _Scores(params, class_index, x.shape[0])
    indices = torch.empty(x.shape[0], k, dtype=torch.long, device=x.device)
    values, overlaps = (x.new_empty(x.shape[0], k) for _ in range(2))
    uniform = x.new_empty(x.shape[0])
    for rows in chunks(x.shape[0], params.n_memories, x.device):
        overlap = x[rows] @ params.w.T  # (B, P)
        share = scores.of_overlaps(overlap, rows).softmax(1)  # (B, P+1)
        uniform[rows] = share[:, 0]
        values[rows], indices[rows] = share[:, 1:].topk(k, dim=1)
        overlaps[rows] = overlap.gather(1, indices[rows])
    return Shares(indices, values, overlaps, uniform)


class _Scores:
    """log c_γ + h[b,γ], and what is read from it."""

    def __init__(self, params: Parameters, class_index: int | Tensor | None, n_rows: int) -> None:
        self.w, self.beta_eff = params.w, params.beta_eff
        self.log_ratio = log_omega_ratio(params.beta, params.n_features)
        if class_index is None:
            self.log_c = params.p.sum(1).log()[None]  # (1, P+1)
            self.column = torch.zeros(n_rows, dtype=torch.long, device=params.w.device)
        else:
            self.log_c = params.p.T.log()  # (C+1, P+1)
            self.column = _class_column(params, class_index, n_rows)
        self.log_prior = self.log_c.logsumexp(1)  # (C+1,) of the classes

    def of_overlaps(self, overlap: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores (B, P+1) from the overlaps (B, P) of the rows `rows` of the whole."""
        scores = self.log_c[self.column[rows]]  # (B, P+1), a copy
        scores[:, 1:] += self.beta_eff * overlap - self.log_ratio
        return scores

    def __call__(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Scores (B, P+1) of x (B, N), which are the rows `rows` of the whole."""
        return self.of_overlaps(x @ self.w.T, rows)  # (B, N) (N, P)

    def energy(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """−log P(x|y) of x (B, N) relative to the uniform law, (B,)."""
        return self.log_prior[self.column[rows]] - self(x, rows).logsumexp(1)

    def pull(self, x: Tensor, rows: slice | Tensor) -> Tensor:
        """Σ_μ r_μ w^μ up to a positive factor a row, (B, N); zero where no memory has weight."""
        # Among memories alone: far from all of them, their shares would vanish in rounding.
        share = self(x, rows)[:, 1:].softmax(1).nan_to_num(0.0)  # (B, P)
        return share @ self.w


def _toward(g: Tensor, x: Tensor) -> Tensor:
    """g/‖g‖, rows of zeros left at x."""
    return sphere.project(torch.where(g.abs().amax(1, keepdim=True) > 0, g, x))


def _complete(g: Tensor, x: Tensor, given: Tensor, known: Tensor, hold_scale: bool) -> Tensor:
    """The unit row x' with the largest ⟨g, x'⟩ among those that agree with `given` where known."""
    free = torch.where(known, 0.0, g)
    movable = free.abs().amax(1, keepdim=True) > 0
    toward = _toward(free, x)
    if hold_scale:
        left = torch.where(known, 0.0, x).norm(dim=1, keepdim=True)
        return torch.where(movable, torch.where(known, given, left * toward), x)
    kept = torch.where(known, given, 0.0)
    scale = kept.norm(dim=1, keepdim=True)
    kept = kept / torch.where(scale > 0, scale, 1.0)  # unit rows, or zero where all known are 0
    along = (g * kept).sum(1, keepdim=True)
    best = _toward(along * kept + free, x)
    # Where the known part points away from all memories it would vanish, and with it what is
    # known. Halving it is a step the same way: ⟨g, x'⟩ falls as its size grows.
    half = (x * kept).sum(1, keepdim=True) / 2
    shrunk = torch.where(movable, half * kept + (1 - half.square()).sqrt() * toward, x)
    return torch.where((along > 0) | (scale == 0), best, shrunk)


def _invert(weights: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Indices (n,) drawn ∝ weights (K,) float64, by inversion: any K, on any device."""
    total = weights.cumsum(0)
    u = torch.rand(n, generator=generator, dtype=torch.float64, device=generator.device)
    # Right of equal entries: an index of weight 0 is never drawn.
    drawn = torch.searchsorted(total, u.to(total.device) * total[-1], right=True)
    return drawn.clamp_max(int(weights.nonzero()[-1]))


def _class_column(params: Parameters, class_index: int | Tensor, n_rows: int) -> Tensor:
    """Columns of p (n_rows,) int64, each with some weight."""
    column = torch.as_tensor(class_index, device=params.p.device)
    if column.is_floating_point() or column.dtype == torch.bool or column.ndim > 1:
        raise ValueError(
            f"class_index must be an integer or a vector of them, got {column.dtype} of shape "
            f"{tuple(column.shape)}"
        )
    if column.ndim == 1 and column.shape[0] != n_rows:
        raise ValueError(f"class_index must be one class or {n_rows}, got {column.shape[0]}")
    column = column.long().expand(n_rows)
    bad = (column < 0) | (column >= params.n_columns)
    if bool(bad.any()):
        raise ValueError(
            f"class_index must lie in [0, {params.n_columns}), got {int(column[bad][0])}"
        )
    empty = ~(params.p.sum(0)[column] > 0)
    if bool(empty.any()):
        raise ValueError(f"class {int(column[empty][0])} has no weight: no row can belong to it")
    return column


def _check_rows(params: Parameters, x: Tensor) -> None:
    if x.ndim != 2 or x.shape[1] != params.n_features:
        raise ValueError(
            f"x must be (B, {params.n_features}) to match the memories, got {tuple(x.shape)}"
        )
    if x.dtype != params.w.dtype or x.device != params.w.device:
        raise ValueError(
            f"x is {x.dtype} on {x.device} but the parameters are {params.w.dtype} on "
            f"{params.w.device}: convert one of them"
        )
    sphere.check(x, "x")


def _check_k(params: Parameters, k: int) -> None:
    if not 1 <= k <= params.n_memories:
        raise ValueError(f"k must lie in [1, {params.n_memories}], got {k}")

"""Reading a trained memory: scores, sampling, density, novelty, the pattern behind a row.

The scores a[b,γ] = log c_γ + h[b,γ], where c_γ = p[γ,y] for a class y and c_γ = Σ_y p[γ,y] for any class: their
log-sum-exp is the log-density of a row, their softmax the share of each component in it. They are taken class by
class, so that a class far from a row loses no digits to the classes near it. Nothing of size (rows × P) is held:
rows go by in chunks. Recall has a module of its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mnemosphere.model.gaps import overlaps
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import in_chunks, log_joint, scores
from mnemosphere.numerics import vmf
from mnemosphere.numerics.bessel import inverse_mean_resultant, mean_resultant

_MAX_RESULTANT = 1 - 1e-9  # of a sampled memory: its draws are then the memory itself


def energy(params: Mixture, x: Tensor, column: Tensor | None = None) -> Tensor:
    """−log P(x|y) of x (B, N) relative to the uniform law, (B,)."""
    weights = params.p.sum()[None] if column is None else params.p.sum(0)[column]
    return weights.log() - scores(params, overlaps(params, x), column).logsumexp(1)


def pull(params: Mixture, x: Tensor, column: Tensor | None = None) -> Tensor:
    """Σ_μ r_μ w^μ up to a positive factor per row, (B, N); zero where no memory has weight."""
    # Among memories alone: far from all of them, their shares would vanish in rounding.
    share = scores(params, overlaps(params, x), column)[:, 1:].softmax(1).nan_to_num(0.0)  # (B, P)
    return share @ params.w


def class_column(params: Mixture, class_index: int | Tensor, n_rows: int) -> Tensor:
    """Columns of p (n_rows,) int64; ValueError unless each has some weight."""
    column = torch.as_tensor(class_index, device=params.p.device).long().expand(n_rows)
    empty = ~(params.p.sum(0)[column] > 0)
    if bool(empty.any()):
        raise ValueError(f"class {int(column[empty][0])} has no weight: no row can belong to it")
    return column


def sample(
    params: Mixture, n: int, *, class_index: int | Tensor | None = None, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw n rows x (n, N) and their classes y (n,), by ancestral sampling.

    (γ, y) is drawn from p, or γ from p[:, y] for a given class; x is uniform on the sphere for
    γ = 0 and von Mises–Fisher around w^γ, of concentration κ, for γ ≥ 1.

    For ς = 1, κ = β: exact draws from the model's density. For ς < 1 the effective density is not
    normalized: trained on x, it stands for the law of a *noisy copy* of x, of overlap ς with x,
    which is a von Mises–Fisher mixture of concentration β (Eq. (effective_loss)). What is drawn
    here is the noiseless row: A_N(κ) = A_N(β)/ς. Where β was learned, A_N(β)/ς is the mean overlap
    of the training rows with the memories that answer for them (Eq. (stationarity)), and draws have
    the same. (If A_N(β) ≥ ς, no law is that narrow: draws are the memories themselves.) The law
    proportional to the effective density would give each memory Ω_N(ςβ)/Ω_N(β) of its weight:
    next to nothing in high dimension, where nearly all draws would be uniform noise.
    For the noisy copies, sample `params.replace(varsigma=1.0)`.

    class_index: column of p, one for all draws or one per draw (n,); None draws it too.
    """
    kappa = params.beta.double()
    if params.varsigma < 1.0:
        resultant = mean_resultant(kappa, params.n_features) / params.varsigma
        kappa = inverse_mean_resultant(resultant.clamp_max(_MAX_RESULTANT), params.n_features)
    p = params.p.double()
    if class_index is None:
        y = _invert(p.sum(0), n, generator)
    else:
        y = class_column(params, class_index, n)
    component = torch.empty_like(y)
    for column in range(params.n_columns):
        of_class = (y == column).nonzero()[:, 0]
        if of_class.shape[0] > 0:  # a class without weight has no draws
            component[of_class] = _invert(p[:, column], of_class.shape[0], generator)
    uniform = component == 0
    mean = params.w[(component - 1).clamp_min(0)]  # (n, N); any direction for the uniform one
    return vmf.sample(mean, torch.where(uniform, 0.0, kappa), generator=generator), y


def log_marginal(params: Mixture, x: Tensor) -> Tensor:
    """Log of the effective density Σ_y P(x, y) of each row relative to the uniform law, (B,).

    For ς = 1 its exponential has mean 1 over the sphere; for ς < 1 it is not normalized. Subtract
    log Ω_N(0) for the density relative to the surface measure.
    """
    return log_joint(params, x).logsumexp(1)


def novelty_score(params: Mixture, x: Tensor) -> Tensor:
    """−log Σ_μ≥1 p_μ exp(h_μ), the memories' part of the density relative to the uniform law, (B,).

    The density is that part plus the constant p^0, so rows are ranked as by the density. But that runs
    into p^0 where no memory answers; the score tells rows apart everywhere.
    """

    def read(x: Tensor) -> Tensor:
        return -scores(params, overlaps(params, x))[:, 1:].logsumexp(1)  # (B, P) -> (B,)

    return in_chunks(read, x, params.n_memories)


def largest_novelty_score(params: Mixture) -> float:
    """No row has a larger one: it would lie opposite to all memories."""
    farthest = float(params.slope) + float(params.offset)
    return farthest - math.log(float(params.p[1:].double().sum()))


def expected_memory(params: Mixture, x: Tensor) -> Tensor:
    """Σ_μ P(μ|x) w^μ among memories, (B, N): the pattern behind each row, also in its gaps."""
    return in_chunks(lambda rows: pull(params, rows), x, params.n_memories)


def _invert(weights: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Indices (n,) drawn ∝ weights (K,) float64, by inversion: any K, on any device."""
    total = weights.cumsum(0)
    u = torch.rand(n, generator=generator, dtype=torch.float64, device=generator.device)
    # Right of equal entries: an index of weight 0 is never drawn.
    drawn = torch.searchsorted(total, u.to(total.device) * total[-1], right=True)
    return drawn.clamp_max(int(weights.nonzero()[-1]))

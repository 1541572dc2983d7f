"""The only two passes: `shares` forward, `accumulate` forward and backward.

With the uniform component as memory 0, w^0 = 0,

    h[b,γ] = slope ⟨w^γ, x_b⟩ + level_γ        level_γ = log weight_γ − offset_γ, offset_0 = 0
    e[b,γ] = softmax_γ h                        shares of the components
    log P(x_b, y) = logsumexp_γ h + log Σ_γ e[b,γ] label[γ,y]      up to the constant −log Ω_N(0)

and backward, with s[b,y] = label weights of the rule / Σ_γ e·label,

    r[b,γ] = e[b,γ] Σ_y s[b,y] label[γ,y]       w̄ = rᵀ x       p̄ = (sᵀ e)ᵀ ∘ label

Rows go by in chunks, so nothing of size (rows × memories) is held. On a processor memories come first: sums
over columns are quicker than over neighboring numbers. On a GPU rows do, and with `operands("auto")` all of
size (rows × memories) is bfloat16, with sums in float32; levels then are three more columns of the memories,
since a level that is rounded would weigh its memory wrongly in all rows.

A class whose density lies below that of all components together by more than a factor e^69 in float32,
e^690 in float64, is counted as if it lay just there.

Rows may have gaps, NaN where a feature is not known: see `model.gaps`. Leading axes of mixture and batch
(ς a tensor then) hold several small problems of one shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mnemosphere.base.machine import threads
from mnemosphere.gpu import has_bfloat16, on_gpu
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import Gaps, split
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.numerics.bessel import mean_resultant

# Elements of one (chunk × P) array: fill a GPU, or the cache of each core.
_CHUNK_ELEMENTS, _CHUNK_ON_GPU = 1 << 19, 1 << 29
_HEADROOM = 1e8  # label weights over densities, summed over so many rows, stay finite
_BELOW = 8.0  # in the exponent: what lies so far below the least density is nothing
_ALIGNED = 16  # columns: matrix units are slow on rows of bfloat16 that start between whole reads
_PARTS = 3  # of a level, so that it keeps its digits
_NOTHING = -1e30  # the level of a memory that is only there to align
_CENTERED_BY = 256  # rows
_wanted: ContextVar[str] = ContextVar("operands", default="float32")


@contextmanager
def operands(precision: str) -> Iterator[None]:
    """Inside, passes in float32 take bfloat16 operands if this is "auto" and a GPU has units for it."""
    token = _wanted.set(precision)
    try:
        yield
    finally:
        _wanted.reset(token)


def least_density(dtype: torch.dtype) -> float:
    """What the share of a class counts as at least."""
    return _HEADROOM * torch.finfo(dtype).tiny


def chunks(n_rows: int, n_memories: int, device: torch.device) -> Iterator[slice]:
    """Slices that cut n_rows into chunks of bounded size, all about as large."""
    elements = _CHUNK_ON_GPU if on_gpu(device) else _CHUNK_ELEMENTS * torch.get_num_threads()
    n_chunks = max(1, -(-n_rows // max(64, elements // max(n_memories, 1))))
    step = max(1, -(-n_rows // n_chunks))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def in_chunks(read: Callable[[Tensor], Tensor], x: Tensor, n_memories: int) -> Tensor:
    """What is read of rows x (B, N), chunk by chunk."""
    cuts = list(chunks(len(x), n_memories, x.device))
    return read(x) if len(cuts) < 2 else torch.cat([read(x[rows]) for rows in cuts])


def shares(m: Mixture, x: Tensor) -> tuple[Tensor, Tensor]:
    """(shares of the components (B, P+1), log of the density of the rows (B,)).

    Plain operations that autograd can go through. Holds all rows at once: see `log_joint` for many.
    """
    return Pass(m).shares(x)


def log_joint(m: Mixture, x: Tensor) -> Tensor:
    """Log Σ_γ p[γ,y] exp(h[b,γ]), shape (B, C+1)."""
    return Pass(m).log_joint(x)


def scores(m: Mixture, overlap: Tensor, column: Tensor | None = None) -> Tensor:
    """h[b,γ] (B, P+1) from overlaps ⟨w^μ, x_b⟩ (B, P); column (B,): of one class for each row."""
    h = m.slope[..., None, None] * overlap - m.offset[..., None, None]
    level = m.weights.log()[..., None, :] if column is None else m.p.T.log()[column]
    return torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1).add_(level)


@dataclass(frozen=True)
class Statistics:
    """Sums over rows, from which gradient, fixed-point step and stationarity are all read."""

    w_bar: Tensor  # (P, N)      Σ_b r[b,μ] x_b
    p_bar: Tensor  # (P+1, C+1)  Σ_b q[b,y] · share of γ given (b, y)
    overlap: Tensor  # (P,)      Σ_b r[b,μ] ⟨w^μ, x_b⟩
    loss: Tensor  # () float64: summed loss
    count: Tensor  # () float64: summed sample weight

    @property
    def mass(self) -> Tensor:
        """Responsibility of each component, (P+1,)."""
        return self.p_bar.sum(1)

    @property
    def mean_loss(self) -> Tensor:
        """Loss per unit of sample weight."""
        return self.loss / self.count

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def gradient_w(self, m: Mixture) -> Tensor:
        """∂w^μ = −ςβ w̄^μ, (P, N)."""
        return self.w_bar * self.per_row(m)

    def gradient_beta(self, m: Mixture, resultant: float | None = None) -> Tensor:
        """∂β = A_N(β) Σ mass − ς Σ overlap, (); resultant: A_N(β), or 0 where mass cancels."""
        push = -m.varsigma * self.overlap.sum(-1)
        if resultant != 0:
            drag = mean_resultant(m.beta, m.n_features) if resultant is None else resultant
            push = push + drag * self.p_bar[..., 1:, :].sum((-2, -1))
        return push / self.count.to(m.w.dtype)

    def per_row(self, m: Mixture) -> Tensor:
        """−ςβ per unit of sample weight, (1, 1): what w̄ is multiplied by in its gradient."""
        return (-m.slope / self.count.to(m.w.dtype))[..., None, None]


class _Rows(NamedTuple):
    """Of one chunk, beside its exponents."""

    x: Tensor  # (B, N) as products take them, 0 in their gaps
    gaps: Gaps | None = None
    expected: Tensor | None = None  # (R, P) c: the memories expect c·w in the gaps


class Pass:
    """What every chunk of a pass shares: memories times slope, levels, soft labels."""

    def __init__(self, m: Mixture, *, like: Tensor | None = None, whole: bool = False) -> None:
        """whole: no row has gaps; like: rows that exponents are centered by, as those of bfloat16 are."""
        self.m, self.whole, self.low, level = m, whole, like is not None, m.weights.log()
        # Without a uniform component the offset is one of the row, and P(y|x) asks for no Bessel function.
        blind = on_gpu(m.p) or torch.compiler.is_exporting()  # to values
        self.common = not blind and not bool(m.p[..., 0, :].any())
        if not self.common:
            level = torch.cat([level[..., :1], level[..., 1:] - m.offset[..., None]], -1)
        # Large levels that differ little keep their digits, and so do exponents near the largest of a row.
        if like is None:
            self.top = level[..., 1:].amax(-1)[..., None, None]
        else:
            top = (m.slope * split(like)[0] @ m.w.mT + level[1:]).amax(-1)
            self.top = torch.maximum(top, level[0]).mean()[None, None]
        self.level = level[..., None] - self.top  # (P+1, 1)
        self.w = pad(m.slope[..., None, None] * m.w, (0, 0, 1, 0))  # (P+1, N)
        self.label = m.labels
        if self.low:
            parts = _parts(self.level[:, 0])
            n, (p, c) = self.w.shape[1], self.label.shape
            more, rest = -p % _ALIGNED, -(n + len(parts)) % _ALIGNED
            w = torch.cat([self.w, *(part[:, None] for part in parts)], 1)
            self.w = pad(w, (0, rest, 0, more))
            self.w[p:, n] = _NOTHING
            self.w = self.w.to(torch.bfloat16)
            self.label = pad(self.label, (0, -c % _ALIGNED, 0, more)).to(torch.bfloat16)
        self.label_t = self.label.mT.contiguous()

    @property
    def base(self) -> Tensor:
        """What exponents are less than log(p exp h) by."""
        return self.top - self.m.offset[..., None, None] if self.common else self.top

    def exponents(self, x: Tensor) -> tuple[Tensor, _Rows]:
        """(H (P+1, B), rows) of one chunk."""
        x, gaps = (x, None) if self.whole else split(x)
        if self.low:
            wide = x.new_zeros(len(x), self.w.shape[1], dtype=torch.bfloat16)
            wide[:, : x.shape[1]] = x
            wide[:, x.shape[1] : x.shape[1] + _PARTS] = 1
            x = wide
        h = (x @ self.w.mT).mT if on_gpu(x) else self.w @ x.mT
        if not self.low:
            h = h.add_(self.level)
        if gaps is None:
            return h, _Rows(x)
        lift, expected = gaps.exponent_lift(self.m)
        h[..., 1 : lift.shape[-1] + 1, :].index_add_(-1, gaps.rows, lift.mT.to(h.dtype))
        return h, _Rows(x, gaps, expected)

    def shares(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """As the function `shares` says."""
        h, _ = self.exponents(x)
        return h.softmax(-2).mT, (h.logsumexp(-2, keepdim=True) + self.base)[..., 0, :]

    def log_joint(self, x: Tensor) -> Tensor:
        """Log Σ_γ p[γ,y] exp(h[b,γ]), shape (B, C+1)."""

        def read(x: Tensor) -> Tensor:
            share, total = self.shares(x)
            classes = (share @ self.label).clamp_min(least_density(x.dtype))
            return classes.log() + total[..., None]

        return read(x) if x.ndim > 2 else in_chunks(read, x, self.m.n_memories)

    def relative(self, h: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
        """(e, log scale (1, B) if asked for) with e·exp(scale) = exp(h); e may take the place of h."""
        if on_gpu(h):
            rows = h.mT  # as they lie in memory
            e = rows.softmax(-1)

            def scale() -> Tensor:
                largest, where = e.max(-1, keepdim=True)
                log = largest.to(self.m.p.dtype).log()
                return (rows.gather(-1, where) - log).mT + self.base

            return e.mT, scale
        top = h.amax(-2, keepdim=True)
        h.sub_(top)  # first: large ones that differ little keep their digits
        # Subnormal numbers take processors fifty times as long.
        low = math.log(least_density(h.dtype)) - _BELOW
        return h.clamp_min_(low).exp_(), lambda: top + self.base

    def label_weights(self, part: Batch, rule: LabelRule) -> tuple[Tensor, Tensor, Tensor, _Rows]:
        """(e (P+1, B), s (C+1, B), loss (B,), rows) of a chunk, with its sample weights."""
        h, rows = self.exponents(part.x)
        e, scale = self.relative(h)
        if on_gpu(e):  # as targets lie in memory
            share = _product(e.mT, self.label)[..., : self.m.n_columns].contiguous().mT
        else:
            share = self.label_t @ e
        if self.low:  # sums of rounded numbers are off by a little
            share = share / share.sum(-2, keepdim=True)
        share = share.clamp_min_(least_density(self.m.p.dtype))
        loss, s = rule.of_shares(share, scale, part.targets.mT)
        if part.sample_weight is not None:
            s, loss = s * part.sample_weight[..., None, :], loss * part.sample_weight
        if self.low:
            s = pad(s.to(e.dtype).mT, (0, self.label.shape[-1] - s.shape[-2])).mT
        return e, s, loss, rows

    def responsibilities(self, e: Tensor, s: Tensor) -> Tensor:
        """R (P+1, B), in place of e."""
        return e.mul_((s.mT @ self.label_t).mT if on_gpu(s) else self.label @ s)


def memory_shares(m: Mixture, batch: Batch, rule: LabelRule) -> Iterator[tuple[slice, Tensor]]:
    """(rows of the chunk, responsibilities r (rows, P) of the memories, as in `accumulate`)."""
    run = Pass(m)
    for rows in chunks(batch.n_rows, m.n_memories, batch.x.device):
        e, s, *_ = run.label_weights(batch.take(rows), rule)
        yield rows, run.responsibilities(e, s)[1:].mT


def evaluate(m: Mixture, batch: Batch, rule: LabelRule) -> float:
    """Mean loss over the rows, forward half of the pass only."""
    loss, _ = rule(log_joint(m, batch.x).mT, batch.targets.mT)
    return batch.mean(loss)


def accumulate(m: Mixture, batch: Batch, rule: LabelRule) -> Statistics:
    """One pass over the rows: sufficient statistics for the label weights that `rule` gives."""
    low = m.w.dtype == torch.float32 and m.w.ndim == 2 and _wanted.get() == "auto"
    n_rows, n, memories = batch.n_rows, m.n_features, slice(1, m.n_memories + 1)
    low = low and n_rows > 0 and has_bfloat16(m.w.device)
    like = batch.x[:: -(-n_rows // _CENTERED_BY)] if low else None
    run = Pass(m, like=like, whole=not batch.has_gaps)
    w_bar = m.w.new_zeros(*run.w.shape)
    ratio = torch.zeros_like(run.label, dtype=m.p.dtype)  # p̄/label
    loss = torch.zeros_like(m.beta, dtype=torch.float64)
    with threads(n_rows * m.w.numel()):
        cuts = chunks(n_rows, m.n_memories, m.w.device)
        for part in [batch] if m.w.ndim > 2 else map(batch.take, cuts):
            e, s, losses, rows = run.label_weights(part, rule)
            loss += losses.sum(-1, dtype=torch.float64)
            _add_product(ratio, e, s.mT)
            r = run.responsibilities(e, s)
            _add_product(w_bar, r, rows.x)
            if rows.gaps is not None and rows.expected is not None:
                share = r[..., memories, :].index_select(-1, rows.gaps.rows) * rows.expected.mT
                w_bar[..., memories, :n].addcmul_(m.w, share.to(m.w.dtype) @ rows.gaps.unknown)
            del e, r, rows  # before the next chunk takes its place
    w_bar = w_bar[..., memories, :n].contiguous()
    if batch.sample_weight is None:
        count = torch.full_like(loss, float(n_rows))
    else:
        count = batch.sample_weight.sum(-1, dtype=torch.float64)
    p_bar = ratio[..., : m.n_memories + 1, : m.n_columns] * m.labels
    # Σ_b r⟨w, x_b⟩ = ⟨w, Σ_b r x_b⟩
    return Statistics(w_bar, p_bar, torch.linalg.vecdot(w_bar, m.w), loss, count)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The product; sums of bfloat16 operands are float32."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.dtype == torch.bfloat16 else a @ b


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the product to `total`; matrices, or as many matrices each."""
    if a.dtype == torch.bfloat16:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        (total.addmm_ if total.ndim == 2 else total.baddbmm_)(a, b)


def _parts(level: Tensor) -> list[Tensor]:
    """Levels (P+1,) as sums of numbers that bfloat16 holds."""
    found = []
    for _ in range(_PARTS):
        found.append(level.to(torch.bfloat16).float())
        level = torch.where(level.isfinite(), level - found[-1], 0.0)
    return found

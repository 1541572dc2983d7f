"""The single pass: log_joint forward, sufficient statistics backward.

With h[b,μ] = ςβ⟨w^μ, x_b⟩ − log(Ω_N(β)/Ω_N(0)) and h[b,0] = 0 (of `Votes`, slope and offset of their own),

    log_joint[b,y] = log Σ_γ p[γ,y] exp(h[b,γ])            up to the constant −log Ω_N(0)
    r[b,γ]         = Σ_y q[b,y] p[γ,y] exp(h[b,γ]) / exp(log_joint[b,y])

Nothing of size (samples × P) is ever held: rows go by in chunks, and per chunk two large matrix
products (x wᵀ and rᵀ x) carry nearly all of the arithmetic.

A class whose density lies below that of the densest component by more than a factor e^69 in
float32, e^690 in float64, is counted as if it lay just there.

Rows may have gaps, NaN where a feature is not known: see `model.gaps`.

A matrix unit takes bfloat16 operands several times as fast as float32 ones. Where that is wanted, x wᵀ, rᵀ x and r w
take them, with sums in float32; all else, and the memories themselves, stay as they are.

A leading axis of parameters (ς a tensor then) and batch holds several small problems of one shape,
which take one call in place of many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from mnemosphere.base.machine import core_cache
from mnemosphere.gpu import has_bfloat16, on_gpu
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import Gaps, lift_of, split
from mnemosphere.model.objectives import ClassesAlone, LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.votes import Mixture
from mnemosphere.numerics.bessel import mean_resultant

# Elements of one (chunk × P) array: as many as fill a GPU; on a processor per thread, so that it
# stays in the cache of its core where that is large; in a small one none of enough rows would.
_CHUNK_ELEMENTS, _CHUNK_ON_GPU = 1 << 20, 1 << 25
_LARGE_CACHE = 1 << 21  # bytes
_FEW_MEMORIES = 256  # on a processor; up to so many, products are faster with p transposed


_HEADROOM = 1e8  # label weights over densities, summed over so many rows, stay finite
_BELOW = 8.0  # in the exponent: what lies so far below the least density is nothing
_ALIGNED = 16  # columns: matrix units are slow on rows of bfloat16 that start between whole reads
_wanted: ContextVar[str] = ContextVar("operands", default="float32")


@contextmanager
def operands(precision: str) -> Iterator[None]:
    """Inside, passes in float32 take bfloat16 operands if this is "auto" and a GPU has units for it."""
    token = _wanted.set(precision)
    try:
        yield
    finally:
        _wanted.reset(token)


def narrowed(w: Tensor) -> bool:
    """Whether products with these memories are to take bfloat16 operands."""
    fit = w.dtype == torch.float32 and w.ndim == 2
    return fit and _wanted.get() == "auto" and has_bfloat16(w.device)


def narrow(x: Tensor) -> Tensor:
    """The matrix in bfloat16, with columns of zeros behind its own."""
    n_rows, n_columns = x.shape
    rounded = x.new_empty(n_rows, n_columns + -n_columns % _ALIGNED, dtype=torch.bfloat16)
    rounded[:, :n_columns] = x
    rounded[:, n_columns:] = 0
    return rounded


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product; sums of bfloat16 operands are float32."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.dtype == torch.bfloat16 else a @ b


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add the product to `total`; matrices, or as many matrices each."""
    if a.dtype == torch.bfloat16:
        torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    else:
        (total.addmm_ if total.ndim == 2 else total.baddbmm_)(a, b)


def least_density(dtype: torch.dtype) -> float:
    """What a density counts as at least, relative to that of the densest component."""
    return _HEADROOM * torch.finfo(dtype).tiny


def exponentials(h: Tensor, top: Tensor) -> Tensor:
    """exp(h − top), in place of h; top: at least the largest of each row, or column.

    What lies far below the least density counts as much as if it lay there: x86 processors take
    fifty times as long for the subnormal numbers that it would be.
    """
    h.sub_(top)  # first: large ones that differ little keep their digits
    return h.clamp_min_(math.log(least_density(h.dtype)) - _BELOW).exp_()


def chunk_rows(n_memories: int, device: torch.device) -> int:
    """How many rows one chunk takes."""
    elements = _CHUNK_ON_GPU
    if not on_gpu(device):
        elements = _CHUNK_ELEMENTS * torch.get_num_threads()
        elements //= 2 if core_cache() >= _LARGE_CACHE else 1
    return max(64, elements // max(n_memories, 1))


def chunks(n_rows: int, n_memories: int, device: torch.device) -> Iterator[slice]:
    """Slices that cut n_rows into chunks of bounded size, all about as large."""
    n_chunks = max(1, -(-n_rows // chunk_rows(n_memories, device)))
    step = max(1, -(-n_rows // n_chunks))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def in_chunks(read: Callable[[Tensor], Tensor], x: Tensor, n_memories: int) -> Tensor:
    """What is read of rows x (B, N), chunk by chunk."""
    cuts = list(chunks(len(x), n_memories, x.device))
    return read(x) if len(cuts) < 2 else torch.cat([read(x[rows]) for rows in cuts])


@dataclass(frozen=True)
class Statistics:
    """Sums over rows, from which gradient, fixed-point step and stationarity are all read."""

    w_bar: Tensor  # (P, N)      Σ_b r[b,μ] x_b
    p_bar: Tensor  # (P+1, C+1)  Σ_b q[b,y] · share of γ given (b, y)
    overlap: Tensor  # (P,)      Σ_b r[b,μ] ⟨w^μ, x_b⟩
    loss: Tensor  # () float64: summed loss
    count: Tensor  # () float64: summed sample weight

    @classmethod
    def none(cls, params: Parameters) -> Self:
        """The sums over no rows."""
        zero = torch.zeros((), dtype=torch.float64, device=params.w.device)
        w_bar, p_bar = torch.zeros_like(params.w), torch.zeros_like(params.p)
        return cls(w_bar, p_bar, w_bar[:, 0], zero, zero)

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

    def gradient_w(self, params: Parameters) -> Tensor:
        """∂w^μ = −ςβ w̄^μ, (P, N)."""
        return self.w_bar * self.per_row(params)

    def gradient_beta(self, params: Parameters, resultant: float | None = None) -> Tensor:
        """∂β = A_N(β) Σ mass − ς Σ overlap, (); resultant: A_N(β), or 0 where mass cancels."""
        push = -params.varsigma * self.overlap.sum(-1)
        if resultant != 0:
            drag = (
                mean_resultant(params.beta, params.n_features) if resultant is None else resultant
            )
            push = push + drag * self.p_bar[..., 1:, :].sum((-2, -1))
        return push / self.count.to(params.w.dtype)

    def per_row(self, params: Parameters) -> Tensor:
        """−ςβ per unit of sample weight, (1, 1): what w̄ is multiplied by in its gradient."""
        return (-params.beta_eff / self.count.to(params.w.dtype))[..., None, None]


class _Forward(NamedTuple):
    """One chunk: exp(h − shift) for the memories and the uniform component, and log_joint."""

    e: Tensor  # (B, P)
    e0: Tensor | None  # (B,)
    joint: Tensor  # (B, C+1), scaled by exp(−shift)
    log_joint: Tensor  # (B, C+1)
    operand: Tensor  # (B, N) the rows as the large products take them, 0 in their gaps
    gaps: Gaps | None
    expected: Tensor | None  # (R, P) c: the memories expect c·w in the gaps


class Pass:
    """What every chunk of a pass shares, computed once."""

    memories_first: ClassVar[bool] = False

    def __init__(self, params: Mixture) -> None:
        on_device = on_gpu(params.w)
        self.params, self.w, self.p = params, params.w, params.p[..., 1:, :]
        self.prepare()
        self.narrow = narrowed(params.w)
        self.floor = least_density(self.p.dtype)
        w = params.slope[..., None, None] * params.w
        w = narrow(w) if self.narrow else w
        if not self.memories_first:
            w = w.mT if on_device else w.mT.contiguous()  # else slow
        self.scaled = w  # (P, N) or (N, P)
        # Products with p and its transpose depend on their strides, up to a factor of four.
        few = self.p.shape[-2] <= _FEW_MEMORIES
        self.p_t = self.p.mT.contiguous() if on_device or few else self.p.mT  # (C+1, P)
        self.p = self.p_t.mT if on_device else self.p

    def prepare(self) -> None:
        """The part that the uniform component and the densities of memories have."""
        self.log_ratio = self.params.offset
        self.p0 = self.params.p[..., 0, :]
        # Without weight the uniform component must not be the largest of a row.
        self.uniform = self.log_ratio.masked_fill(self.p0.amax(-1) <= 0, -torch.inf)

    def exponents(self, x: Tensor) -> tuple[Tensor, Tensor, Gaps | None, Tensor | None]:
        """(slope·⟨w, x⟩ (B, P), the rows as products take them, their gaps, c as in `_Forward`)."""
        x, gaps = split(x)
        operand, expected = narrow(x) if self.narrow else x, None
        first = self.memories_first  # then (P, B)
        e = product(self.scaled, operand.mT) if first else product(operand, self.scaled)
        if gaps is not None:
            lift, expected = gaps.over(self.params)
            e.index_add_(-1 if first else -2, gaps.rows, lift.mT if first else lift)
        return e, operand, gaps, expected

    def forward(self, x: Tensor) -> _Forward:
        """One chunk of rows."""
        e, operand, gaps, expected = self.exponents(x)
        # The largest exponent of the row, the uniform component's 0 included if it has weight.
        top = torch.maximum(e.amax(-1), self.uniform[..., None])
        e = exponentials(e, top[..., None])
        h0 = self.log_ratio[..., None] - top
        e0 = (self.uniform[..., None] - top).exp()
        joint = e0[..., None] * self.p0[..., None, :]  # (B, C+1)
        add_product(joint, e, self.p)
        joint.clamp_min_(self.floor)
        log_joint = joint.log() - h0[..., None]
        return _Forward(e, e0, joint, log_joint, operand, gaps, expected)

    def log_joint(self, x: Tensor) -> Tensor:
        """Log Σ_γ p[γ,y] exp(h[b,γ]), shape (B, C+1)."""
        if self.w.ndim > 2:
            return self.forward(x).log_joint
        return in_chunks(lambda rows: self.forward(rows).log_joint, x, len(self.w))

    def weigh(self, f: _Forward, part: Batch, rule: LabelRule) -> tuple[Tensor, Tensor]:
        """(summed loss (), label weights over `joint` (B, C+1)) of the rows of a chunk."""
        loss, weights = rule(f.log_joint, part.targets)
        s = weights / f.joint
        if part.sample_weight is not None:
            s = s * part.sample_weight[..., None]
            loss = loss * part.sample_weight
        return loss.sum(-1, dtype=torch.float64), s

    def backward(self, f: _Forward, s: Tensor, ratio: Tensor, w_bar: Tensor) -> None:
        """Add to p_bar/p (C+1, P) and w̄ (P, N); e is done with afterwards."""
        add_product(ratio, s.mT, f.e)  # (C+1, P): twice as fast this way round
        self.pull(self.rounded(f.e.mul_(product(s, self.p_t))).mT, f, w_bar)

    def rounded(self, r: Tensor) -> Tensor:
        """Responsibilities as the large products take them."""
        return narrow(r)[:, : r.shape[1]] if self.narrow else r

    def pull(self, r: Tensor, f: _Forward, w_bar: Tensor) -> None:
        """Add to w̄ (P, N) what responsibilities r (P, B) make of the rows."""
        rows = f.operand[:, : w_bar.shape[-1]] if self.narrow else f.operand
        add_product(w_bar, r, rows)  # (P, N)
        if f.gaps is not None and f.expected is not None:
            share = r.index_select(-1, f.gaps.rows) * f.expected.mT
            w_bar.addcmul_(self.w, share @ f.gaps.unknown)


class _PassOfClasses(Pass):
    """The same for `ClassesAlone`: shares of memories are a softmax, and densities cancel."""

    def prepare(self) -> None:
        """Class weights become the logs of the weights of memories, and their soft labels."""
        weight = self.p.sum(-1, keepdim=True)
        self.p = self.p / weight.clamp_min(torch.finfo(self.p.dtype).tiny)
        self.log_weight = weight.log()  # (P, 1)

    def forward(self, x: Tensor) -> _Forward:
        """One chunk of rows; `log_joint` is log P(y|x)."""
        e, operand, gaps, expected = self.exponents(x)
        e = e.add_(self.log_weight.mT).softmax(-1)
        joint = (e @ self.p).clamp_min_(self.floor)
        return _Forward(e, None, joint, joint.log(), operand, gaps, expected)

    def weigh(self, f: _Forward, part: Batch, rule: LabelRule) -> tuple[Tensor, Tensor]:
        """What the rule says, in fewer operations: `joint` is P(y|x)."""
        targets, weight = part.targets, part.sample_weight
        s = (targets / f.joint).sub_(targets.sum(-1, keepdim=True))
        loss = -torch.linalg.vecdot(targets, f.log_joint)
        if weight is not None:
            s, loss = s.mul_(weight[..., None]), loss.mul_(weight)
        return loss.sum(-1, dtype=torch.float64), s


class _MemoriesFirst(_PassOfClasses):
    """The same on a processor, with e (P, B), `joint` and s (C+1, B).

    A softmax over few neighboring numbers takes ten times as long there as one over columns.
    """

    memories_first: ClassVar[bool] = True

    def forward(self, x: Tensor) -> _Forward:
        """One chunk of rows."""
        e, operand, gaps, expected = self.exponents(x)
        e = e.add_(self.log_weight).softmax(-2)
        joint = (self.p_t @ e).clamp_min_(self.floor)
        return _Forward(e, None, joint, joint.log(), operand, gaps, expected)

    def weigh(self, f: _Forward, part: Batch, rule: LabelRule) -> tuple[Tensor, Tensor]:
        """What the rule says."""
        targets, weight = part.targets.mT.contiguous(), part.sample_weight
        s = (targets / f.joint).sub_(targets.sum(-2, keepdim=True))
        loss = targets * f.log_joint
        if weight is not None:
            s, loss = s.mul_(weight[..., None, :]), loss.mul_(weight[..., None, :])
        return -loss.sum((-2, -1), dtype=torch.float64), s

    def backward(self, f: _Forward, s: Tensor, ratio: Tensor, w_bar: Tensor) -> None:
        """Add to p_bar/p (C+1, P) and w̄ (P, N); e is done with afterwards."""
        add_product(ratio, s, f.e.mT)
        self.pull(self.rounded(f.e.mul_(product(self.p, s))), f, w_bar)


def log_joint(params: Mixture, x: Tensor) -> Tensor:
    """Log Σ_γ p[γ,y] exp(h[b,γ]), shape (B, C+1)."""
    return Pass(params).log_joint(x)


def exponents(params: Mixture, overlap: Tensor) -> Tensor:
    """h[b,γ] (B, P+1) from overlaps ⟨w^μ, x_b⟩ (B, P), in plain operations."""
    h = params.slope[..., None, None] * overlap - params.offset[..., None, None]
    return torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)


def log_joint_differentiable(params: Mixture, x: Tensor, *, gaps: bool = False) -> Tensor:
    """The same as `log_joint`, out of plain operations that autograd can go through.

    Holds a (B, P) graph: for gradients with respect to a few inputs, and as an oracle. gaps: NaN is
    a feature that is not known.
    """
    lift: Tensor | None = None
    if gaps:
        unknown = x.isnan()
        x = torch.where(unknown, 0.0, x)
        room = torch.where(unknown.any(1, keepdim=True), 1 - x.square().sum(1, keepdim=True), 0.0)
        lift = lift_of(unknown.to(x), room.clamp_min(0.0), params)[0]
    h = exponents(params, x @ params.w.T)
    if lift is not None:
        h = h + torch.nn.functional.pad(lift, (1, 0))
    uniform = h[:, :1].masked_fill(params.p[0].amax() <= 0, -torch.inf)
    h = torch.cat([uniform, h[:, 1:]], 1)
    shares = h.softmax(1) @ params.p  # (B, C+1)
    return shares.clamp_min(least_density(h.dtype)).log() + h.logsumexp(1, keepdim=True)


def class_shares(
    params: Parameters, batch: Batch, rule: LabelRule
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """One pass, forward half: (rows of the chunk, e (rows, P), s (rows, C+1)).

    e[b,μ]·s[b,y]·p[μ,y] is the part of row b and class y that memory μ answers for, with the label
    weights that `rule` gives, times the sample weights.
    """
    run = Pass(params)
    for rows in chunks(batch.n_rows, params.n_memories, batch.x.device):
        part = batch.take(rows)
        f = run.forward(part.x)
        yield rows, f.e, run.weigh(f, part, rule)[1]


def memory_shares(
    params: Parameters, batch: Batch, rule: LabelRule
) -> Iterator[tuple[slice, Tensor]]:
    """(rows of the chunk, responsibilities r (rows, P) of the memories, as in `accumulate`)."""
    for rows, e, s in class_shares(params, batch, rule):
        yield rows, e.mul_(s @ params.p[1:].T)


def evaluate(params: Parameters, batch: Batch, rule: LabelRule) -> float:
    """Mean loss over the rows, forward half of the pass only."""
    loss, _ = rule(log_joint(params, batch.x), batch.targets)
    return batch.mean(loss)


def accumulate(params: Parameters, batch: Batch, rule: LabelRule) -> Statistics:
    """One pass over the rows: sufficient statistics for the label weights that `rule` gives."""
    kind = Pass
    if isinstance(rule, ClassesAlone):
        kind = _PassOfClasses if on_gpu(params.w) else _MemoriesFirst
    run = kind(params)
    w_bar = torch.zeros_like(params.w)
    # p_bar / p of the uniform component and of the memories; with strides that a GPU takes
    ratio0 = params.p.new_zeros(*run.p.mT.shape[:-1], 1)
    ratio = params.p.new_zeros(run.p.mT.shape)
    loss = torch.zeros_like(params.beta, dtype=torch.float64)
    n_rows = batch.x.shape[-2]
    cuts = chunks(n_rows, params.n_memories, params.w.device)
    for part in [batch] if params.w.ndim > 2 else map(batch.take, cuts):
        f = run.forward(part.x)
        part_loss, s = run.weigh(f, part, rule)
        loss += part_loss
        if f.e0 is not None:
            add_product(ratio0, s.mT, f.e0[..., None])  # (C+1, B) (B, 1)
        run.backward(f, s, ratio, w_bar)
        del f  # before the next chunk takes its place
    if batch.sample_weight is None:
        count = torch.full_like(loss, float(n_rows))
    else:
        count = batch.sample_weight.sum(-1, dtype=torch.float64)
    p_bar = torch.cat([ratio0.mT * params.p[..., :1, :], ratio.mT * run.p], -2)
    # Σ_b r⟨w, x_b⟩ = ⟨w, Σ_b r x_b⟩
    overlap = torch.linalg.vecdot(w_bar, params.w)
    return Statistics(w_bar=w_bar, p_bar=p_bar, overlap=overlap, loss=loss, count=count)

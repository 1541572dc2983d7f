"""A pass on a GPU: two large products and what lies between them, as kernels that Triton builds.

With l[b,μ] = ςβ⟨x_b, w^μ⟩ the forward half is attention with the class weights as values, and the
backward half the gradient of its keys:

    joint[b,y] = Σ_γ p[γ,y] exp(h[b,γ] − top[b])
    r[b,μ]     = exp(h[b,μ] − top[b]) Σ_y s[b,y] p[μ,y],   ratio[y,μ] = Σ_b s[b,y] exp(…)

Of (rows × P) there is e = exp(l − the largest l of row and block of memories) in bfloat16, written
where the product is taken, and r, which takes its place. If no kernel can be built here, the caller
does it by plain operations.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["FusedPass", "Half", "Labels", "narrow", "usable"]

_MAX_COLUMNS = 64
_LEAST = 16  # of a side of a block: no smaller product there is
_BLOCK = 128  # memories of a block
_OPERAND_BYTES = 262_000_000  # of memories, rows and e in 16 bits
# rows of a block, features of a step between, warps, stages
_SCORE, _BACKWARD = (128, 64, 8, 3), (32, 4, 3)
_TILES, _JOINTS = 8, 256  # blocks of memories that are put together at a time, numbers of each
_NARROW = 64  # a side of a block of numbers that are rounded
# Numbers of 16 bits that a matrix unit reads at once, and that a block of a long product takes
_ALIGNED, _LONG = 16, 64
_built = _unusable = False  # whether kernels have run here; whether they cannot be built


class Labels(NamedTuple):
    """What `JointConditional` makes of a chunk of rows."""

    s: Tensor  # (B, C+1) label weights over joint
    losses: Tensor  # (blocks,) float64, summed over rows
    uniform: Tensor  # (blocks, C+1) Σ s·e0


class Half(NamedTuple):
    """The forward half of a chunk of rows."""

    x: Tensor  # (B, N) in bfloat16
    e: Tensor  # (B, P) in bfloat16
    tops: Tensor  # (blocks of memories, B) the largest exponents that e is relative to, as top
    top: Tensor  # (B,) the largest exponent of the row, in units of log 2
    e0: Tensor  # (B,) exp(−top) of the uniform component; this and what follows: see `labels`
    joint: Tensor  # (B, C+1), scaled by exp(−top)
    log_joint: Tensor  # (B, C+1)
    labels: Labels | None  # if the rule was taken at once: then the three above mean nothing


def usable(n_columns: int) -> bool:
    """Whether so many classes fit a block, and kernels can be built as far as is known."""
    return n_columns <= _MAX_COLUMNS and not _unusable


def narrow(x: Tensor, factor: Tensor | None = None, rows: int | None = None) -> Tensor:
    """The matrix (times the factor) in bfloat16, with columns of zeros up to a whole read.

    rows: how many there are to be; copies of the last one are added.
    """
    n_rows, n_features = x.shape
    made = x.new_empty(rows or n_rows, _padded(n_features), dtype=torch.bfloat16)
    made[:, n_features:] = 0
    own = made[:n_rows, :n_features]
    if factor is None:
        own.copy_(x)
    else:
        torch.mul(x, factor, out=own)
    made[n_rows:] = made[n_rows - 1]
    return made


class FusedPass:
    """What every chunk of one pass shares.

    w (P, N), beta_eff ςβ; p (P, C+1), p0 (C+1,); log_ratio: log Ω_N(β)/Ω_N(0); uniform: the same
    if the uniform component has weight, else −∞.
    """

    def __init__(
        self, w: Tensor, beta_eff: Tensor, p: Tensor, p0: Tensor, log_ratio: Tensor,
        uniform: Tensor, floor: float,
    ) -> None:  # fmt: skip
        self.n_memories, self.n_cols = p.shape
        self.block_c = max(_LEAST, 1 << (self.n_cols - 1).bit_length())
        more = -self.n_memories % _BLOCK
        # Copies of the last memory fill its block up: never the largest exponent of a row alone.
        self.w = narrow(w, beta_eff, self.n_memories + more)
        self.p = torch.nn.functional.pad(p, (0, self.block_c - self.n_cols, 0, more))
        self.p0, self.floor = p0.contiguous(), floor
        self.log_ratio, self.uniform = log_ratio, uniform

    def rows_per_chunk(self) -> int:
        """How many rows are held at once: all operands in 16 bits take so many bytes."""
        n_memories, width = self.w.shape
        room = _OPERAND_BYTES // 2 - self.w.numel()
        rows = room // (n_memories + width)
        return max(_BLOCK, rows - rows % _BLOCK)

    def forward(
        self,
        x: Tensor,
        targets: Tensor | None = None,
        sample_weight: Tensor | None = None,
        blend: float | None = None,
    ) -> Half | None:
        """Rows (B, N); with labels, `JointConditional(blend)` is taken at once.

        None if no kernel can be built here, now or at an earlier call.
        """
        global _built, _unusable
        if _unusable:
            return None
        try:
            half = self._forward(x, targets, sample_weight, blend)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # no Triton, no compiler, a GPU too old: anything at all
            if _built:
                raise
            _unusable = True
            warnings.warn(f"passes on this GPU are slower without Triton: {error}", stacklevel=2)
            return None
        _built = True
        return half

    def _forward(
        self,
        x: Tensor,
        targets: Tensor | None,
        sample_weight: Tensor | None,
        blend: float | None,
    ) -> Half:
        x = _rounded(x)
        e, tops, joints = self._score(x)
        n_rows, per_block = len(x), _JOINTS // self.block_c
        blocks = math.ceil(n_rows / per_block)
        top = self.p.new_empty(n_rows)
        rest, labels, stride = (top, top, top), None, 0
        if targets is None or blend is None:
            joint, log_joint = (self.p.new_empty(n_rows, self.n_cols) for _ in range(2))
            rest = torch.empty_like(top), joint, log_joint
        else:
            targets = targets if targets.stride(1) == 1 else targets.contiguous()
            stride = targets.stride(0)
            labels = Labels(
                self.p.new_empty(n_rows, self.n_cols),
                self.p.new_empty(blocks, dtype=torch.float64),
                self.p.new_empty(blocks, self.n_cols),
            )
        # What is not written to, or not read, is any array of the right kind.
        _kernels().joint_kernel[(blocks,)](
            tops, joints, self.p0, self.log_ratio, self.uniform, top, *rest,
            top if labels is None else targets,
            top if sample_weight is None else sample_weight.contiguous(),
            *(labels or (top, top.new_empty(0, dtype=torch.float64), top)),
            n_rows, self.n_cols, len(tops), stride, float(blend or 0),
            int(labels is not None), int(sample_weight is not None),
            FLOOR=self.floor, BLOCK_T=_TILES, BLOCK_B=per_block, BLOCK_C=self.block_c,
        )  # fmt: skip
        return Half(x, e, tops, top, *rest, labels)

    def _score(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The product, and at once e, its exponents and the parts of joint."""
        (n_rows, width), n_memories = x.shape, len(self.w)
        rows, features, warps, stages = _SCORE
        blocks, tiles = math.ceil(n_rows / rows), n_memories // _BLOCK
        e = x.new_empty(n_rows, n_memories)
        tops = self.p.new_empty(tiles, n_rows)
        joints = self.p.new_empty(tiles, n_rows, self.n_cols)
        _kernels().score_kernel[(blocks * tiles,)](
            x, self.w, self.p, e, tops, joints, n_rows, n_memories, width, self.n_cols,
            int(n_rows < n_memories), BLOCK_B=rows, BLOCK_P=_BLOCK, BLOCK_C=self.block_c,
            BLOCK_K=features, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return e, tops, joints

    def backward(self, f: Half, s: Tensor, ratio: Tensor, w_bar: Tensor) -> None:
        """Add to ratio (C+1, P) and w̄ (P, N) for s (B, C+1)."""
        n_rows, n_memories = f.e.shape
        rows, warps, stages = _BACKWARD
        tiles, blocks = n_memories // _BLOCK, math.ceil(n_rows / rows)
        # As many parts of the rows as keep a GPU busy, of two blocks or more
        wanted = min(_programs(f.x.device) // tiles, blocks // 2)
        each = math.ceil(blocks / max(1, wanted))
        parts = self.p.new_empty(math.ceil(blocks / each), *self.p.shape)
        _kernels().backward_kernel[(tiles, len(parts))](
            f.e, f.tops, self.p, s.contiguous(), f.top, parts, n_rows, n_memories, self.n_cols,
            each * rows, BLOCK_B=rows, BLOCK_P=_BLOCK, BLOCK_C=self.block_c,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        ratio += parts.sum(0)[: self.n_memories, : self.n_cols].mT
        r, x = f.e[:, : self.n_memories], f.x[:, : w_bar.shape[1]]
        torch.addmm(w_bar, r.mT, x, out_dtype=torch.float32, out=w_bar)


def _rounded(x: Tensor) -> Tensor:
    """`narrow` of rows as one kernel, which writes them once."""
    x = x if x.stride(1) == 1 else x.contiguous()
    (n_rows, n_features), width = x.shape, _padded(x.shape[1])
    out = x.new_empty(n_rows, width, dtype=torch.bfloat16)
    _kernels().narrow_kernel[math.ceil(n_rows / _NARROW), math.ceil(width / _NARROW)](
        x, out, n_rows, n_features, x.stride(0), width, BLOCK_B=_NARROW, BLOCK_N=_NARROW
    )
    return out


def _padded(width: int) -> int:
    """So many columns have whole reads of bfloat16."""
    return width + -width % (_LONG if width > 2 * _LONG else _ALIGNED)


@functools.cache
def _programs(device: torch.device) -> int:
    """Blocks of threads that keep a GPU busy."""
    return 8 * int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def _kernels() -> Any:
    from mnemosphere.gpu import pass_kernels

    return pass_kernels

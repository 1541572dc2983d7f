"""What lies between the two large products of a pass, as GPU kernels, where Triton builds them.

With l[b,μ] = ςβ⟨x_b, w^μ⟩ the forward half is attention with the class weights as values, and the
backward half the gradient of its keys:

    joint[b,y] = Σ_γ p[γ,y] exp(h[b,γ] − top[b])
    r[b,μ]     = exp(h[b,μ] − top[b]) Σ_y s[b,y] p[μ,y],   ratio[y,μ] = Σ_b s[b,y] exp(…)

Of (rows × P) there is e = exp(l − the largest l of row and block of memories) in bfloat16, written
where the product is taken, and r, which takes its place; or, where rows are short, neither: blocks
of l are made where they are needed, twice, and r goes into w̄ at once.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.products import add_product, padded
from mnemosphere.model.streams import join, side_stream
from mnemosphere.numerics.blocks import power_of_two

__all__ = ["FusedPass", "Half", "Labels", "overlaps", "usable"]

_MAX_COLUMNS = 64
_FEW_PARTS = 16
_LEAST = 16  # of a side of a block: no smaller product there is
_SHORT = 128  # features, up to which l is made anew rather than kept
_BLOCK = 128  # memories that all blocks divide
_OPERAND_BYTES = 262_000_000  # of memories, rows and e in 16 bits, with long rows
# (rows, memories) of a block, warps, stages
_SCORE = (128, 128, 64, 8, 3)  # features of a step between
_FORWARD = (64, 64, 4, 3)
_BACKWARD = (32, 128, 4, 3)


class Labels(NamedTuple):
    """What `JointConditional` makes of a chunk of rows."""

    s: Tensor  # (B, C+1) label weights over joint
    losses: Tensor  # (blocks,) float64, summed over rows
    uniform: Tensor  # (blocks, C+1) Σ s·e0


class Half(NamedTuple):
    """The forward half of a chunk of rows."""

    x: Tensor  # (B, N) in bfloat16
    e: Tensor | None  # (B, P) in bfloat16; None where it is made anew
    tops: Tensor  # (blocks of memories, B) the largest exponents that e is relative to, as top
    top: Tensor  # (B,) the largest exponent of the row, in units of log 2
    e0: Tensor  # (B,) exp(−top) of the uniform component; this and what follows: see `labels`
    joint: Tensor  # (B, C+1), scaled by exp(−top)
    log_joint: Tensor  # (B, C+1)
    labels: Labels | None  # where the rule was taken at once: then the three above are empty


def usable(n_columns: int) -> bool:
    """Whether so many classes fit a block, and kernels can be built."""
    return n_columns <= _MAX_COLUMNS and _works()


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
        self.block_c = power_of_two(self.n_cols, _LEAST)
        rows = self.n_memories + -self.n_memories % _BLOCK
        # Copies of the last memory fill its block up: never the largest exponent of a row alone.
        self.w = self._copy(w, padded(w.shape[1]), rows, beta_eff, repeat=True)
        self.p = self._copy(p, self.block_c, rows, dtype=p.dtype)
        self.p0, self.floor = p0.contiguous(), floor
        self.log_ratio, self.uniform = log_ratio, uniform
        self.holds_nothing = w.shape[1] <= _SHORT  # of (rows × P)

    def narrow(self, x: Tensor) -> Tensor:
        """Rows (B, N) in bfloat16, with columns of zeros up to a whole read."""
        return self._copy(x, padded(x.shape[1]), x.shape[0])

    def _copy(
        self, x: Tensor, width: int, rows: int, factor: Tensor | None = None,
        dtype: torch.dtype = torch.bfloat16, repeat: bool = False,
    ) -> Tensor:  # fmt: skip
        """A larger matrix (rows, width): x times the factor, then zeros, or its last row again."""
        x = x if x.stride(1) == 1 else x.contiguous()
        out = x.new_empty(rows, width, dtype=dtype)
        columns = min(64, power_of_two(width, _LEAST))
        grid = math.ceil(rows / 64), math.ceil(width / columns)
        _kernels().narrow_kernel[grid](
            x, x if factor is None else factor, out, *x.shape, x.stride(0), rows, width,
            SCALED=factor is not None, REPEAT=repeat, BLOCK_B=64, BLOCK_N=columns,
        )  # fmt: skip
        return out

    def rows_per_chunk(self) -> int:
        """How many rows are held at once: all operands in 16 bits take so many bytes."""
        n_memories, width = self.w.shape
        room = _OPERAND_BYTES // 2 - self.w.numel()
        rows = room // (n_memories + width)
        return max(_BLOCK, rows - rows % _BLOCK)

    def forward(
        self, x: Tensor, *, labeled: Batch | None = None, blend: float | None = None
    ) -> Half:
        """Rows (B, N) in bfloat16.

        labeled: the same rows with labels, which `JointConditional(blend)` is to take at once.
        """
        e, tops, joints = (None, *self._sweep(x)) if self.holds_nothing else self._score(x)
        join()  # the ratio is there
        n_rows, parts = x.shape[0], len(tops)
        # Few parts one by one, many side by side: then of few rows.
        block_s, block_b = (1, 16) if parts <= _FEW_PARTS else (64, max(1, 32 // self.block_c))
        blocks = math.ceil(n_rows / block_b)
        top = self.p.new_empty(n_rows)
        rest = top, top, top
        labels, of_rows, stride, weight = None, self.p, 0, None
        if labeled is None or blend is None:
            joint, log_joint = (self.p.new_empty(n_rows, self.n_cols) for _ in range(2))
            rest = torch.empty_like(top), joint, log_joint
        else:
            of_rows, weight = labeled.targets, labeled.sample_weight
            of_rows = of_rows if of_rows.stride(1) == 1 else of_rows.contiguous()
            stride = of_rows.stride(0)
            labels = Labels(
                self.p.new_empty(n_rows, self.n_cols),
                self.p.new_empty(blocks, dtype=torch.float64),
                self.p.new_empty(blocks, self.n_cols),
            )
        _kernels().joint_kernel[(blocks,)](
            tops, joints, self.p0, self.log_ratio, self.uniform, top, *rest,
            of_rows, top if weight is None else weight.contiguous(), *(labels or rest),
            n_rows, self.n_cols, parts, stride, blend or 0.0,
            RULED=labels is not None, WEIGHTED=weight is not None, FLOOR=self.floor,
            BLOCK_S=block_s, BLOCK_B=block_b, BLOCK_C=self.block_c,
        )  # fmt: skip
        if labels is not None:
            rest = top[:0], top[:0], top[:0]
        return Half(x, e, tops, top, *rest, labels)

    def _score(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The product, and at once e, its exponents and the parts of joint."""
        (n_rows, n_features), n_memories = x.shape, len(self.w)
        rows, memories, features, warps, stages = _SCORE
        blocks, tiles = math.ceil(n_rows / rows), n_memories // memories
        e = x.new_empty(n_rows, n_memories)
        tops = self.p.new_empty(tiles, n_rows)
        joints = self.p.new_empty(tiles, n_rows, self.n_cols)
        _kernels().score_kernel[(blocks * tiles,)](
            x, self.w, self.p, e, tops, joints, n_rows, n_memories, n_features, self.n_cols,
            ROWS_FIRST=n_rows < n_memories, BLOCK_B=rows, BLOCK_P=memories, BLOCK_C=self.block_c,
            BLOCK_K=features, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return e, tops, joints

    def _sweep(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Exponents and parts of joint of short rows; few rows share their memories out."""
        join()
        (n_rows, n_features), n_memories = x.shape, len(self.w)
        rows, memories, warps, stages = _FORWARD
        blocks, tiles = math.ceil(n_rows / rows), n_memories // memories
        splits, each = _parts(tiles, _programs(x.device.index or 0) // blocks)
        tops = self.p.new_empty(splits, n_rows)
        joints = self.p.new_empty(splits, n_rows, self.n_cols)
        _kernels().forward_kernel[(blocks, splits)](
            x, self.w, self.p, self.uniform, tops, joints,
            n_rows, n_memories, n_features, self.n_cols, each * memories,
            BLOCK_B=rows, BLOCK_P=memories, BLOCK_C=self.block_c,
            BLOCK_N=power_of_two(n_features, _LEAST), num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return tops, joints

    def backward(self, f: Half, s: Tensor, ratio: Tensor, w_bar: Tensor) -> None:
        """Add to ratio (C+1, P) and w̄ (P, N) for s (B, C+1).

        x may have columns of zeros beyond those of w̄.
        """
        (n_rows, n_features), made = f.x.shape, f.e is None
        rows, memories, warps, stages = _BACKWARD
        tiles, blocks = len(self.w) // memories, math.ceil(n_rows / rows)
        splits, each = _parts(blocks, _programs(f.x.device.index or 0) // tiles)
        parts = self.p.new_empty(splits, *self.p.shape)
        pulls = self.p.new_empty(splits, *self.w.shape) if made else parts
        _kernels().backward_kernel[(tiles, splits)](
            f.x, self.w, f.x if f.e is None else f.e, f.tops, self.p, s.contiguous(), f.top,
            pulls, parts, n_rows, len(self.w), self.n_cols, n_features, each * rows,
            len(self.w) // len(f.tops), MADE=made,
            BLOCK_B=rows, BLOCK_P=memories, BLOCK_C=self.block_c,
            BLOCK_N=power_of_two(n_features, _LEAST) if made else _LEAST,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        with side_stream(parts, lane=2):  # beside the product
            ratio += parts.sum(0)[: self.n_memories, : self.n_cols].mT
        if f.e is None:
            w_bar += pulls.sum(0)[: self.n_memories, : w_bar.shape[1]]
        else:  # r is in the place of e
            add_product(w_bar, f.e[:, : self.n_memories].mT, f.x[:, : w_bar.shape[1]])


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    """Inner products of the rows (P,), without an array of their size."""
    out = a.new_empty(len(a))
    _kernels().overlap_kernel[(len(a),)](a, b.contiguous(), out, a.shape[1], BLOCK_N=1024)
    return out


def _parts(blocks: int, wanted: int) -> tuple[int, int]:
    """(how many parts, blocks of one): about as many as wanted, of two blocks or more."""
    each = math.ceil(blocks / max(1, min(wanted, blocks // 2)))
    return math.ceil(blocks / each), each


@functools.cache
def _programs(index: int) -> int:
    """Blocks of threads that keep a GPU busy."""
    return 8 * int(torch.cuda.get_device_properties(index).multi_processor_count)


@functools.cache
def _works() -> bool:
    """Whether kernels can be built and run; tried once, on the smallest problem."""
    try:
        x = torch.ones(2, 8, device="cuda")
        p = torch.ones(2, 2, device="cuda")
        made = FusedPass(x, p[0, 0], p, p[0], p[0, 0], p[0, 0], 1e-30)
        f = made.forward(made.narrow(x))
        return bool(torch.isfinite(f.log_joint).all())
    except Exception:  # no Triton, no compiler, a GPU too old: plain operations do it
        return False


@functools.cache
def _kernels() -> Any:
    from mnemosphere.model import pass_kernels

    return pass_kernels

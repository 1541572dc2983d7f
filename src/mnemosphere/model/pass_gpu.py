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

from mnemosphere.model.products import add_product
from mnemosphere.model.streams import join

__all__ = ["FusedPass", "Half", "usable"]

_MAX_COLUMNS = 64
_ROWS = 16  # of a block that puts parts together
_SHORT = 128  # features, up to which l is made anew rather than kept
_BLOCK = 128  # memories that all blocks divide
# (rows, memories) of a block, warps, stages
_SCORE = (128, 128, 64, 8, 3)  # features of a step between
_FORWARD = (64, 64, 4, 3)
_BACKWARD = {False: (32, 128, 4, 3), True: (32, 128, 4, 3)}  # e read or made


class Half(NamedTuple):
    """The forward half of a chunk of rows."""

    x: Tensor  # (B, N) in bfloat16
    e: Tensor | None  # (B, P) in bfloat16; None where it is made anew
    tops: Tensor  # (blocks of memories, B) the largest exponents that e is relative to, as top
    top: Tensor  # (B,) the largest exponent of the row, in units of log 2
    e0: Tensor  # (B,) exp(−top) of the uniform component
    joint: Tensor  # (B, C+1), scaled by exp(−top)
    log_joint: Tensor  # (B, C+1)


def usable(n_columns: int) -> bool:
    """Whether so many classes fit a block, and kernels can be built."""
    return n_columns <= _MAX_COLUMNS and _works()


class FusedPass:
    """What every chunk of one pass shares.

    w (P, N) in bfloat16, times ςβ; p (P, C+1), p0 (C+1,); log_ratio: log Ω_N(β)/Ω_N(0).
    """

    def __init__(self, w: Tensor, p: Tensor, p0: Tensor, log_ratio: Tensor, floor: float) -> None:
        self.n_memories, self.n_cols = p.shape
        self.block_c = _power_of_two(self.n_cols)
        missing = -self.n_memories % _BLOCK
        self.w = torch.nn.functional.pad(w, (0, 0, 0, missing)) if missing else w.contiguous()
        self.p = torch.nn.functional.pad(p, (0, self.block_c - self.n_cols, 0, missing))
        self.p0, self.log_ratio, self.floor = p0.contiguous(), log_ratio, floor
        self.holds_nothing = w.shape[1] <= _SHORT  # of (rows × P)

    def forward(self, x: Tensor, *, keep: bool) -> Half:
        """Rows (B, N) in bfloat16; keep: e is kept though rows be short."""
        kept = keep or not self.holds_nothing
        e, tops, joints = self._score(x) if kept else (None, *self._sweep(x))
        join()  # the ratio is there
        n_rows = x.shape[0]
        top, e0 = (self.p.new_empty(n_rows) for _ in range(2))
        joint, log_joint = (self.p.new_empty(n_rows, self.n_cols) for _ in range(2))
        _kernels().joint_kernel[(math.ceil(n_rows / _ROWS),)](
            tops, joints, self.p0, self.log_ratio, top, e0, joint, log_joint,
            n_rows, self.n_cols, len(tops), FLOOR=self.floor, BLOCK_B=_ROWS, BLOCK_C=self.block_c,
        )  # fmt: skip
        return Half(x, e, tops, top, e0, joint, log_joint)

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
            x, self.w, self.p, self.log_ratio, tops, joints,
            n_rows, n_memories, n_features, self.n_cols, each * memories,
            BLOCK_B=rows, BLOCK_P=memories, BLOCK_C=self.block_c,
            BLOCK_N=_power_of_two(n_features), num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return tops, joints

    def backward(self, f: Half, s: Tensor, ratio: Tensor, w_bar: Tensor) -> Tensor | None:
        """Add to ratio (C+1, P) and w̄ (P, N) for s (B, C+1); r (B, P) where e was kept.

        x may have columns of zeros beyond those of w̄.
        """
        (n_rows, n_features), made = f.x.shape, f.e is None
        rows, memories, warps, stages = _BACKWARD[made]
        tiles, blocks = len(self.w) // memories, math.ceil(n_rows / rows)
        splits, each = _parts(blocks, _programs(f.x.device.index or 0) // tiles)
        parts = self.p.new_empty(splits, *self.p.shape)
        pulls = self.p.new_empty(splits, *self.w.shape) if made else parts
        _kernels().backward_kernel[(tiles, splits)](
            f.x, self.w, f.x if f.e is None else f.e, f.tops, self.p, s.contiguous(), f.top,
            pulls, parts, n_rows, len(self.w), self.n_cols, n_features, each * rows,
            len(self.w) // len(f.tops), MADE=made,
            BLOCK_B=rows, BLOCK_P=memories, BLOCK_C=self.block_c,
            BLOCK_N=_power_of_two(n_features) if made else 16, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        ratio += parts.sum(0)[: self.n_memories, : self.n_cols].mT
        if f.e is None:
            w_bar += pulls.sum(0)[: self.n_memories, : w_bar.shape[1]]
            return None
        r = f.e[:, : self.n_memories]
        add_product(w_bar, r.mT, f.x[:, : w_bar.shape[1]])
        return r


def _parts(blocks: int, wanted: int) -> tuple[int, int]:
    """(how many parts, blocks of one): about as many as wanted, of two blocks or more."""
    each = math.ceil(blocks / max(1, min(wanted, blocks // 2)))
    return math.ceil(blocks / each), each


def _power_of_two(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())  # no smaller product there is


@functools.cache
def _programs(index: int) -> int:
    """Blocks of threads that keep a GPU busy."""
    return 8 * int(torch.cuda.get_device_properties(index).multi_processor_count)


@functools.cache
def _works() -> bool:
    """Whether kernels can be built and run; tried once, on the smallest problem."""
    try:
        x = torch.ones(2, 8, dtype=torch.bfloat16, device="cuda")
        p = torch.ones(2, 2, device="cuda")
        f = FusedPass(x, p, p[0], p[0, 0], 1e-30).forward(x, keep=False)
        return bool(torch.isfinite(f.log_joint).all())
    except Exception:  # no Triton, no compiler, a GPU too old: plain operations do it
        return False


@functools.cache
def _kernels() -> Any:
    from mnemosphere.model import pass_kernels

    return pass_kernels

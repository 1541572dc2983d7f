"""Rows with gaps: features that are not known, NaN in a row on the sphere.

A row x = (x_K, x_U) has a known part, of norm s, and m unknown coordinates, of which only the norm
√(1−s²) is taken as known. What a memory says about the row is then the mean of exp(β⟨w, x_U⟩) over
all directions of x_U, which is a Bessel function again:

    ςβ⟨w_K, x_K⟩ + log(Ω_m(κ)/Ω_m(0)),    κ = β √(1−s²) ‖w_U‖.

ς stands at what is known alone: of a row of which nothing is known the exponent is the offset
log(Ω_N(β)/Ω_N(0)), so every component keeps its weight. The row that the memory expects is x_K with
√(1−s²) A_m(κ)/ς w_U/‖w_U‖ in its gaps. So the pass stays exact, with that row in place of x_b in the
sums: gradients are gradients, and the fixed point never raises the loss, since the exponent is convex
in β·w. For A_m stands Amos' bound

    A_m(κ) ≈ κ/(a + √(κ² + b²)),    a = (m−1)/2, b = (m+1)/2,

which is right at both ends, and whose integral is as simple: no Bessel function for each row and
memory. It is off by at most 0.08/m, and log(Ω_m(κ)/Ω_m(0)) by 0.31, 0.16 for m > 20: nearly the
same for all memories.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.gpu import is_recording
from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import sphere


class Gaps(NamedTuple):
    """The unknown part of those rows that have one; R of them."""

    rows: Tensor  # (R,) which they are; of several problems those with gaps in any
    unknown: Tensor  # (R, N) 1 where not known, else 0
    room: Tensor  # (R, 1) √(1−s²): the norm that is left to it

    def exponent_lift(self, params: Mixture, times: float = 1.0) -> tuple[Tensor, Tensor]:
        """(what gaps add to exponents, c with which memory μ expects c·w^μ in them), (R, P).

        times: the slope of params is multiplied by it.
        """
        slope = (times * params.slope)[..., None, None]
        beta = (times * params.slope / params.varsigma)[..., None, None]
        m, room = self.unknown.sum(-1, keepdim=True), self.room.square()
        a, b = ((m - 1) / 2).clamp_min(0), (m + 1) / 2
        length = (self.unknown @ params.w.square().mT).clamp_min(0)  # ‖w_U‖²
        root = (length * room * beta**2 + b.square()).sqrt()
        lift = root - b - a * ((a + root) / (a + b)).log()
        return lift, beta**2 * room / (slope * (a + root))


def has_gaps(x: Tensor) -> bool:
    """Whether a feature of some row is not known."""
    # Steps on rows with gaps are not recorded.
    if is_recording(x):
        return False
    return bool(x.sum().isnan())


def split(x: Tensor) -> tuple[Tensor, Gaps | None]:
    """(rows with 0 in their gaps, the gaps; None where there are none)."""
    exported = torch.compiler.is_exporting()  # then no row can be looked at
    if not exported and not has_gaps(x):
        return x, None
    unknown = x.isnan()
    some = unknown.any(-1)
    rows = torch.arange(x.shape[-2], device=x.device)
    if not exported:
        rows = some.reshape(-1, x.shape[-2]).any(0).nonzero()[:, 0]
    x, unknown = torch.where(unknown, 0.0, x), unknown.index_select(-2, rows)
    room = (1 - x.index_select(-2, rows).square().sum(-1, keepdim=True)).clamp_min(0).sqrt()
    # A row without gaps has no room but rounding.
    room = torch.where(unknown.any(-1, keepdim=True), room, 0.0)
    return x, Gaps(rows, unknown.to(x), room)


def overlaps(params: Mixture, x: Tensor) -> Tensor:
    """⟨w^μ, x_b⟩ (B, P); of a row with gaps what has the same effect."""
    known, gaps = split(x)
    overlap = known @ params.w.T
    if gaps is None:
        return overlap
    return overlap.index_add(0, gaps.rows, gaps.exponent_lift(params)[0] / params.slope)


def fill_neutrally(x: Tensor) -> Tensor:
    """Unit rows with 0 in the gaps: for what needs rows more than it needs them right."""
    known, gaps = split(x)
    return x if gaps is None else sphere.project(known)

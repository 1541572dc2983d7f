"""Noise on the rows of a batch, which stays on the sphere: the regularizer of Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model.gaps import split

_BLOCK = 1024  # rows with a seed of their own
_TABLE = 1 << 18  # places in a table of normal numbers


@dataclass(frozen=True)
class SphereNoise:
    """Turn each row by one angle into a direction drawn uniformly: x → (x + σu)/√(1+σ²).

    u is uniform among the unit vectors orthogonal to x, so σ is the length of the noise relative
    to the row, and every draw has the overlap 1/√(1+σ²) with its row. Given its angle, a point of
    the von Mises–Fisher law around x looks just like that, and in many dimensions its angle hardly
    varies: the noise is that law at the concentration κ with A_N(κ) = 1/√(1+σ²).
    """

    length: float  # σ

    def __post_init__(self) -> None:
        if not 0 < self.length < math.inf:
            raise ValueError(f"the noise's length must be finite and > 0, got {self.length}")

    @property
    def overlap(self) -> float:
        """⟨x, noisy x⟩, the same for every draw."""
        return 1 / math.hypot(1.0, self.length)

    def seed(self, generator: torch.Generator) -> int:
        """All that a batch draws from the run's generator."""
        return int(torch.randint(2**62, (), generator=generator, device=generator.device))

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return noisy rows (B, N) of the unit rows x; draws depend on `generator` alone."""
        return self.apply(x, self.generators(x, self.seed(generator)))

    def generators(self, x: Tensor, seed: int) -> list[torch.Generator]:
        """One per block of rows, where the rows are: a GPU does not wait for the host to draw.

        seed: what `seed` has drawn.
        """
        n_rows = x.shape[:-1].numel()
        return [
            torch.Generator(x.device).manual_seed(seed + block)
            for block in range(-(-n_rows // _BLOCK))
        ]

    def apply(self, x: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """The same with the generators of these rows."""
        if x.ndim > 2:
            return self.apply(x.flatten(0, 1), generators).view_as(x)
        drawn = [x.new_empty(0, x.shape[1])]
        for block, there in enumerate(generators):
            drawn.append(_normal(min(_BLOCK, len(x) - block * _BLOCK), x, there))
        g = torch.cat(drawn) if len(drawn) > 2 else drawn[-1]
        # A GPU is not asked whether there are gaps: that would wait for it.
        known, gaps = (x.nan_to_num(0.0), x) if on_gpu(x) else split(x)
        u = torch.addcmul(g, torch.linalg.vecdot(g, known)[:, None], known, value=-1)
        norm = torch.linalg.vector_norm(u, dim=1, keepdim=True)
        across = self.length * self.overlap / norm.clamp_min(torch.finfo(x.dtype).tiny)
        noisy = u.mul_(across).add_(known, alpha=self.overlap)
        return noisy if gaps is None else torch.where(x.isnan(), x, noisy)


def _normal(n: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers (n, N); on a processor windows at random places of one table of them.

    To draw them anew would take longer there than the pass that they are for.
    """
    features = like.shape[1]
    if like.device.type != "cpu":
        return torch.randn(n, features, generator=generator, dtype=like.dtype, device=like.device)
    places = torch.randint(_TABLE, (n,), generator=generator)
    return _table(features, like.dtype).unfold(0, features, 1).index_select(0, places)


@lru_cache(maxsize=4)
def _table(features: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(_TABLE + features, generator=torch.Generator().manual_seed(0), dtype=dtype)

"""Random numbers and rows that several tests draw."""

from __future__ import annotations

import torch

from mnemosphere.numerics import vmf


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit_rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, d, dtype=torch.float64, generator=generator(seed))
    return x / x.norm(dim=1, keepdim=True)


def blobs(sizes: tuple[int, ...] = (41, 23, 31), n: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around orthogonal directions, and the one of each."""
    cluster = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    centers = torch.eye(n, dtype=torch.float64)[: len(sizes)]
    kappa = torch.tensor(60.0, dtype=torch.float64)
    return vmf.sample(centers[cluster], kappa, generator=generator()), cluster

"""Random numbers and rows that several tests draw."""

import math

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


def circles(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two circles of latitude on the globe, half a radian apart: two classes."""
    g = generator(seed)
    y = torch.arange(rows) % 2
    longitude = 2 * math.pi * torch.rand(rows, generator=g, dtype=torch.float64)
    spread = 0.05 * torch.randn(rows, generator=g, dtype=torch.float64)
    latitude = torch.where(y == 0, 0.25, -0.25) + spread
    x = torch.stack([longitude.cos() * latitude.cos(), longitude.sin() * latitude.cos(),
                     latitude.sin()], 1)  # fmt: skip
    return x, y

"""Random numbers of the tests of the theory."""

from __future__ import annotations

import torch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit_rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, d, dtype=torch.float64, generator=generator(seed))
    return x / x.norm(dim=1, keepdim=True)

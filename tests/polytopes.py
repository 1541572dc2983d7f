"""Marginals and matrices for the tests of the polytope."""

import numpy as np
import torch

R, C = 7, 5


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def marginals(
    seed: int, n_rows: int = R, n_cols: int = C, spread: float = 0.7
) -> tuple[torch.Tensor, torch.Tensor]:
    g = rng(seed)
    rows, cols = np.exp(spread * g.normal(size=n_rows)), np.exp(spread * g.normal(size=n_cols))
    return torch.tensor(rows / rows.sum()), torch.tensor(cols / cols.sum())


def matrix(seed: int, *shape: int, decades: float = 1.0) -> torch.Tensor:
    """Positive entries, uniform over so many decades."""
    return torch.tensor(10.0 ** (-decades * rng(seed).uniform(size=shape or (R, C))))


def assert_feasible(
    p: torch.Tensor, rows: torch.Tensor, cols: torch.Tensor, rtol: float = 1e-11
) -> None:
    assert bool((p >= 0).all())
    np.testing.assert_allclose(p.sum(-1), rows.expand(p.shape[:-1]), rtol=rtol, atol=1e-300)
    cols = cols.expand(*p.shape[:-2], p.shape[-1])
    np.testing.assert_allclose(p.sum(-2), cols, rtol=rtol, atol=1e-300)

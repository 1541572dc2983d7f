"""The von Mises-Fisher law, exp(κ⟨mean, x⟩)/Ω_N(κ) on the unit sphere: its normalizer and log-density."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from mnemosphere.numerics import bessel, sphere


def log_omega(beta: ArrayLike | Tensor, n_features: int) -> Tensor:
    """Compute log Ω_N(β), where Ω_N(β) is the integral of exp(βx₁) over the unit sphere in N dimensions.

    Ω_N(β) = (2π)^(N/2) I_{N/2−1}(β) / β^(N/2−1). The error is a rounding error for every β and N: nothing
    overflows. At β = 0 it is the log of the area of the sphere.

    Parameters
    ----------
    beta : float or array-like
        Concentration β >= 0, finite.
    n_features : int
        Dimension N >= 2.

    Returns
    -------
    tensor
        Of the shape of `beta`, in float64.

    Examples
    --------
    >>> round(float(mn.theory.log_omega(0.0, 3).exp() / torch.pi), 6)
    4.0
    >>> round(float(mn.theory.log_omega(50.0, 784)), 2)
    -1495.65
    """
    if n_features < 2:
        raise ValueError(f"n_features must be >= 2, got {n_features}")
    ratio = bessel.log_omega_ratio(torch.as_tensor(beta, dtype=torch.float64), n_features)
    return ratio + bessel.log_area(n_features)


def log_density(
    x: ArrayLike | Tensor, mean: ArrayLike | Tensor, kappa: ArrayLike | Tensor
) -> Tensor:
    """Compute the log-density κ⟨mean, x⟩ − log Ω_N(κ) of the von Mises-Fisher law on the unit sphere.

    Parameters
    ----------
    x : array-like of shape (..., N)
        Unit vectors.
    mean : array-like of shape (..., N)
        Mean direction: a unit vector, or one for each row of x.
    kappa : float or array-like of shape (...)
        Concentration κ >= 0, finite.

    Returns
    -------
    tensor of shape (...)
        In float64; its exponential integrates to 1 over the sphere.

    Examples
    --------
    >>> mean = torch.tensor([0.0, 0.0, 1.0])
    >>> round(float(mn.theory.log_density(mean, mean, 2.0)), 4)
    -1.1262
    """
    kappa = torch.as_tensor(kappa, dtype=torch.float64)
    x, mean = (_unit(rows, name) for rows, name in ((x, "x"), (mean, "mean")))
    return kappa * (x * mean).sum(-1) - log_omega(kappa, x.shape[-1])


def _unit(rows: ArrayLike | Tensor, name: str) -> Tensor:
    """In float64; ValueError unless they are unit vectors to the rounding of their own precision."""
    x = rows if isinstance(rows, Tensor) else torch.from_numpy(np.asarray(rows, np.float64))
    sphere.check(x.reshape(-1, x.shape[-1]), name)
    return x.double()

"""Convergence of parallel Markov chains: split R-hat, effective sample size, standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

R_HAT_MAX = 1.05  # of a chain that has converged
ESS_MIN = 100.0  # independent draws: an error of a tenth of the spread


@dataclass(frozen=True)
class Estimate:
    """Posterior mean of a quantity with its Monte Carlo error.

    Attributes
    ----------
    mean : tensor of shape (...)
        Posterior mean.
    standard_error : tensor of shape (...)
        Its standard error.
    r_hat : tensor of shape (...)
        R-hat of half-chains; near 1 if all chains sample one distribution.
    ess : tensor of shape (...)
        Effective sample size.
    trace : tensor of shape (chains, draws, ...)
        The draws.
    converged : bool
        Whether R-hat and effective sample size are good enough.
    message : str
        What to try if not.

    Examples
    --------
    >>> posterior.mean_overlap().trace.shape
    torch.Size([2, 5])
    """

    mean: Tensor
    standard_error: Tensor
    r_hat: Tensor
    ess: Tensor
    trace: Tensor
    converged: bool
    message: str

    def raise_if_failed(self) -> Estimate:
        """Return the estimate, or raise an error that says what to try.

        Returns
        -------
        Estimate
            The estimate itself.

        Raises
        ------
        RuntimeError
            If the chains have not converged.

        Examples
        --------
        >>> posterior.mean_overlap().raise_if_failed()
        Traceback (most recent call last):
            ...
        RuntimeError: ...
        """
        if not self.converged:
            raise RuntimeError(self.message)
        return self


def _split(trace: Tensor) -> Tensor:
    """Halves of the chains, so that a drift inside a chain shows: (2 chains, draws/2, ...)."""
    if trace.ndim < 2 or trace.shape[1] < 4:
        raise ValueError(
            f"trace must be (chains, draws >= 4, ...), got {tuple(trace.shape)}: draw more"
        )
    half = trace.shape[1] // 2
    return torch.cat([trace[:, :half], trace[:, -half:]])


def _variances(chains: Tensor) -> tuple[Tensor, Tensor]:
    """Mean variance inside the chains, and the pooled variance that also counts their spread."""
    n = chains.shape[1]
    within = chains.var(1).mean(0)
    pooled = within * (n - 1) / n + chains.mean(1).var(0)
    return within, pooled


def split_r_hat(trace: Tensor) -> Tensor:
    """√(pooled variance / variance inside half-chains) of a trace (chains, draws, ...): (...).

    Near 1 when all half-chains sample one law. A quantity that never moves has R-hat 1.
    """
    within, pooled = _variances(_split(trace))
    return torch.where(pooled > 0, (pooled / within).sqrt(), torch.ones_like(within))


def effective_sample_size(trace: Tensor) -> Tensor:
    """Number of independent draws worth a trace (chains, draws, ...): (...).

    chains·draws/τ with τ = 1 + 2 Σ_t ρ_t. The autocorrelations ρ_t pool the chains and are summed
    in pairs ρ_2k + ρ_2k+1 up to the first negative pair, made non-increasing (Geyer's initial
    monotone sequence: the pairs of a reversible chain are positive and decrease).
    """
    chains = _split(trace)
    m, n = chains.shape[:2]
    within, pooled = _variances(chains)
    centered = chains - chains.mean(1, keepdim=True)
    spectrum = torch.fft.rfft(centered, n=2 * n, dim=1)  # padded: no circular wrap-around
    autocovariance = torch.fft.irfft(spectrum.abs().square(), n=2 * n, dim=1)[:, :n].mean(0) / n
    rho = 1 - (within - autocovariance) / pooled  # (n, ...)
    rho[0] = 1.0
    pairs = rho[: n - n % 2 : 2] + rho[1::2][: n // 2]  # (n/2, ...)
    kept = (pairs > 0).cumprod(0)
    tau = 2 * (pairs.cummin(0).values * kept).sum(0) - 1
    # Antithetic chains can beat independent draws, but an estimate far above is noise: cap it.
    tau = tau.clamp_min(1 / math.log10(m * n))
    return torch.where(pooled > 0, m * n / tau, torch.full_like(tau, m * n))


def estimate(trace: Tensor) -> Estimate:
    """Mean, standard error, R-hat and effective sample size of a trace (chains, draws, ...)."""
    _, pooled = _variances(_split(trace))
    ess = effective_sample_size(trace)
    r_hat = split_r_hat(trace)
    worst, least = float(r_hat.max()), float(ess.min())
    if worst > R_HAT_MAX:
        message = (
            f"chains disagree (R-hat {worst:.2f} > {R_HAT_MAX}): they may sit in different phases "
            "or permutations; raise n_burn_in and n_sweeps, or start from the teacher"
        )
    elif least < ESS_MIN:
        message = f"only {least:.0f} effective draws (< {ESS_MIN:.0f}): raise n_sweeps or n_chains"
    else:
        message = f"converged: R-hat at most {worst:.3f}, at least {least:.0f} effective draws"
    return Estimate(
        mean=trace.mean((0, 1)),
        standard_error=(pooled / ess).sqrt(),
        r_hat=r_hat,
        ess=ess,
        trace=trace,
        converged=worst <= R_HAT_MAX and least >= ESS_MIN,
        message=message,
    )

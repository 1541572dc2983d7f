"""Layer 0: Bessel ratios, the sphere, the transportation polytope, von Mises–Fisher sampling."""

from mnemosphere.numerics import polytope, sphere, vmf
from mnemosphere.numerics.bessel import (
    inverse_mean_resultant,
    log_omega,
    log_omega_ratio,
    mean_resultant,
)

__all__ = [
    "inverse_mean_resultant",
    "log_omega",
    "log_omega_ratio",
    "mean_resultant",
    "polytope",
    "sphere",
    "vmf",
]

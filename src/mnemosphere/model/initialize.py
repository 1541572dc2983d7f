"""Where the memories start, and the inverse temperature that suits them."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.numerics import sphere, vmf
from mnemosphere.numerics.bessel import inverse_mean_resultant

# An estimate of β from so many rows is good to a percent; the first step refines it.
PROBE_ROWS = 2048


def from_data(x: Tensor, n_memories: int, *, generator: torch.Generator) -> Tensor:
    """Distinct training rows, drawn at random.

    More memories than rows: the rows are used again, moved a little so that no two are the same.
    """
    n_rows = x.shape[0]
    order = torch.randperm(n_rows, generator=generator, device=generator.device).to(x.device)
    if n_memories <= n_rows:
        return x[order[:n_memories]].to_dense()
    repeats = -(-n_memories // n_rows)
    picked = x[order.repeat(repeats)[:n_memories]].to_dense()
    noise = sphere.sample_uniform(
        n_memories - n_rows, x.shape[1], generator=generator, dtype=x.dtype, device=x.device
    )
    return torch.cat([picked[:n_rows], sphere.retract(picked[n_rows:], 0.1 * noise)])


def uniform(
    n_memories: int,
    n_features: int,
    *,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """Uniform on the sphere: the start of all the paper's runs but one."""
    return sphere.sample_uniform(
        n_memories, n_features, generator=generator, dtype=dtype, device=device
    )


def around_mean(
    x: Tensor, n_memories: int, concentration: float, *, generator: torch.Generator
) -> Tensor:
    """Von Mises–Fisher around the mean direction of the data, root of the learning tree.

    The start of Fig. (umap_tree), with a concentration of about 1.5e5 there.
    """
    mean = sphere.project(x.mean(0))
    return vmf.sample(
        mean.expand(n_memories, -1),
        torch.as_tensor(concentration, dtype=x.dtype, device=x.device),
        generator=generator,
    )


def estimate_beta(w: Tensor, x: Tensor, varsigma: float) -> Tensor:
    """The β that Eq. (effective_loss) would choose if each row went to its nearest memory.

    β = A_N⁻¹(ς·m̄), m̄ the mean overlap of a row with its nearest memory. Rows that are themselves
    memories would say 1 and are left out where others exist. x (B, N): `PROBE_ROWS` are enough.
    """
    nearest = (x @ w.T).amax(1)  # (rows, P) -> (rows,)
    own = nearest > 1 - 1e-5
    if not own.all():
        nearest = nearest[~own]
    mean = nearest.double().mean().clamp(0.05, 0.999)
    return inverse_mean_resultant(varsigma * mean, x.shape[1]).to(x)

"""Where the memories start, and the inverse temperature that suits them."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.numerics import sphere, vmf
from mnemosphere.numerics.bessel import inverse_mean_resultant

# An estimate of β from so many rows is good to a percent; the first step refines it.
PROBE_ROWS = 2048


def class_by_class(targets: Tensor, *, generator: torch.Generator) -> Tensor:
    """An order of the rows, (n,): the first of each class, then classes in proportion throughout.

    Within a class the order is random; rows without a label are a class of their own.
    """
    n_rows = targets.shape[0]
    order = torch.randperm(n_rows, generator=generator, device=generator.device).to(targets.device)
    label = targets.argmax(1).masked_fill_(targets.sum(1) <= 0, targets.shape[1])[order]
    label, by_class = label.sort(stable=True)
    first, end = (torch.searchsorted(label, label, right=right) for right in (False, True))
    rank, count = torch.arange(n_rows, device=label.device) - first, end - first
    place = torch.empty(n_rows, device=label.device)
    place[by_class] = ((rank + 0.5) / count).masked_fill_(rank == 0, -1.0)
    return order[place.argsort(stable=True)]  # ties by the draw, not by the names of classes


def class_means(
    x: Tensor, targets: Tensor, n_memories: int, *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(memories (P, N), label weights (P, C+1)): means of random rows of one class, its own alone.

    Classes have memories in proportion, and share their rows out to them. For rows that mostly have
    no feature in common: a memory on one of them would answer for hardly any other.
    """
    order = class_by_class(targets, generator=generator)
    x, label = x[order], targets.argmax(1)[order]
    own = label[:n_memories]
    n_own = own.bincount(minlength=targets.shape[1])
    kept = n_own[label] > 0
    seen = torch.nn.functional.one_hot(label, targets.shape[1]).cumsum(0)
    rank = seen.gather(1, label[:, None])[:, 0] - 1  # of each row in its class
    first = n_own.cumsum(0) - n_own
    memory = own.argsort(stable=True)[(first[label] + rank % n_own[label].clamp_min(1))[kept]]
    of = x.new_zeros(x.shape[0], n_memories)
    of[kept.nonzero()[:, 0], memory] = 1.0
    w = of.T @ x  # (P, n) (n, N)
    lost = w.norm(dim=1) == 0
    if bool(lost.any()):
        w[lost] = x[:n_memories][lost].to_dense()
    return sphere.project(w), torch.nn.functional.one_hot(own, targets.shape[1]).to(w)


def from_data(
    x: Tensor, n_memories: int, *, generator: torch.Generator, order: Tensor | None = None
) -> Tensor:
    """Distinct training rows, in the given order or drawn at random.

    More memories than rows: the rows are used again, moved a little so that no two are the same.
    """
    n_rows = x.shape[0]
    if order is None:
        order = torch.randperm(n_rows, generator=generator, device=generator.device).to(x.device)
    if n_memories <= n_rows:
        return x[order[:n_memories]].to_dense()
    picked = x[order.repeat(-(-n_memories // n_rows))[:n_memories]].to_dense()
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

    β = A_N⁻¹(ς·m̄), m̄ as `mean_overlap` has it. x (B, N): `PROBE_ROWS` are enough.
    """
    return inverse_mean_resultant(float(varsigma * mean_overlap(w, x)), x.shape[1]).to(x)


def mean_overlap(w: Tensor, x: Tensor) -> Tensor:
    """That of a row with its nearest memory, in float64.

    Rows that are themselves memories would say 1 and are left out where others exist.
    """
    nearest = (x @ w.T).amax(1).cpu().double()  # (rows, P) -> (rows,), few: quicker on the host
    others = (nearest <= 1 - 1e-5).double()
    others = others + (others.sum() == 0)  # no row but memories: then all of them
    return ((nearest * others).sum() / others.sum()).clamp(0.05, 0.999)

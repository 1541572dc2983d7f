"""Where the memories start, and the inverse temperature that suits them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.model.kmeans import directions, step
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import inverse_mean_resultant

# An estimate of β from so many rows is good to a percent; the first step refines it.
PROBE_ROWS = 2048
_LEAST_OF_CLASS = 5  # memories of a class before others have more in proportion
_ROWS_OF_A_MEAN = 32  # enough for a start


class Start(NamedTuple):
    """Memories to train from."""

    w: Tensor  # (P, N) unit rows
    labels: Tensor | None = None  # (P, C+1) mean labels of the rows of each
    classes: Tensor | None = None  # (P, C) the class in which each started


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


def within_classes(
    x: Tensor, targets: Tensor, n_memories: int, *, generator: torch.Generator, steps: int = 4
) -> Start:
    """Spherical k-means among the rows of each class.

    x: (n, N) unit rows without gaps. A row counts in every class that it has weight for, in proportion.
    Each class has at least `_LEAST_OF_CLASS` memories where there are as many for each, and beyond
    that memories in proportion to its rows. With fewer memories than classes, k-means goes over
    all rows, and classes are those of the labels.
    """
    # One draw for all rows: neither the names nor the order of classes matter.
    order = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    targets = targets.to(x.dtype)
    share = label_shares(targets)  # (n, C)
    outside = (share.sum(1, keepdim=True) <= 0) & (targets.sum(1, keepdim=True) > 0)
    share = torch.cat([share, outside.to(share)], 1)
    rows = [of.nonzero()[:, 0] for of in share[order].T]  # of each column
    present = sorted((y for y, own in enumerate(rows) if len(own)), key=lambda y: int(rows[y][0]))
    if n_memories < len(present) or not present:
        some = order[: _ROWS_OF_A_MEAN * n_memories]
        weight = torch.ones_like(some, dtype=x.dtype)[:, None]
        w, labels = _means(x[some], targets[some], weight, n_memories, generator, steps)
        return Start(w, labels, label_shares(labels))
    mass, found = share.sum(0)[present].tolist(), []
    ks = _per_class([len(rows[y]) for y in present], mass, n_memories)
    for y, k in zip(present, ks, strict=True):
        own = order[rows[y][: _ROWS_OF_A_MEAN * k]]
        found.append(_means(x[own], targets[own], share[own, y, None], k, generator, steps))
    w, labels = map(torch.cat, zip(*found, strict=True))
    column = [y for y, k in zip(present, ks, strict=True) for _ in range(k)]
    classes = torch.nn.functional.one_hot(torch.tensor(column), share.shape[1])[:, :-1]
    return Start(w, labels, classes.to(x))


def _means(
    x: Tensor, q: Tensor, weight: Tensor, k: int, generator: torch.Generator, steps: int
) -> tuple[Tensor, Tensor]:
    """K-means of the rows of a class, weight (n, 1): (w (k, N), their mean labels (k, C+1)).

    From the first rows, moved to the mean of all.
    """
    first = from_data(x, k, generator=generator, order=torch.arange(len(x), device=x.device))
    w, dealt = directions(first + weight.T @ x / weight.sum(), first), weight
    for _ in range(1 + steps):
        w, dealt = step(x, w, weight)
    mass = dealt.sum(0)[:, None]
    # A memory without rows has the labels of its class.
    return w, torch.where(mass > 0, dealt.T @ q / torch.where(mass > 0, mass, 1.0), q.mean(0))


def _per_class(count: list[int], mass: list[float], n_memories: int) -> list[int]:
    """How many memories each class has: a few each, the others in proportion to its mass of rows."""
    least = min(_LEAST_OF_CLASS, n_memories // len(count))
    found = [min(least, c) for c in count]
    left = n_memories - sum(found)
    exact = [own + left * m / sum(mass) for own, m in zip(found, mass, strict=True)]
    found = [int(e) for e in exact]
    rest = sorted(range(len(count)), key=lambda k: (found[k] - exact[k], -mass[k]))
    for k in rest[: n_memories - sum(found)]:
        found[k] += 1
    return found


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
        return x[order[:n_memories]]
    picked = x[order.repeat(-(-n_memories // n_rows))[:n_memories]]
    noise = sphere.sample_uniform(
        n_memories - n_rows, x.shape[1], generator=generator, dtype=x.dtype, device=x.device
    )
    return torch.cat([picked[:n_rows], sphere.retract(picked[n_rows:], 0.1 * noise)])


def estimate_beta(w: Tensor, x: Tensor, varsigma: float) -> Tensor:
    """The β that Eq. (effective_loss) would choose if each row went to its nearest memory.

    β = A_N⁻¹(ς·m̄), m̄ the mean overlap of a row with its nearest memory. x (B, N): `PROBE_ROWS` are enough.
    """
    nearest = (x @ w.T).amax(1).cpu().double()  # (rows, P) -> (rows,), few: quicker on the host
    # Rows that are themselves memories would say 1 and are left out where others exist.
    others = (nearest <= 1 - 1e-5).double()
    others = others + (others.sum() == 0)
    overlap = ((nearest * others).sum() / others.sum()).clamp(0.05, 0.999)
    return inverse_mean_resultant(float(varsigma * overlap), x.shape[1]).to(x)

"""Where the memories start, and the inverse temperature that suits them."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import inverse_mean_resultant

# An estimate of β from so many rows is good to a percent; the first step refines it.
PROBE_ROWS = 2048
_LEAST_OF_CLASS = 5  # memories of a class before others have more in proportion
_ROWS_OF_A_MEAN = 32  # enough for a start


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
) -> tuple[Tensor, Tensor]:
    """(memories (P, N), their labels (P, C+1)): spherical k-means among the rows of each class.

    x: (n, N) unit rows without gaps. Each class has at least `_LEAST_OF_CLASS` memories where there
    are as many for each, and beyond that memories in proportion to its rows. With fewer memories
    than classes, k-means goes over all rows, and a label is the mean of those of its rows.
    """
    # One draw for all rows: neither the names nor the order of classes matter.
    order = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    label = targets.argmax(1).masked_fill_(targets.sum(1) <= 0, targets.shape[1])[order]
    present, at = (part.tolist() for part in _first_places(label))
    classes = [y for _, y in sorted(zip(at, present, strict=True)) if y < targets.shape[1]]
    if n_memories < len(classes) or not classes:
        groups = [(order, n_memories)]
    else:
        rows = [order[label == y] for y in classes]
        groups = [*zip(rows, _per_class([*map(len, rows)], n_memories), strict=True)]
    found = [_few_steps(x, targets, own, k, generator, steps) for own, k in groups if k > 0]
    return torch.cat([w for w, _ in found]), torch.cat([q for _, q in found])


def _first_places(label: Tensor) -> tuple[Tensor, Tensor]:
    """(the distinct labels, the place of the first of each)."""
    values, index = torch.unique(label, return_inverse=True)
    places = torch.arange(len(label), device=label.device)
    first = torch.full((len(values),), len(label), device=label.device)
    return values, first.scatter_reduce(0, index, places, "amin")


def _per_class(count: list[int], n_memories: int) -> list[int]:
    """How many memories each class has: a few each, the others in proportion to rows."""
    least = min(_LEAST_OF_CLASS, n_memories // len(count))
    found = [min(least, c) for c in count]
    left = n_memories - sum(found)
    exact = [own + left * c / sum(count) for own, c in zip(found, count, strict=True)]
    found = [int(e) for e in exact]
    rest = sorted(range(len(count)), key=lambda k: (found[k] - exact[k], -count[k]))
    for k in rest[: n_memories - sum(found)]:
        found[k] += 1
    return found


def _few_steps(
    x: Tensor, targets: Tensor, rows: Tensor, k: int, generator: torch.Generator, steps: int
) -> tuple[Tensor, Tensor]:
    """K-means of some rows from the first k of them, each moved to their mean; mean labels."""
    own, q = x[rows[: _ROWS_OF_A_MEAN * k]], targets[rows[: _ROWS_OF_A_MEAN * k]]
    first = from_data(own, k, generator=generator, order=torch.arange(len(own), device=x.device))
    mean = (torch.ones(1, len(own), dtype=x.dtype, device=x.device) @ own) / len(own)
    if k == 1:
        return _directions(mean), q.mean(0, keepdim=True)
    w = _directions(first + mean)
    for _ in range(1 + steps):
        nearest = (own @ w.T.contiguous()).argmax(1)  # else slow
        of = torch.nn.functional.one_hot(nearest, k).to(w)  # (n, k)
        w = _directions(of.T @ own + 1e-3 * w)
    mass = of.sum(0)[:, None]
    return w, torch.where(mass > 0, of.T @ q / mass.clamp_min(1), q.mean(0))


def _directions(x: Tensor) -> Tensor:
    norm = sphere.norms(x, keepdim=True)
    return x / norm.clamp_min(torch.finfo(x.dtype).tiny)


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

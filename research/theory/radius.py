"""How far may a standardized row move before its class changes? Proven, in standard units.

docs/research/theory-derivations.md, section 8. The library proves it for directions alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere import DAMClassifier
from mnemosphere.fitted.model import FittedModel
from mnemosphere.geometry.base import lengths
from mnemosphere.geometry.direction import Unit
from mnemosphere.geometry.standard import Standard
from mnemosphere.geometry.whitened import Whitened
from mnemosphere.interpret.radius import Bound, with_uniform


class Proven(NamedTuple):
    """For each row: its class, the proven radius, the class that the bound reaches first."""

    label: NDArray[Any]
    radius: NDArray[Any]
    other: NDArray[Any]


def certified_radius(estimator: DAMClassifier, x: NDArray[Any]) -> Proven:
    """Of complete rows, by geometry "unit", "center", "standard" or "whitened"."""
    model = estimator.model_
    if isinstance(model.geometry, Unit):
        found = estimator.certified_radius(x)
        return Proven(found.label, found.radius, found.other)
    rows = torch.from_numpy(x).double()
    label, radius, other = _in_standard_units(model, rows)
    return Proven(model.classes[label.numpy()], radius.numpy(), model.classes[other.numpy()])


def _in_standard_units(model: FittedModel, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    geometry = model.geometry
    bound = Bound(model.precise_votes, torch.finfo(model.votes.w.dtype).eps)
    unit = geometry.place(x)[0].double()
    label, angle, other = bound.angles(unit)
    radius = least_change(geometry, x, angle)
    if isinstance(geometry, Whitened) and bound.p.shape[1] > 1:
        # Tighter than the angle in most rows: how far it moves a row depends on the direction.
        direct = linear_radius(bound, unit, *linear(geometry, x)) * (1 - 1e-12)
        radius = torch.where(angle > 0, torch.maximum(radius, direct), radius)
    return label, radius, other


def least_change(geometry: Any, x: Tensor, angle: Tensor) -> Tensor:
    """The least change of rows x (n, N) that turns them by these angles (n,), or a bound below it."""
    rounding = 1 - 16 * (x.shape[1] + 1) * torch.finfo(torch.float64).eps
    if isinstance(geometry, Whitened):
        length, stretch = linear(geometry, x)
        found = length * angle.clamp_max(math.pi / 2).sin() / torch.linalg.matrix_norm(stretch, 2)
    else:
        found = _in_a_plane(geometry, x, angle)
    return torch.where(found.isnan() | (angle <= 0), 0.0, found * rounding)


def _in_a_plane(geometry: Standard, x: Tensor, angle: Tensor) -> Tensor:
    """Rows lie in a plane at the height √N.

    The shortest way to the border of the cone around a row is across it, as long as that does not
    lead beyond the foot of the plane.
    """
    v, height = geometry.coordinates(x), x.shape[1] ** 0.5
    length = lengths(v[:, :-1])
    tilt = torch.atan2(length, torch.full_like(length, height))
    beyond = length + height * (angle - tilt).clamp(0.0, math.pi / 2).tan()
    beyond = torch.where(angle - tilt < math.pi / 2, beyond, torch.inf)
    across = lengths(v) * angle.clamp_max(math.pi / 2).sin()
    return torch.where(angle <= tilt, across, beyond)


def linear(geometry: Whitened, x: Tensor) -> tuple[Tensor, Tensor]:
    """(‖Av‖ (n,), A without the column of the constant coordinate): a change δ moves Av by Bδ."""
    return lengths(geometry.coordinates(x) @ geometry.metric.T), geometry.metric[:, :-1]


def linear_radius(bound: Bound, x: Tensor, norm: Tensor, a: Tensor) -> Tensor:
    """Certified lengths (B,) of changes δ that move rows from norm·x to norm·x + Aδ, (B, D).

    Across x a change of length ε moves them by ε‖Aᵀv_⊥‖ at most along v_⊥, and the norm stays
    above norm − ε‖Aᵀx‖. Against x they turn by asin(εσ/norm) at most.
    """
    terms = bound.terms(x)
    w, m, own = bound.params.w @ a, terms.m @ a, x @ a
    along = terms.along
    stretch: Tensor = torch.linalg.matrix_norm(a, 2)
    square = (
        with_uniform(w.square().sum(1).expand(len(x), -1)) - 2 * with_uniform(m @ w.T)
        + m.square().sum(1, keepdim=True) + along.square() * own.square().sum(1, keepdim=True)
        - 2 * along * (with_uniform(own @ w.T) - (m * own).sum(1, keepdim=True))
    )  # fmt: skip
    error = bound.product_error * stretch.square() * 8
    across = square.clamp_min(0.0).add(error).sqrt()  # ‖Aᵀv_⊥‖
    shrink = torch.linalg.vector_norm(own, dim=1, keepdim=True)
    norm = norm[:, None]

    def move(length: Tensor) -> Tensor:
        turned = (length * stretch / norm).clamp_max(1.0)
        back = turned.square() / (1 + (1 - turned.square()).sqrt())  # 1 − cos
        moved: Tensor = across * length / (norm - length * shrink)
        return moved + (-along).clamp_min(0.0) * back

    reach: Tensor = norm / stretch * (1 - 1e-9)
    return bound.largest(terms, move, reach)[0]

"""How far may a row move before its class changes? A proven lower bound.

At a unit row x with predicted class a, let f_y(x) = log Σ_γ p_γy exp(h_γ(x)) with
h_γ = β⟨w_γ, x⟩ − c for memories, h_0 = 0 and w_0 = 0 for the uniform component, β for β_eff. f_a is
convex, so it lies above its tangent: with s_γ the shares of the components in class a and
m = Σ_γ s_γ w_γ, for every unit x′ within the angle r of x and every other class b

    f_b(x′) − f_a(x′) ≤ log Σ_ν p_νb exp(h_ν(x) + β M_r(w_ν − m)) − f_a(x),
    M_r(v) = max of ⟨v, x′ − x⟩ = v_∥ (cos φ − 1) + v_⊥ sin φ,    φ = min(r, atan2(v_⊥, v_∥)),

v_∥ = ⟨v, x⟩ and v_⊥ the length of the rest. The right side grows with r, and no class overtakes a
as long as it is negative: its zero is the certified angle. It is exact if each class has one
component. Before its division by its norm ρ a row has to move by ρ sin r to turn by r.
docs/research/theory-derivations.md has the proof.

Everything is in float64, and bounds of the rounding errors are taken off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, as_numpy, row_names
from mnemosphere.geometry.base import lengths, on_device, unit_chunks
from mnemosphere.geometry.direction import Unit
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import chunks, log_joint

_HALVINGS = 45  # of π: the angle is found to 1e-13
_LARGEST = 700.0  # exponent: weights of 1e-290 and more times exp of it exceed 1
_LEAST_WEIGHT = 1e-290
_SHOWN = 20  # rows of the printed table


@dataclass(frozen=True)
class CertifiedRadius(Shown):
    """How far each row can move before its class can change: proven bounds; `print` shows a table.

    Attributes
    ----------
    angle : ndarray of shape (n,)
        Angle on the sphere in radians; NaN for rows with missing values.
    radius : ndarray of shape (n,)
        Length of a change of the row.
    label : ndarray of shape (n,)
        Predicted classes.
    other : ndarray of shape (n,)
        The class that comes first beyond the bound, or None.
    names : list of n str
        What the rows are called: the index of a frame, or numbers.

    Examples
    --------
    >>> directions = mn.DAMClassifier(2, geometry="unit", random_state=0).fit(X_train, y_train)
    >>> bool((directions.certified_radius(X_test).radius >= 0).all())
    True
    """

    angle: NDArray[np.float64]
    radius: NDArray[np.float64]
    label: NDArray[Any]
    other: NDArray[Any]
    names: list[str]

    def __len__(self) -> int:
        return len(self.radius)

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """What the radius means, and a line per row, for people."""
        table: Table = [
            {"row": self.names[k], "class": str(self.label[k]), "radius": f"{self.radius[k]:.4g}",
             "angle": f"{self.angle[k]:.4f}", "next class": str(self.other[k])}
            for k in range(min(len(self), _SHOWN))
        ]  # fmt: skip
        told = "No row within the radius, the length of a change, gets another class."
        more = len(self) - _SHOWN
        return [told, *[table] * bool(table), *[f"and {more} more rows"] * (more > 0)]


def certified_radius(model: FittedModel, X: Any) -> CertifiedRadius:
    """Compute how far each row can move before its class can change: a proven bound.

    The radius is the length of a change of the row, for models of directions: geometry="unit" or "center".

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.

    Returns
    -------
    CertifiedRadius
        Radii, angles and the class that comes next.

    Raises
    ------
    ValueError
        If the geometry is another one.

    Examples
    --------
    >>> directions = mn.DAMClassifier(2, geometry="unit", random_state=0).fit(X_train, y_train)
    >>> mn.interpret.certified_radius(directions.model_, X_test[:2]).radius.shape
    (2,)
    """
    if not isinstance(model.geometry, Unit):
        raise ValueError(
            "certified_radius needs geometry='unit' or 'center', where the length of a change means "
            f"something, got {model.geometry.name!r}: counterfactual finds a change of columns that "
            "changes the class"
        )
    stored, classes = model.stored(X), model.classes
    geometry, votes = on_device(model.geometry, stored.device), model.precise_votes
    bound = Bound(votes, torch.finfo(model.votes.w.dtype).eps)
    units = unit_chunks(stored, geometry, torch.float64)
    found = []
    for (_, raw), (unit, lost) in zip(stored.chunks(), units, strict=True):
        width = max(votes.n_memories, raw.shape[1], unit.shape[1])
        for rows in chunks(raw.shape[0], width, raw.device):
            x = raw[rows]
            label, angle, other = bound.angles(unit[rows].double())
            # A row without direction may get any class; one with gaps is not one point of the sphere.
            angle = torch.where(lost[rows], 0.0, angle).masked_fill(x.isnan().any(1), torch.nan)
            label = torch.where(lost[rows], votes.p_q[:-1].argmax(), label)
            other = other.masked_fill(angle.isnan(), -1)
            radius = lengths(geometry.coordinates(x)) * angle.clamp_max(math.pi / 2).sin()
            rounding = 16 * (x.shape[1] + 1) * torch.finfo(torch.float64).eps
            found.append((angle, radius * (1 - rounding), label, other))
    angles, radii, labels, others = (as_numpy(torch.cat(part)) for part in zip(*found, strict=True))
    beyond = classes[others.clip(0)]
    if (others < 0).any():
        beyond = np.where(others < 0, None, beyond.astype(object))
    return CertifiedRadius(angles, radii, classes[labels], beyond, row_names(X, len(angles)))


class _Terms(NamedTuple):
    """What the bound needs of B rows."""

    label: Tensor  # (B,) the class a
    gap: Tensor  # (B, P+1) h_ν(x) − f_a(x)
    m: Tensor  # (B, N)
    along: Tensor  # (B, P+1) v_∥ of v = w_ν − m
    across: Tensor  # (B, P+1) v_⊥


class Bound:
    """Certified angles among the classes, all columns of p but the last.

    eps: of the unit rows that `predict` takes the class of; their rounding is in the margin.
    """

    def __init__(self, votes: Mixture, eps: float) -> None:
        params = votes.to(dtype=torch.float64)
        self.params, self.beta = params, params.slope
        p = params.p[:, :-1]
        self.p = torch.where(p > 0, p.clamp_min(_LEAST_WEIGHT), 0.0)  # (P+1, C)
        self.squares = torch.cat([p.new_zeros(1), params.w.square().sum(1)])  # ‖w‖², (P+1,)
        own = torch.finfo(torch.float64).eps
        # A product of unit vectors is right to N·eps, a row to eps of its own precision.
        self.product_error = 8 * params.n_features * own
        rounding = self.beta * (self.product_error + 2 * eps)
        self.most = torch.exp(-rounding - own * (params.n_memories + 64))

    def terms(self, x: Tensor) -> _Terms:
        """Of unit rows (B, N)."""
        label = log_joint(self.params, x)[:, :-1].argmax(1)
        overlap = x @ self.params.w.T  # (B, P)
        h = with_uniform(self.beta * overlap - self.params.offset)  # (B, P+1)
        overlap = with_uniform(overlap)
        own = h + self.p.T[label].log()
        density = own.logsumexp(1, keepdim=True)  # f_a
        share = (own - density).exp()
        m = share[:, 1:] @ self.params.w
        along = overlap - (share * overlap).sum(1, keepdim=True)
        square = (
            self.squares - 2 * with_uniform(m @ self.params.w.T) + m.square().sum(1, keepdim=True)
        )
        across = (square - along.square()).clamp_min(0.0).add(self.product_error).sqrt()
        return _Terms(label, h - density, m, along, across)

    def angles(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(class (B,) as a column of p, angle in [0, π] within which no other class is predicted, the class
        that the bound reaches first, −1 if there is one) of unit rows (B, N).
        """
        terms = self.terms(x)
        along, across = terms.along, terms.across
        high = torch.full_like(along[:, :1], math.pi)
        if self.p.shape[1] == 1:
            return terms.label, high[:, 0], terms.label - 1
        turn, most = torch.atan2(across, along), torch.hypot(along, across) - along

        def move(r: Tensor) -> Tensor:
            """M_r of all components, (B, P+1), at the angles r (B, 1)."""
            inside = along * (-2 * (r / 2).sin().square()) + across * r.sin()
            return torch.where(r < turn, inside, most)

        angle, beyond = self.largest(terms, move, high)
        other = self._sums(terms, move(beyond)).argmax(1)
        return terms.label, angle, other

    def _sums(self, terms: _Terms, move: Tensor) -> Tensor:
        """Exp of the right side for every class but a, (B, C)."""
        found = (terms.gap + self.beta * move).clamp_max(_LARGEST).exp() @ self.p
        return found.scatter_(1, terms.label[:, None], 0.0)

    def largest(
        self, terms: _Terms, move: Callable[[Tensor], Tensor], high: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(the largest argument (B,) up to `high` at which no class overtakes a, one above it)."""

        def safe(at: Tensor) -> Tensor:
            return self._sums(terms, move(at)).amax(1, keepdim=True) <= self.most

        low = torch.zeros_like(high)
        high = torch.where(safe(low), high, 0.0)  # else a tie, up to rounding
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            there = safe(middle)
            low, high = torch.where(there, middle, low), torch.where(there, high, middle)
        return low[:, 0], high


def with_uniform(products: Tensor) -> Tensor:
    """Products with the memories (B, P), and 0 for the uniform component before them."""
    return torch.cat([products.new_zeros(products.shape[0], 1), products], dim=1)

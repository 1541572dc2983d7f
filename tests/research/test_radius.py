"""The study's own proofs, in standard units: no change within the radius changes the class."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

import mnemosphere as mn
from mnemosphere.geometry import KINDS, Standard
from research.theory.radius import certified_radius, least_change


def angles_between(x, y):
    """Angles of unit vectors, right near 0 as well."""
    return 2 * torch.asin(((x - y).norm(dim=-1) / 2).clamp_max(1.0))


def circle(n=4001):
    angle = torch.linspace(-math.pi, math.pi, n).double()
    return torch.stack([angle.cos(), angle.sin()], 1)


def sphere_grid(n=7919):
    """Points that cover the sphere evenly, by the golden angle."""
    k = torch.arange(n).double() + 0.5
    z, turn = 1 - 2 * k / n, math.pi * (1 + 5**0.5) * k
    r = (1 - z * z).sqrt()
    return torch.stack([r * turn.cos(), r * turn.sin(), z], 1)


def directions(n):
    return circle(307) if n == 2 else sphere_grid(1009)


@pytest.mark.parametrize(("kind", "n"), [("standard", 3), ("whitened", 2)])
@pytest.mark.parametrize("turn", [0.05, 1.3, 1.9, 2.9])
def test_the_radius_is_the_least_change_that_turns_a_row_by_the_angle(n, kind, turn):
    generator = torch.Generator().manual_seed(n)
    rows = 3 * torch.randn(3, n, generator=generator, dtype=torch.float64) + 1
    learned = {"mean": rows.mean(0), "scale": rows.std(0)}
    if kind == "whitened":
        learned["metric"] = torch.randn(4, n + 1, generator=generator, dtype=torch.float64)
        learned["common"] = 0.3 * torch.eye(n, dtype=torch.float64)
    geometry = KINDS[kind].of(**learned)
    found = least_change(geometry, rows, torch.full((3,), turn).double())
    step = rows.std(0)
    size = torch.logspace(-2, 2, 121).double()
    for row, radius in zip(rows, found.tolist(), strict=True):
        start = geometry.place(row[None])[0]
        moved = row + size[:, None, None] * directions(n) * step  # (sizes, directions, n)
        unit_rows, lost = geometry.place(moved.reshape(-1, n))
        turned = angles_between(unit_rows, start).reshape(len(size), -1)
        reached = ((turned >= turn) & ~lost.reshape(turned.shape)).any(1)
        nearest = float(size[reached][0]) if bool(reached.any()) else math.inf
        assert radius <= nearest * (1 + 1e-9)
        if kind != "whitened" and turn < 1.5 and nearest < 100:
            assert radius >= nearest * 0.9


def test_a_row_that_no_row_can_be_far_enough_from():
    # Standardized rows lie on a half sphere: none is 3 rad away from another.
    geometry = Standard(torch.zeros(2), torch.ones(2))
    assert least_change(geometry, torch.eye(2), torch.full((2,), 3.0)).tolist() == [math.inf] * 2
    assert least_change(geometry, torch.eye(2), torch.zeros(2)).tolist() == [0.0] * 2


@pytest.mark.parametrize(
    ("load", "geometry", "precision"),
    [(load_iris, "standard", "float32"), (load_wine, "whitened", "float64")],
)
def test_counterfactuals_lie_beyond(load, geometry, precision):
    x, y = load(return_X_y=True)
    model = mn.DAMClassifier(
        13, geometry=geometry, objective="joint", precision=precision, random_state=0
    ).fit(x[::2], y[::2])
    rows = x[1::2][:: len(x) // 10]
    found = certified_radius(model, rows)
    assert found.label.tolist() == model.predict(rows).tolist()
    assert (found.other != found.label).all()
    unit = model.model_.geometry.units.numpy()
    for target in model.classes_:
        other = model.counterfactual(rows, target)
        moved = np.linalg.norm((other.after - rows) / unit, axis=1)
        hit = other.found & (found.label != target)
        assert hit.any()
        assert (found.radius[hit] <= moved[hit]).all()
    # And random changes of just that length change nothing.
    noise = np.random.default_rng(0).normal(size=(29, *rows.shape))
    noise /= np.linalg.norm(noise, axis=2, keepdims=True)
    for change in noise:
        near = rows + change * unit * np.minimum(found.radius, 1e6)[:, None] * (1 - 1e-9)
        assert model.predict(near).tolist() == found.label.tolist()

"""Margins of the study of robustness: against samples, planes and the models themselves."""

import numpy as np
import pytest
import torch

from quick_models import small
from research.benchmarks import robustness
from research.benchmarks._attack import shortest_change
from research.benchmarks._radius import certified_radius

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("geometry", ["standard", "whitened", "center"])
def test_an_attack_is_as_short_as_a_grid_finds_and_no_shorter_than_the_certificate(geometry):
    centers, y = 2 * np.random.default_rng(3).normal(size=(4, 3)), np.arange(101) % 4
    x = centers[y] + np.random.default_rng(4).normal(size=(101, 3))
    model = small(n_memories=11, geometry=geometry, max_iter=None).fit(x, y)
    rows = x[:13]
    order = model.predict_proba(rows).argsort(1)
    wanted = model.model_.columns_of(model.classes_[order[:, -2]])
    found = shortest_change(model.model_, torch.from_numpy(rows), wanted).numpy()
    unit = model.model_.geometry.unit_at(torch.from_numpy(rows)).numpy()
    proven = certified_radius(model, rows).radius
    steps = np.linspace(-4, 4, 61)
    grid = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, 3)
    ratios = []
    for k, row in enumerate(rows):
        turned = model.predict(row + grid * unit[k]) == model.classes_[order[k, -2]]
        if not turned.any():
            continue
        assert model.predict(found[k : k + 1]) == model.classes_[order[k, -2]]
        away = np.linalg.norm((found[k] - row) / unit[k])
        ratios.append(away / np.linalg.norm(grid[turned], axis=1).min())
        moved = away if geometry != "center" else np.linalg.norm(found[k] - row)
        assert moved >= proven[k]
    assert len(ratios) > 7
    assert np.median(ratios) < 1.01  # the grid is no finer
    assert np.quantile(ratios, 0.9) < 1.05  # the border may have two nearest points


def test_a_linear_margin_is_the_distance_to_the_nearest_plane():
    coef, intercept = RNG.normal(size=(4, 7)), RNG.normal(size=4)
    x = RNG.normal(size=(23, 7))
    found = robustness.linear_margins(coef, intercept, np.arange(4), x)
    assert (found.label == (x @ coef.T + intercept).argmax(1)).all()
    for row, label, away in zip(x, found.label, found.certified, strict=True):
        reached = []
        for b in set(range(4)) - {label}:
            step = coef[b] - coef[label]
            step = step / np.linalg.norm(step)
            inside = (row + away * (1 - 1e-9) * step) @ coef.T + intercept
            assert inside.argmax() == label
            beyond = (row + away * (1 + 1e-9) * step) @ coef.T + intercept
            reached.append(beyond[b] > beyond[label])
        assert any(reached)


def test_margins_of_the_nearest_row_bracket_the_truth():
    x, y = RNG.normal(size=(61, 3)), np.arange(61) % 3
    fresh = RNG.normal(size=(19, 3))
    found = robustness.nearest_row_margins(x, y, fresh)
    assert (found.certified <= found.attacked + 1e-9).all()
    assert (found.certified > 0).all()
    np.testing.assert_allclose(found.certified, found.attacked, rtol=1e-9)  # all cells were seen
    change = RNG.normal(size=(307, 1, 3))
    change /= np.linalg.norm(change, axis=2, keepdims=True)
    moved = fresh + change * found.certified[:, None] * (1 - 1e-9)
    nearest = np.linalg.norm(moved[:, :, None] - x, axis=3).argmin(2)
    assert (y[nearest] == found.label).all()
    # A dense grid finds no change that is much shorter than the distance to the nearest cell.
    steps = np.linspace(0.5, 1.2, 29)[:, None, None, None] * found.certified[:, None]
    there = fresh + change[None] * steps  # (lengths, directions, rows, 3)
    reached = y[((there[..., None, :] - x) ** 2).sum(-1).argmin(-1)] != found.label
    shortest = np.where(reached.any(1), steps[:, 0, :, 0], np.inf).min(0)
    assert (shortest >= found.certified * (1 - 1e-9)).all()
    assert np.median(shortest / found.certified) < 1.1

"""No row within the certified radius changes the class: enumeration, random changes, closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris

import mnemosphere as mn
from mnemosphere.interpret.radius import Bound
from mnemosphere.model.mixture import Mixture

CASES = {
    "max_examples": 20, "deadline": None, "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow],  # a busy machine is no fault of the bound
}  # fmt: skip


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def certified_angles(params, x, precision=torch.float64):
    return Bound(params, torch.finfo(precision).eps).angles(x.double())


def random_params(seed, n_features, n_memories, n_classes, beta, uniform):
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    w = unit(torch.randn(n_memories, n_features, generator=generator, dtype=torch.float64))
    p = rand(n_memories + 1, n_classes + 1) ** 4 + 1e-6
    p[0] *= uniform
    p = p / p.sum()
    params = Mixture(w, p, torch.tensor(beta).double(), 0.7, p.sum(1), p.sum(0))
    return params, generator


def scores(params, x):
    """log Σ_γ p exp(h) of the classes, by definition."""
    h = params.slope * (x @ params.w.T) - params.offset
    h = torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)
    return (h[..., None] + params.p[:, :-1].log()).logsumexp(-2)


def angles_between(x, y):
    """Angles of unit vectors, right near 0 as well."""
    return 2 * torch.asin(((x - y).norm(dim=-1) / 2).clamp_max(1.0))


def models(n_features):
    return st.builds(
        random_params,
        seed=st.integers(0, 2**31),
        n_features=n_features if isinstance(n_features, st.SearchStrategy) else st.just(n_features),
        n_memories=st.integers(2, 11),
        n_classes=st.integers(2, 4),
        beta=st.floats(1.0, 200.0),
        uniform=st.sampled_from([0.0, 1.0]),
    )


def circle(n=4001):
    angle = torch.linspace(-math.pi, math.pi, n).double()
    return torch.stack([angle.cos(), angle.sin()], 1)


def sphere_grid(n=7919):
    """Points that cover the sphere evenly, by the golden angle."""
    k = torch.arange(n).double() + 0.5
    z, turn = 1 - 2 * k / n, math.pi * (1 + 5**0.5) * k
    r = (1 - z * z).sqrt()
    return torch.stack([r * turn.cos(), r * turn.sin(), z], 1)


@pytest.mark.parametrize("grid", [circle(), sphere_grid()], ids=["circle", "sphere"])
def test_no_row_of_a_dense_grid_within_the_angle_has_another_class(grid):
    ratios = []

    @settings(**CASES)
    @given(models(grid.shape[1]))
    def check(model):
        params, generator = model
        x = unit(torch.randn(23, grid.shape[1], generator=generator, dtype=torch.float64))
        label, angle, other = certified_angles(params, x)
        assert torch.equal(label, scores(params, x).argmax(1))
        assert bool((other != label).all())
        classes = scores(params, grid).argmax(1)
        apart = angles_between(x[:, None], grid[None])
        foreign = apart.masked_fill(classes[None] == label[:, None], torch.inf).amin(1)
        assert bool((angle <= foreign).all())
        assert bool((angle[foreign.isinf()] > 0).all())
        seen = foreign.isfinite() & (foreign > 0.05)
        ratios.extend((angle / foreign)[seen].tolist())

    check()
    assert len(ratios) > 50
    assert np.median(ratios) > 0.7


def one_memory_each(n_features, n_classes, beta, generator):
    """One memory for each class, all that a class has."""
    w = unit(torch.randn(n_classes, n_features, generator=generator, dtype=torch.float64))
    weight = torch.rand(n_classes, generator=generator, dtype=torch.float64) + 0.1
    weight = weight / weight.sum()
    p = torch.zeros(n_classes + 1, n_classes + 1, dtype=torch.float64)
    p[1:, :-1] = torch.diag(weight)
    return Mixture(w, p, torch.tensor(beta).double(), 1.0, p.sum(1), p.sum(0))


def closed_form(params, x):
    """Angle to the nearest plane β⟨w_b − w_a, x⟩ = log p_a/p_b, for one memory per class."""
    weight = params.p[1:, :-1].diagonal()
    label = scores(params, x).argmax(1)
    best = torch.full((len(x),), math.pi).double()
    for b in range(len(weight)):
        v = params.w[b] - params.w[label]
        height = (weight[label] / weight[b]).log() / params.slope / v.norm(dim=1)
        # Height of the plane over the origin, along the unit normal: the row stands below it.
        here = (x * v).sum(1) / v.norm(dim=1)
        angle = height.clamp(-1, 1).arcsin() - here.arcsin()
        angle = torch.where((height.abs() > 1) | (label == b), math.pi, angle)
        best = torch.minimum(best, angle)
    return best


@settings(**CASES)
@given(
    seed=st.integers(0, 2**31),
    n_features=st.integers(2, 19),
    n_classes=st.integers(2, 5),
    beta=st.floats(0.5, 300.0),
)
def test_it_is_exact_with_one_memory_per_class(seed, n_features, n_classes, beta):
    generator = torch.Generator().manual_seed(seed)
    params = one_memory_each(n_features, n_classes, beta, generator)
    x = unit(torch.randn(31, n_features, generator=generator, dtype=torch.float64))
    _, angle, _ = certified_angles(params, x)
    exact = closed_form(params, x)
    assert bool((angle <= exact + 1e-12).all())
    assert bool((angle >= exact - 1e-7 - 1e-6 * exact)[exact > 1e-6].all())


@settings(**CASES)
@given(models(st.integers(2, 7)))
def test_the_precision_of_rows_and_temperature_count(model):
    params, generator = model
    x = unit(torch.randn(13, params.n_features, generator=generator, dtype=torch.float64))
    exact, single = (certified_angles(params, x, d)[1] for d in (torch.float64, torch.float32))
    assert bool((single <= exact).all())
    # Hot memories fade: only the weights of the classes are left, and angles open up.
    label, angle, _ = certified_angles(params.at(1e7), x)
    weight = params.p[:, :-1].sum(0)
    first, second = weight.sort(descending=True).values[:2].tolist()
    if first > 1.01 * second:
        assert label.tolist() == [int(weight.argmax())] * len(x)
        assert bool((angle > 3.14).all())


def test_memories_of_no_weight_and_huge_beta_leave_the_bound_finite_and_valid():
    params, generator = random_params(5, 3, 6, 3, 1.0, 0.0)
    p = params.p.clone()
    p[2] = 0.0
    p[3, 1:] = 0.0
    p = p / p.sum()
    params = params.replace(p=p, beta=torch.tensor(1e5).double())
    x = unit(torch.randn(101, 3, generator=generator, dtype=torch.float64))
    label, angle, _ = certified_angles(params, x)
    grid = sphere_grid()
    apart = angles_between(x[:, None], grid[None])
    same = scores(params, grid).argmax(1)[None] == label[:, None]
    assert bool(torch.isfinite(angle).all())
    assert bool((angle <= apart.masked_fill(same, torch.inf).amin(1)).all())
    assert float(angle.median()) > 0.05


def test_a_single_class_cannot_be_lost():
    params, _ = random_params(5, 3, 4, 1, 3.0, 1.0)
    label, angle, other = certified_angles(params, torch.eye(3).double())
    assert label.tolist() == [0, 0, 0]
    assert angle.tolist() == [math.pi] * 3
    assert other.tolist() == [-1] * 3


# Of estimators


def cancer():
    x, y = load_breast_cancer(return_X_y=True)
    return x[::2], y[::2], x[1::57]


@pytest.mark.parametrize(
    ("geometry", "precision"), [("unit", "float32"), ("center", "float32"), ("center", "float64")]
)
def test_no_change_of_a_row_within_the_radius_changes_its_class(geometry, precision):
    x, y, rows = cancer()
    model = mn.DAMClassifier(
        13, geometry=geometry, objective="joint", precision=precision, random_state=0
    ).fit(x, y)
    found = model.certified_radius(rows)
    assert found.label.tolist() == model.predict(rows).tolist()
    assert (found.other != found.label).all()
    assert (found.radius > 0).all()
    noise = np.random.default_rng(0).normal(size=(29, *rows.shape))
    noise /= np.linalg.norm(noise, axis=2, keepdims=True)
    for change in noise:
        near = rows + change * found.radius[:, None] * (1 - 1e-9)
        assert model.predict(near).tolist() == found.label.tolist()


def test_the_radius_almost_reaches_the_border_between_two_memories():
    """Two memories at ±45 degrees part the plane at the first axis; a row reaches it straight across."""
    x = np.array([[1.0, 1.0], [1.0, -1.0]]).repeat(20, axis=0)
    model = mn.DAMClassifier(2, geometry="unit", objective="joint", random_state=0)
    model.fit(x, np.arange(2).repeat(20))
    rows = np.array([[3.0, 1.0], [0.5, -0.5], [2.0, -7.0]])
    found = model.certified_radius(rows)
    assert found.label.tolist() == [0, 1, 1]
    border = np.abs(rows[:2, 1])
    assert (found.radius[:2] <= border).all()
    np.testing.assert_allclose(found.radius[:2], border, rtol=0.01)


def test_a_row_with_missing_values_has_a_class_but_no_radius():
    x, y = load_iris(return_X_y=True)
    model = mn.DAMClassifier(9, geometry="unit", objective="joint", random_state=0).fit(x, y)
    whole = model.certified_radius(x)
    x[7, 2] = np.nan
    found = model.certified_radius(x)
    assert found.label.tolist() == model.predict(x).tolist()
    assert np.flatnonzero(np.isnan(found.radius)).tolist() == [7]
    assert found.other[7] is None
    np.testing.assert_array_equal(np.delete(found.radius, 7), np.delete(whole.radius, 7))
    found = model.certified_radius(np.zeros((1, 4)))  # a row without direction has a class, too
    assert found.radius[0] == found.angle[0] == 0.0


@pytest.mark.parametrize("geometry", ["standard", "circles"])
def test_other_geometries_have_no_radius(geometry):
    x, y = load_iris(return_X_y=True)
    model = mn.DAMClassifier(6, geometry=geometry, search=None, random_state=0).fit(x, y)
    with pytest.raises(ValueError, match=rf"'unit' or 'center'.*got '{geometry}': counterfactual"):
        model.certified_radius(x)

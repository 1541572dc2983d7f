"""Any finite rows and any settings give a sound model or an error that names a parameter."""

import math
import os

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

import mnemosphere as mn
from mnemosphere.geometry import KINDS, Product
from problems import campaign

pytestmark = pytest.mark.filterwarnings("ignore")

SCALES = [1.0, 1.0, 5e-324, 1e-300, 1e-160, 1e-30, 1e6, 1e30, 1e160, 1e300, 1e308]
FLOATS = ["float16", "float32", "float64", "longdouble"]
WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
REALS = [0, 0.0, 1, 0.5, 2, -1, 1e-300, 1e12, 1e300, math.nan, math.inf, True, "auto", "", None, [1.0],
         np.float32(0.3), np.array(0.5), 5e-324]  # fmt: skip
COUNTS = [0, 1, 2, 5, 50, 10**6, 10**30, -1, 2.0, 2.5, math.nan, True, "auto", "", None, [2],
          np.int8(3)]  # fmt: skip
SOLVERS = ["fixed-point", "sgd", "adam", None, 3, mn.FixedPoint(None), mn.FixedPoint(1),
           mn.FixedPoint(7, tol=1e300), mn.FixedPoint(None, learn_beta=False), mn.SGD(batch_size=3),
           mn.SGD(1e30), mn.SGD(0.1, 0.999999, validation_fraction=0.999999), mn.SGD.paper(), mn.Adam(),
           mn.Adam(noise=1e300), mn.Adam(angle=1e300, learning_rate=1e-300)]  # fmt: skip
GEOMETRIES = ["auto", *KINDS]
PLAIN = [name for name, g in KINDS.items() if g.of is not Product]
COMMON = {
    "n_memories": COUNTS, "growth": COUNTS, "varsigma": REALS, "beta": [*REALS, "learn"],
    "geometry": [*GEOMETRIES, "sideways", 3, None], "solver": SOLVERS, "max_iter": [1, 2, 0, -1, 2.5, None, "many"],
    "uniform_weight": REALS, "precision": ["auto", "float32", "float64", "float16", None, torch.float32],
    "device": ["auto", "cpu", "cuda:99", "tpu", "", None, "meta"],
    "random_state": [0, 2**32 - 1, 2**32, -1, 1.5, "x", None, np.random.RandomState(0)],
    "callbacks": [(), [], None, [3], "ab", mn.Callback()],
}  # fmt: skip
CHANGES = {
    "DAMClassifier": COMMON | {
        "objective": ["joint", "conditional", "auto", 0.5, None, "x"], "label_smoothing": REALS,
        "search": ["auto", None, 1, "x"],
        "unlabeled": [None, 0, -1, "a", math.nan, object()],
        "class_weight": [None, "balanced", {}, {0: 1.0}, {0: 0.0, 1: 0.0}, {0: 1e300, 1: 1e-300}, {0: -1}, 3],
    },
    "DAMClusterer": COMMON | {
        "n_clusters": COUNTS, "smoothing": REALS,
    },
    "PatchEncoder": {key: COMMON[key] for key in ("n_memories", "geometry", "max_iter", "device")} | {
        "image_shape": [(4, 4), [4, 4], (16,), (2, 2, 4), (3, 5), (0, 16), (-4, -4), (4.0, 4), (), None],
        "patch": [*COUNTS, (1, 3), [2, (3, 1)], (0, 2), [], [[]], ("a",)], "stride": COUNTS,
        "grid": [*COUNTS, (1, 3), (0, 1), ()], "power": REALS, "n_patches": COUNTS,
    },
}  # fmt: skip
SMALL = {"n_memories": 4, "geometry": "unit", "varsigma": 0.9, "max_iter": 2, "random_state": 0}
IMAGES = {"image_shape": (4, 4), "patch": 2, "grid": 2, "n_memories": 3, "max_iter": 2,
          "random_state": 0}  # fmt: skip
seeds = st.integers(0, 10**6).map(np.random.default_rng)
factors = st.sampled_from(SCALES)


@st.composite
def tables(draw):
    """Finite rows of any type, scale and container; some have missing values."""
    rng, n, features = draw(seeds), draw(st.sampled_from([1, 2, 5, 17])), draw(st.integers(1, 7))
    x = rng.normal(size=(n, features)) + 3 * rng.integers(0, 3, size=(n, 1))
    kind = np.dtype(draw(st.sampled_from([*FLOATS, *WHOLE, "bool"])))
    with np.errstate(all="ignore"):
        x = x * draw(factors) + draw(st.sampled_from([0.0, 0.0, 1e6, -1e300]))
        x[:, draw(st.integers(0, features - 1))] *= draw(factors)
        if draw(st.booleans()):
            x[draw(st.integers(0, n - 1))] = 0.0
        if kind.kind == "f":
            top = min(float(np.finfo(kind).max), 1e308)
            x = np.clip(np.nan_to_num(x), -top, top).astype(kind)
        elif kind.kind == "b":
            x = x > 0
        else:
            ends = np.iinfo(kind).min, np.iinfo(kind).max
            low, high = draw(st.sampled_from([(0, 100), ends]))
            x = rng.integers(low, high, size=x.shape, dtype=kind, endpoint=True)
    forms = ["array", "list", "frame", "tensor", "turned", "sparse", "missing", "mixed"]
    form = draw(st.sampled_from(forms))
    plain = kind.name in ("float32", "float64", "int64", "uint8")
    if form == "list":
        return x.tolist()
    if form == "frame" and kind.itemsize <= 8:
        return pd.DataFrame(x, columns=[f"c{i}" for i in range(features)])
    if form == "tensor" and plain:
        return torch.from_numpy(x.copy())
    if form == "sparse" and plain:
        return sparse.csr_matrix(np.where(rng.random(x.shape) < 0.5, x, x.dtype.type(0)))
    if form == "missing" and kind.kind == "f":
        return np.where(rng.random(x.shape) < 0.1, np.array(np.nan, dtype=kind), x)
    if form == "mixed" and kind.itemsize <= 8:
        words = np.array(["a", "b", None, "[red]"], dtype=object)[rng.integers(0, 4, size=n)]
        return pd.DataFrame(x, columns=[f"c{i}" for i in range(features)]).assign(word=words)
    return x[::-1] if form == "turned" else x


def labels(n, rng):
    index = rng.integers(0, int(rng.integers(1, 4)), size=n)
    kinds = [
        index, np.array(["a", "b", "c"])[index], index.astype(bool), index.astype(float),
        index.tolist(), np.array([2**62, -(2**62), 7])[index], np.eye(3)[index],
        pd.Series(index).astype("category"),
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]


def weights(n, rng):
    kinds = [None, None, np.ones(n), 10.0 ** rng.uniform(-300, 300, n), np.full(n, 5e-324)]
    return kinds[int(rng.integers(len(kinds)))]


def assert_sound(name, given_settings, x, y, **more):
    """Fit: numbers are finite and probabilities, or the error names what is wrong in one line."""
    model = getattr(mn, name)(**given_settings)
    try:
        model.fit(x, y, **more)
    except (TypeError, ValueError) as error:
        said = str(error)
        known = [*given_settings, "X", "y", "sample_weight", "row", "label", "weights", "class"]
        assert any(word in said for word in known), said
        assert "\n" not in said
        return
    if name == "PatchEncoder":
        counts = np.asarray(model.transform(x))
        assert np.isfinite(counts).all()
        assert (counts >= 0).all()
        return
    share, proba = np.asarray(model.transform(x)), np.asarray(model.predict_proba(x))
    novel = np.asarray(model.novelty_score(x))
    score = np.asarray(mn.interpret.score_samples(model.model_, x))
    for numbers in (model.memories_, model.class_weights_, model.beta_, share, proba, novel, score):
        assert np.isfinite(numbers).all()
    assert (share >= 0).all()
    assert (share <= 1.001).all()
    assert np.abs(proba.sum(1) - 1).max() < 1e-4


@campaign(300)
@given(x=tables(), rng=seeds, name=st.sampled_from(["DAMClassifier", "DAMClusterer"]),
       geometry=st.sampled_from(GEOMETRIES))  # fmt: skip
def test_rows_of_every_kind(x, rng, name, geometry):
    n = x.shape[0] if hasattr(x, "shape") else len(x)
    memories = "auto" if name == "DAMClusterer" else min(4, n)
    given_settings = SMALL | {"geometry": geometry, "n_memories": memories}
    assert_sound(name, given_settings, x, labels(n, rng), sample_weight=weights(n, rng))


@pytest.mark.parametrize("name", CHANGES)
@campaign(150)
@given(data=st.data())
def test_settings_in_pairs(name, data):
    images = name == "PatchEncoder"
    known = st.sampled_from(sorted(CHANGES[name]))
    keys = data.draw(st.lists(known, min_size=1, max_size=2, unique=True))
    changed = {key: data.draw(st.sampled_from(CHANGES[name][key])) for key in keys}
    x = np.random.default_rng(0).normal(size=(23, 16 if images else 4))
    x = np.abs(x) if images else x + 3 * np.arange(23)[:, None] % 3
    assert_sound(name, (IMAGES if images else SMALL) | changed, x, np.arange(len(x)) % 3)


# --- promises of every fitted classifier


@pytest.fixture(scope="module", params=range(25 if "CAMPAIGN" in os.environ else 3))
def fitted(request):
    """A random problem, and a classifier fitted to it by exact steps."""
    rng = np.random.default_rng(request.param)
    n, features, classes = rng.integers([20, 2, 2], [150, 10, 5]).tolist()
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, size=n - classes)])
    noise = 10.0 ** rng.uniform(-1, 0.5) * rng.normal(size=(n, features))
    x = rng.normal(size=(classes, features))[y] + noise
    weight = rng.random(n) + 0.1 if rng.random() < 0.4 else None
    model = mn.DAMClassifier(
        int(rng.integers(2, 14)), growth=2 if rng.random() < 0.2 else None, objective="joint",
        varsigma=float(rng.choice([1.0, 0.9, 0.5, 0.2])), beta="learn" if rng.random() < 0.8 else 7.0,
        geometry=str(rng.choice(PLAIN)), solver=mn.FixedPoint(None),
        max_iter=int(rng.integers(2, 12)), label_smoothing=float(rng.choice([0.1, 0.0, 0.3])),
        precision="float64", random_state=0,
    )  # fmt: skip
    return model.fit(x, y, sample_weight=weight), x, y, weight, rng


def again(model, x, y, weight):
    return clone(model).fit(x, y, sample_weight=weight)


def test_same_seed_and_names_of_classes(fitted):
    model, x, y, weight, _ = fitted
    names = np.array([f"class {k}" for k in range(9)])
    for other in (again(model, x, y, weight), again(model, x, names[y], weight)):
        for part in ("memories_", "class_weights_", "beta_"):
            assert np.array_equal(getattr(model, part), getattr(other, part))
    assert (other.predict(x) == names[model.predict(x)]).all()


def test_order_of_rows_units_and_weights(fitted):
    model, x, y, weight, rng = fitted
    order, expected = rng.permutation(len(x)), model.predict_proba(x)
    turned = again(model, x[order], y[order], None if weight is None else weight[order])
    np.testing.assert_allclose(turned.predict_proba(x), expected, atol=1e-6)
    scaled = again(model, 1024 * x, y, weight)
    np.testing.assert_allclose(scaled.predict_proba(1024 * x), expected, atol=1e-6)
    heavy = again(model, x, y, np.full(len(x), 8.0) if weight is None else 8 * weight)
    np.testing.assert_allclose(heavy.predict_proba(x), expected, atol=1e-6)
    alone = np.concatenate([model.predict_proba(row[None]) for row in x[:7]])
    np.testing.assert_allclose(alone, expected[:7], atol=1e-9)

"""Model files: the same bits back, written whole or not at all."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import mnemosphere as mn
from quick_models import assert_same_model, reloaded, small

pytestmark = pytest.mark.usefixtures("quick_choice")

NAN = float("nan")


def test_round_trip_is_exact(data, fresh, tmp_path):
    model = small(geometry="standard", varsigma=0.7, precision="float32").fit(data.x, data.y)
    loaded = reloaded(model, tmp_path)
    assert_same_model(model, loaded, fresh.x)
    assert np.array_equal(model.recall(fresh.x), loaded.recall(fresh.x))
    drawn = [m.sample(5, random_state=3)[0] for m in (model, loaded)]
    assert np.array_equal(*drawn)
    x = torch.from_numpy(fresh.x)
    assert torch.equal(mn.export.DAMModule(model.model_)(x), mn.export.DAMModule(loaded.model_)(x))
    again = [str(m.certify(data.x, data.y)) for m in (model, loaded)]
    assert again[0] == again[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": mn.SGD(0.003, 0.9, batch_size=29, patience=7), "max_iter": 3},
        {"solver": mn.FixedPoint(batch_size=31), "objective": "joint", "max_iter": 2},
        {"solver": mn.Adam(noise=0.25, batch_size=29), "max_iter": 2},
        {"objective": "joint", "growth": 5, "max_iter": 2},
        {"n_memories": np.int64(5), "varsigma": np.float32(0.5), "class_weight": {0: 1.0, 2: 3.0}},
    ],
    ids=["sgd", "batches", "adam", "growth", "numbers"],
)
def test_settings_come_back(data, fresh, tmp_path, settings):
    """As equal objects, through clone too, and a fit with them gives the same bits."""
    model = small(**{"objective": "auto"} | settings).fit(data.x, data.y)
    loaded = reloaded(model, tmp_path)
    assert loaded.get_params() == model.get_params() == clone(model).get_params()
    again = clone(loaded).fit(data.x, data.y)
    assert np.array_equal(again.predict_proba(fresh.x), model.predict_proba(fresh.x))


@pytest.mark.parametrize("marker", [NAN, "?", object()], ids=["nan", "text", "object"])
def test_marker_of_unlabeled_rows(data, tmp_path, marker):
    model = small(n_memories=5, max_iter=1, unlabeled=marker)
    model.fit(data.x, np.where(np.arange(61) < 30, "a", "b").astype(object))
    back = reloaded(model, tmp_path).unlabeled
    if isinstance(marker, float):
        assert np.isnan(back)
    else:
        assert back == (marker if isinstance(marker, str) else None)


@pytest.mark.parametrize(
    "names",
    [
        np.array([-5, 0, 7], dtype=np.int8),
        np.array([0, 1, 2**63], dtype=np.uint64),
        np.array([0.0, 1.0, 2.0]),
        np.array(["ant", "bee", "größte Wespe"]),
        np.array(["ant", "bee", "wasp"], dtype=object),
    ],
    ids=["int8", "uint64", "float", "str", "object"],
)
def test_labels_of_several_types(data, fresh, tmp_path, names):
    model = small(n_memories=5, max_iter=2)
    model.fit(data.x, names[data.y])
    assert_same_model(model, reloaded(model, tmp_path), fresh.x)


def test_labels_that_cannot_be_saved_are_refused_by_fit(data):
    days = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")
    model = small(n_memories=3, max_iter=1)
    with pytest.raises(TypeError, match=r"labels must be numbers, texts .* got datetime64\[D\]"):
        model.fit(data.x, days[data.y])


def test_rows_that_are_all_alike_get_class_frequencies(tmp_path):
    """They leave nothing that a metric could be learned from."""
    model = mn.DAMClassifier(2, geometry="whitened", search=None, random_state=0)
    model.fit(np.ones((40, 3)), np.repeat([0, 1], 20))
    rows = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, -1.0]])
    np.testing.assert_allclose(reloaded(model, tmp_path).predict_proba(rows), 0.5, atol=1e-6)

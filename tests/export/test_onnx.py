"""The ONNX graph in onnxruntime, and the torch module exported: the same answers."""

import functools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import StandardScaler

import mnemosphere as mn
from mnemosphere.geometry import KINDS, Product
from mnemosphere.model.one_pass import log_joint
from problems import slow_but
from quick_models import graph_answers, small

assert_close = functools.partial(np.testing.assert_allclose, rtol=0)
B = 1000


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(B) % 5
    x = 2 * np.random.default_rng(9).normal(size=(5, 13))[y] + rng.normal(size=(B, 13))
    return (x * 3 + 1).astype(np.float32), y


def fit(kind, y=None, **settings):
    x, labels = rows(kind)
    model = small(n_memories=29, geometry=kind, varsigma=0.6, **settings)
    return model.fit(x, labels if y is None else y[labels])


# Other geometries are in surfaces/test_matrix.


@pytest.mark.parametrize("objective", ["joint", "conditional"])
@pytest.mark.parametrize("again", [False, True])
def test_the_graph_rejects_the_same_rows_for_the_same_reasons(objective, again, tmp_path):
    x, y = rows("standard")
    labels = np.where(y == 4, mn.OUT_OF_SCOPE, y.astype(str))
    model = mn.DAMClassifier(search=None, objective=objective, random_state=0).fit(x, labels)
    fresh, truth = rows("standard", 1)
    if again:  # rejection goes by the temperature of the fit
        model.calibrate(fresh[truth < 4], truth[truth < 4].astype(str))
    asked = np.vstack([fresh, -3 * fresh[:50], np.full((1, 13), np.nan)])
    wanted = mn.interpret.rejections(model.model_, asked)
    found = graph_answers(model, tmp_path, asked)
    assert_close(found["reasons"], wanted.tails, rtol=1e-3, atol=1e-2)
    agree = found["is_rejected"] == wanted.rejected
    assert agree.mean() > 0.995
    assert {"like rows out of scope", "unlike all known rows", None} <= {*wanted.reasons}
    assert_close(found["shares"], model.model_.shares(asked), atol=1e-5)


def test_without_a_uniform_component_rows_far_from_all_memories_keep_their_class(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = np.eye(3)[y] + 0.02 * rng.normal(size=(300, 3))
    model = small(n_memories=3, varsigma=1.0, uniform_weight=0.0, max_iter=None).fit(x, y)
    model.model_ = model.model_.replace(votes=model.model_.votes.at(0.1))
    far = np.array([[1.0, 0.95, 0.9], [0.9, 1.0, 0.95], [0.95, 0.9, 1.0]], dtype=np.float32)
    proba = model.predict_proba(far)
    assert proba.argmax(1).tolist() == [0, 1, 2]
    assert proba.max(1).min() > 0.9
    found = graph_answers(model, tmp_path, far)
    assert_close(found["probabilities"], proba, atol=1e-5)


def test_images_at_full_size(digits, tmp_path):
    # The blank border is hundreds of equal products, which single precision rounds alike.
    x, fresh = (v.astype(np.float32) for v in (digits.x_train[:500], digits.x_test))
    settings = {"geometry": "center", "varsigma": 0.3, "precision": "float32", "max_iter": 2}
    model = small(n_memories=53, **settings).fit(x, digits.y_train[:500])
    found = graph_answers(model, tmp_path, fresh)
    wanted = model.predict_proba(fresh)
    unit, _ = model.model_.geometry.place(torch.from_numpy(fresh))
    scores = log_joint(model.model_.votes.to(dtype=torch.float64), unit)[:, :-1]
    assert_close(wanted, scores.softmax(1), atol=1e-12)
    assert_close(found["probabilities"], wanted, atol=1e-6)
    np.testing.assert_array_equal(found["label"], model.predict(fresh))
    assert 0.02 < np.median(1 - wanted.max(1)) < 0.98  # probabilities in between, not 0 and 1


def test_what_holds_no_model_is_refused(tmp_path):
    with pytest.raises(TypeError, match="DAMClassifier or DAMClusterer is wanted, got StandardSc"):
        mn.to_onnx(StandardScaler(), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "names", [["a", "b", "ü 🦆", "d", ""], [7, -3, 11, 2, 5], [1.0, 3.0, 5.0, 7.0, 9.0]]
)
def test_labels_keep_their_type(names, tmp_path):
    model = fit("unit", np.array(names))
    x, _ = rows("unit", 2)
    found = graph_answers(model, tmp_path, x)["label"]
    assert found.tolist() == model.predict(x).tolist()
    assert len(set(found.tolist())) == 5


def test_any_number_of_rows_and_rows_without_direction(tmp_path):
    model = fit("center")
    x = np.stack([np.zeros(13), np.full(13, 7.0), np.arange(13.0)]).astype(np.float32)
    for part in (x, x[:1]):
        found = graph_answers(model, tmp_path, part)
        assert_close(found["probabilities"], model.predict_proba(part), atol=1e-5)
        np.testing.assert_allclose(found["novelty_score"], model.novelty_score(part), rtol=1e-6)


def test_a_clusterer(tmp_path):
    x, _ = rows("unit")
    model = mn.DAMClusterer(5, n_memories=11, geometry="unit", random_state=0).fit(x)
    found = graph_answers(model, tmp_path, x)
    np.testing.assert_array_equal(found["label"], model.predict(x))
    assert_close(found["probabilities"], model.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("kind", slow_but(["circles"], KINDS))
def test_the_torch_module_can_be_exported(kind):
    x, y = rows(kind, 3)
    if KINDS[kind].of is Product:
        frame = pd.DataFrame(x[:, 3:]).rename(columns=str).assign(text=list(x[:, :3]))
        model = small(n_memories=7, geometry=kind, max_iter=2).fit(frame, y).model_
        more = torch.from_numpy(x[:53, [*range(3, 13), *range(3)]].astype(np.float64))
    else:
        model = small(n_memories=7, geometry=kind, max_iter=2).fit(x, y).model_
        more = torch.from_numpy(x[:53].astype(np.float64))
    more[::5, 4] = torch.nan
    module = mn.export.DAMModule(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        exported = torch.export.export(
            module, (more[:7],), dynamic_shapes=({0: torch.export.Dim("batch")},)
        ).module()
    torch.testing.assert_close(exported(more), model.log_proba(more), rtol=0, atol=1e-9)
    torch.testing.assert_close(exported(more * 1e200), module(more * 1e200), rtol=0, atol=1e-12)


def test_times_in_seconds_keep_their_digits(tmp_path):
    """Rows far from zero, whose differences single precision does not hold."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    x = np.c_[1.7e9 + 30 * y + rng.normal(size=200), rng.normal(size=200)]
    model = mn.DAMClassifier(4, geometry="standard", search=None, random_state=0).fit(x, y)
    assert graph_answers(model, tmp_path, x)["label"].tolist() == model.predict(x).tolist()

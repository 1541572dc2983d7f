"""The ONNX graph in onnxruntime, and the torch module exported: the same answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere.model.kernel import log_joint

onnxruntime = pytest.importorskip("onnxruntime")
B = 1000


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(B) % 5
    x = 2 * np.random.default_rng(9).normal(size=(5, 13))[y] + rng.normal(size=(B, 13))
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if kind == "none" else x * 3 + 1
    return x.astype(np.float32), y


def run(model, path, x):
    model.to_onnx(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"rows": x}), strict=True))


def fit(kind, y=None, **settings):
    x, labels = rows(kind)
    model = mn.DAMClassifier(29, normalize=kind, varsigma=0.6, random_state=0, **settings)
    return model.fit(x, labels if y is None else y[labels])


@pytest.mark.parametrize("kind", ["center", "unit", "standard", "none"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_every_normalization_gives_the_same_answers(kind, precision, tmp_path):
    model = fit(kind, precision=precision)
    fresh, y = rows(kind, 1)
    model.calibrate(fresh, y).calibrate_novelty(fresh, 0.1)
    found = run(model, tmp_path / "m.onnx", fresh)
    np.testing.assert_array_equal(found["label"], model.predict(fresh))
    np.testing.assert_allclose(
        found["probabilities"], model.predict_proba(fresh), atol=1e-5, rtol=0
    )
    np.testing.assert_allclose(
        found["novelty_score"], model.novelty_score(fresh), atol=2e-4, rtol=1e-5
    )
    wanted = model.novelty_score(fresh)
    far = np.abs(wanted - model.novelty_threshold_) > 1e-3
    np.testing.assert_array_equal(found["is_novel"][far], model.is_novel(fresh)[far])
    assert found["is_novel"].dtype == bool
    assert 50 < found["is_novel"].sum() < 150


def test_images_at_full_size(image_model, digits, tmp_path):
    # Of 784 products in single precision a probability keeps nearly five digits, in Python too.
    found = run(image_model, tmp_path / "m.onnx", digits.x_test.astype(np.float32))
    unit, _ = image_model._normalizer(torch.from_numpy(digits.x_test))
    scores = log_joint(image_model._class_params.to(dtype=torch.float64), unit)[:, :-1]
    np.testing.assert_allclose(found["probabilities"], scores.softmax(1), atol=2e-5, rtol=0)
    np.testing.assert_array_equal(found["label"], image_model.predict(digits.x_test))
    assert "is_novel" not in found


@pytest.mark.parametrize(
    "names", [["a", "b", "ü 🦆", "d", ""], [7, -3, 11, 2, 5], [0.5, 1.5, 2.5, 3.5, 4.5]]
)
def test_labels_keep_their_type(names, tmp_path):
    if isinstance(names[0], float):
        names = [int(2 * v) / 1.0 for v in names]  # whole floats are labels, others targets
    model = fit("unit", np.array(names))
    x, _ = rows("unit", 2)
    found = run(model, tmp_path / "m.onnx", x)["label"]
    assert found.tolist() == model.predict(x).tolist()
    assert len(set(found.tolist())) == 5


def test_any_number_of_rows_and_rows_without_direction(tmp_path):
    model = fit("center")
    x = np.stack([np.zeros(13), np.full(13, 7.0), np.arange(13.0)]).astype(np.float32)
    for part in (x, x[:1]):
        found = run(model, tmp_path / "m.onnx", part)
        np.testing.assert_allclose(
            found["probabilities"], model.predict_proba(part), atol=1e-5, rtol=0
        )
        np.testing.assert_array_equal(np.isinf(found["novelty_score"]), ~part.std(1).astype(bool))


def test_a_clusterer(tmp_path):
    x, _ = rows("unit")
    model = mn.DAMClusterer(5, n_memories=11, normalize="unit", random_state=0).fit(x)
    found = run(model, tmp_path / "m.onnx", x)
    np.testing.assert_array_equal(found["label"], model.predict(x))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["center", "standard"])
def test_the_torch_module_can_be_exported(kind):
    model = fit(kind)
    module = model.to_torch()
    x, _ = rows(kind, 3)
    some = torch.from_numpy(x[:7].astype(np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        exported = torch.export.export(
            module, (some,), dynamic_shapes=({0: torch.export.Dim("batch")},)
        ).module()
    more = torch.from_numpy(x[:53].astype(np.float64))
    unit, _ = model._normalizer(more)
    torch.testing.assert_close(exported(more), log_joint(model.params_, unit), rtol=0, atol=1e-9)
    huge = more * 1e200 if kind == "center" else more
    torch.testing.assert_close(exported(huge), module(huge), rtol=0, atol=1e-12)

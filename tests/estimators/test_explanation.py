"""Explanations: they add up to the prediction, and can be printed and drawn."""

import matplotlib as mpl
import numpy as np
import pytest

import class_formula
import mnemosphere as mn
from quick_models import small

mpl.use("Agg")


@pytest.mark.parametrize("calibrated", [False, True])
def test_explanations_add_up_to_the_prediction(read, data, fresh, calibrated):
    model, x, _, _ = read
    if calibrated:
        model = mn.as_estimator(model.model_).calibrate(fresh.x, fresh.y)
        assert model.temperature_ != 1.0
    shares, soft, proba = class_formula.of_model(model, x.numpy())
    found = model.explain(fresh.x, n_memories=7)
    joint, standing = np.zeros_like(shares[:, 1:]), model.model_.standing.numpy()
    for m, leader in enumerate(standing):  # memories that cannot be distinguished are shown as one
        joint[:, leader] += shares[:, 1 + m]
    assert np.allclose(np.take_along_axis(joint, found.memory, 1), found.share, rtol=1e-9)
    assert (found.n_alike == (standing == found.memory[..., None]).sum(-1)).all()
    assert found.memory.shape == (47, len(set(standing)))
    assert (np.diff(found.share, axis=1) <= 0).all()
    assert np.allclose(found.uniform_share, shares[:, 0], rtol=1e-9)
    overlap = (x @ model.model_.votes.w.T).numpy()
    assert np.allclose(np.take_along_axis(overlap, found.memory, 1), found.overlap, rtol=1e-9)
    alone = found.n_alike == 1
    own = soft[1:][found.memory]
    assert np.allclose(found.soft_label[alone], own[alone], rtol=1e-10, atol=1e-14)
    assert np.allclose(found.soft_label, own, rtol=0, atol=0.01)
    # Σ share × soft label over all components is P(class | x), among the C classes.
    total = np.einsum("nk,nkc->nc", found.share, found.soft_label)
    total += found.uniform_share[:, None] * soft[0]
    total = total[:, :-1] / total[:, :-1].sum(axis=1, keepdims=True)
    assert np.allclose(total, model.predict_proba(fresh.x), rtol=1e-10, atol=0)
    assert np.allclose(total, proba, rtol=1e-9, atol=0)
    assert np.array_equal(found.predicted, model.predict(fresh.x))
    assert np.allclose(found.probability, total.max(axis=1), rtol=1e-10)
    assert np.allclose(found.proba, total, rtol=1e-10)
    assert np.array_equal(found.runner_up, model.classes_[np.argsort(total, axis=1)[:, -2]])
    if model.geometry_ in ("standard", "circles"):
        assert np.allclose(found.rows, fresh.x)
        assert np.abs(model.memories_).max() < 2 * np.abs(data.x).max()
    else:
        assert np.allclose(found.rows, x)


def test_explanation_as_table_and_picture(grown, images):
    found = grown.explain(images.x_test[:3], n_memories=4)
    assert [len(reasons) for reasons in found] == [4, 4, 4]
    assert f"row 0: class {found.predicted[0]}" in str(found)
    assert "pull" not in str(found)  # hundreds of pixels are no features to read
    table = found.table()
    assert table[["row", "rank"]].iloc[4:6].to_numpy().tolist() == [["1", 1], ["1", 2]]
    found.plot(1, image_shape=images.image_shape, truth=images.y_test[1]).canvas.draw()


def test_names_of_classes_are_text_in_a_notebook(data):
    names = np.array(["<b>ant", "bee", "cat"])
    assert "<b>ant" not in small().fit(data.x, names[data.y]).explain(data.x)._repr_html_()

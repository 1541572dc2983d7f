"""What goes into a page: which rows, in which precision, as images or as tables."""

import base64
import zlib

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss

from mnemosphere.export.facts import calibration_curve
from mnemosphere.export.pack import pack, pack_rows
from mnemosphere.export.payload import payload


def unpack(stored):
    kind = np.dtype(stored["kind"])
    planes = np.frombuffer(zlib.decompress(base64.b64decode(stored["data"])), np.uint8)
    values = planes.reshape(kind.itemsize, -1).T.copy().view(kind)
    return values.reshape(stored["shape"])


@pytest.mark.parametrize("kind", ["u1", "i1", "f4", "f8"])
def test_packed_arrays_come_back_to_the_bit(kind):
    values = (np.random.default_rng(0).random(size=(7, 5)) * 100).astype(kind)
    np.testing.assert_array_equal(unpack(pack(values)), values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[0.0, 255.0], [3, 4]], "u1"),
        ([[-3.0, 255.0], [3, 4]], "f8"),
        ([[0.5, np.nan], [3, 4]], "f8"),
    ],
)
def test_pixels_take_a_byte_each(values, kind):
    stored = pack_rows(np.array(values))
    assert stored["kind"] == kind
    np.testing.assert_array_equal(unpack(stored), values)


def test_figures_are_those_of_scikit_learn(wine_model, wines):
    x, y = wines
    measured = payload(wine_model.model_, x, y)["measured"]
    count = confusion_matrix(y, wine_model.predict(x))
    assert measured["confusion"] == [[a, b, count[a, b]] for a, b in np.argwhere(count).tolist()]
    assert measured["accuracy"] == accuracy_score(y, wine_model.predict(x))
    assert measured["log_loss"] == pytest.approx(log_loss(y, wine_model.predict_proba(x)))


def test_calibration_of_answers_that_are_too_sure():
    sure = np.array([0.95] * 20 + [0.55] * 10)
    right = np.array([True] * 10 + [False] * 10 + [True] * 5 + [False] * 5)
    wanted = [(pytest.approx(0.55), 0.5, 10), (pytest.approx(0.95), 0.5, 20)]
    assert calibration_curve(sure, right) == wanted


def test_packed_rows_keep_the_shares_of_the_classes(wine_model, wines):
    x, y = wines
    found = payload(wine_model.model_, x, y, max_rows=50)
    labels = np.array(found["classes"])[found["rows"]["y"]]
    numbers = np.array(found["rows"]["number"]).astype(int)
    np.testing.assert_array_equal(labels, y[numbers])
    assert len(set(numbers.tolist())) == 50
    for name in np.unique(y):
        assert abs((labels == name).mean() - (y == name).mean()) <= 1 / 50
    np.testing.assert_allclose(unpack(found["rows"]["x"]), x.to_numpy()[numbers], rtol=1e-6)


@pytest.mark.parametrize("given", [3.5, 0, "7"])
def test_how_many_rows_to_pack_is_a_whole_number(tmp_path, wine_model, wines, given):
    with pytest.raises(ValueError, match=rf"max_rows must be .* >= 1, got {given!r}"):
        wine_model.explore(tmp_path / "page.html", *wines, max_rows=given)


def test_what_is_an_image_and_what_a_table(image_model, wine_model, digits):
    x = digits.x_test[:2]
    assert payload(image_model.model_)["image"] == (28, 28)
    assert payload(image_model.model_, image_shape=(14, 56))["image"] == (14, 56)
    assert payload(image_model.model_, image_shape=None)["image"] is None
    assert payload(image_model.model_, x - 9.0)["image"] is None
    assert payload(wine_model.model_)["image"] is None
    with pytest.raises(ValueError, match="784"):
        payload(image_model.model_, image_shape=(28, 27))


def test_the_axes_of_the_map_are_those_of_the_largest_variance(wine_model, wines):
    model = wine_model.model_
    x = model.on_sphere(wines[0])[0].double().numpy()
    axes = unpack(payload(model, *wines)["axes"])
    values, vectors = np.linalg.eigh(np.cov(x.T))
    np.testing.assert_allclose(np.abs(np.sum(axes * vectors.T[[-1, -2]], axis=1)), 1.0)
    np.testing.assert_allclose(np.var(x @ axes.T, axis=0, ddof=1), values[[-1, -2]])

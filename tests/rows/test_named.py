import numpy as np
import pytest
import sklearn.datasets

from mnemosphere.rows import named


def test_texts_in_the_package_are_real_and_named():
    d = named.load_data("banking-small")
    for x, y, n in ((d.x_train, d.y_train, 30), (d.x_test, d.y_test, 10)):
        names, counts = np.unique(y, return_counts=True)
        assert tuple(names) == d.class_names
        assert (counts == n).all()
        assert all(isinstance(text, str) and len(text) > 5 for text in x)
    assert not {*d.x_train} & {*d.x_test}
    assert "100 test texts" in repr(d)


def test_mnist_small_facts():
    data = named.load_data("mnist-small")
    assert data.x_train.shape == (5000, 784)
    assert data.x_test.shape == (1000, 784)
    assert data.x_train.dtype == np.uint8
    assert data.image_shape == (28, 28)
    assert data.class_names == tuple("0123456789")
    np.testing.assert_array_equal(np.bincount(data.y_train), [500] * 10)
    np.testing.assert_array_equal(np.bincount(data.y_test), [100] * 10)
    whole = np.concatenate([data.x_train, data.x_test])
    assert len({row.tobytes() for row in whole}) == 6000  # no image twice, none in both parts
    # MNIST puts each digit's center of mass at the center of the image.
    centers = (whole.reshape(-1, 28, 28) @ np.arange(28.0)).sum(1) / whole.sum(1)
    np.testing.assert_allclose(centers.mean(), 14, atol=0.5)


def test_digits_split_is_disjoint_complete_and_stratified():
    data = named.load_data("digits")
    whole = sklearn.datasets.load_digits()
    together = np.concatenate([data.x_train, data.x_test])
    labels = np.concatenate([data.y_train, data.y_test])
    got = sorted((*row, label) for row, label in zip(together.tolist(), labels, strict=True))
    want = sorted((*r, t) for r, t in zip(whole.data.tolist(), whole.target, strict=True))
    assert got == want
    assert len({row.tobytes() for row in whole.data}) == len(whole.data)  # so: disjoint
    assert (len(data.x_train), len(data.x_test)) == (1442, 355)
    np.testing.assert_allclose(np.bincount(data.y_test) / np.bincount(labels), 0.2, atol=0.005)
    assert data.x_train.dtype == np.float64
    assert data.image_shape == (8, 8)
    np.testing.assert_array_equal(data.x_test[0], whole.data[whole.target == data.y_test[0]][4])


def test_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="'mnits': try one of mnist-small, digits, banking-small"):
        named.load_data("mnits")

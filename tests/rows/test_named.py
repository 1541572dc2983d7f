import gzip
import struct

import numpy as np
import pytest
import sklearn.datasets

from mnemosphere.rows import named

STEMS = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch):
    monkeypatch.delenv("MNEMOSPHERE_DATA", raising=False)


def test_texts_in_the_package_are_real_and_named():
    d = named.load_data("banking-small")
    for x, y, n in ((d.x_train, d.y_train, 30), (d.x_test, d.y_test, 10)):
        names, counts = np.unique(y, return_counts=True)
        assert tuple(names) == d.class_names
        assert (counts == n).all()
        assert all(isinstance(text, str) and len(text) > 5 for text in x)
    assert not {*d.x_train} & {*d.x_test}
    assert "100 test texts" in repr(d)


def image_bytes(images):
    return struct.pack(">IIII", 2051, *images.shape) + images.tobytes()


def label_bytes(labels):
    return struct.pack(">II", 2049, len(labels)) + labels.tobytes()


def write_folder(folder, seed=0, pack=None):
    """Write a small data set of 5x3 images; returns the arrays."""
    rng = np.random.default_rng(seed)
    shapes = (256, (13, 5, 3)), (10, 13), (256, (7, 5, 3)), (10, 7)
    arrays = [rng.integers(0, most, shape, dtype=np.uint8) for most, shape in shapes]
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in zip(STEMS, arrays, strict=True):
        content = image_bytes(array) if array.ndim == 3 else label_bytes(array)
        suffix = ".gz" if pack else ""
        (folder / (stem + suffix)).write_bytes(pack(content) if pack else content)
    return arrays


def assert_holds(dataset, arrays):
    for name, array in zip(("x_train", "y_train", "x_test", "y_test"), arrays, strict=True):
        np.testing.assert_array_equal(getattr(dataset, name).reshape(array.shape), array)


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


@pytest.mark.parametrize("pack", [None, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("subfolder", ["", "mnist"])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_idx_files_are_found(tmp_path, monkeypatch, pack, subfolder, by):
    arrays = write_folder(tmp_path / subfolder, pack=pack)
    monkeypatch.setenv("MNEMOSPHERE_DATA", str(tmp_path) if by == "environment" else "")
    data = named.load_data("mnist", directory=str(tmp_path) if by == "argument" else None)
    assert_holds(data, arrays)
    assert data.image_shape == (5, 3)
    assert data.x_train.shape == (13, 15)
    assert data.y_train.dtype == np.int64
    assert data.x_train.flags.writeable


def test_the_two_data_sets_are_not_confused(tmp_path):
    write_folder(tmp_path / "mnist", seed=1)
    with pytest.raises(FileNotFoundError, match="no files of fashion-mnist"):
        named.load_data("fashion-mnist", tmp_path / "mnist")
    write_folder(tmp_path, seed=2)
    clothes = write_folder(tmp_path / "fashion-mnist", seed=3)
    assert_holds(named.load_data("fashion-mnist", tmp_path), clothes)


def test_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="'mnits': try one of mnist-small, digits, banking-small,"):
        named.load_data("mnits")


def test_incomplete_folder_names_the_missing_files(tmp_path):
    write_folder(tmp_path)
    (tmp_path / STEMS[1]).unlink()
    (tmp_path / STEMS[2]).unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {STEMS[1]}, {STEMS[2]} "):
        named.load_data("mnist", tmp_path)


@pytest.mark.parametrize(
    ("stem", "content", "message"),
    [
        (STEMS[1], label_bytes(np.zeros(12, np.uint8)), r"shape \(12,\)"),
        (STEMS[3], label_bytes(np.full(7, 11, np.uint8)), "up to 11 "),
        (STEMS[3], label_bytes(np.zeros(0, np.uint8)), r"shape \(0,\)"),
        (STEMS[2], image_bytes(np.zeros((7, 5, 2), np.uint8)), r"\(7, 5, 2\)"),
        (STEMS[2], b"<html>not found</html>", "not an IDX file"),
    ],
)
def test_bad_idx_files_are_named(tmp_path, stem, content, message):
    write_folder(tmp_path)
    (tmp_path / stem).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        named.load_data("mnist", tmp_path)
    assert str(tmp_path / stem) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_files_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="no files of mnist found") as error:
        named.load_data("mnist", tmp_path)
    text = str(error.value)
    assert all(part in text for part in (*STEMS, "DIR/mnist", "MNEMOSPHERE_DATA"))
    assert "\n" not in text

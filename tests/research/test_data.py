"""MNIST from its files, which are written here by the format's description."""

import gzip
import struct

import numpy as np
import pytest

from research.data import STEMS, load_data, read_idx


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch):
    monkeypatch.delenv("MNEMOSPHERE_DATA", raising=False)


def idx_bytes(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_folder(folder, seed=0, pack=None):
    """Write a small data set of 5x3 images; returns the arrays."""
    rng = np.random.default_rng(seed)
    shapes = (256, (13, 5, 3)), (10, 13), (256, (7, 5, 3)), (10, 7)
    arrays = [rng.integers(0, most, shape, dtype=np.uint8) for most, shape in shapes]
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in zip(STEMS, arrays, strict=True):
        content = idx_bytes(array)
        (folder / (stem + (".gz" if pack else ""))).write_bytes(pack(content) if pack else content)
    return arrays


def assert_holds(data, arrays):
    for name, array in zip(("x_train", "y_train", "x_test", "y_test"), arrays, strict=True):
        np.testing.assert_array_equal(getattr(data, name).reshape(array.shape), array)


@pytest.mark.parametrize("pack", [None, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("subfolder", ["", "mnist"])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_files_are_found(tmp_path, monkeypatch, pack, subfolder, by):
    arrays = write_folder(tmp_path / subfolder, pack=pack)
    monkeypatch.setenv("MNEMOSPHERE_DATA", str(tmp_path) if by == "environment" else "")
    data = load_data("mnist", directory=str(tmp_path) if by == "argument" else None)
    assert_holds(data, arrays)
    assert data.image_shape == (5, 3)
    assert data.x_train.shape == (13, 15)
    assert data.x_train.flags.writeable


def test_the_two_data_sets_are_not_confused(tmp_path):
    write_folder(tmp_path / "mnist", seed=1)
    with pytest.raises(FileNotFoundError, match="no files of fashion-mnist"):
        load_data("fashion-mnist", tmp_path / "mnist")
    write_folder(tmp_path, seed=2)
    clothes = write_folder(tmp_path / "fashion-mnist", seed=3)
    assert_holds(load_data("fashion-mnist", tmp_path), clothes)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\0\0\x08\x02\0\0\0\x05"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / STEMS[0]
    for bad in (content, idx_bytes(np.arange(35, dtype=np.uint8).reshape(5, 7))[:-1]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=f"{STEMS[0]} is no IDX file"):
            read_idx(path)

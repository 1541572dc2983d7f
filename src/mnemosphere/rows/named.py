"""Named data sets: `load_data(name)` returns the same fixed train/test split everywhere."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere.rows.idx import read_idx

_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
            "Bag", "Ankle boot")  # fmt: skip
_STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
          "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")  # fmt: skip
# Images (n, rows, columns) and classes (n,) of the training and the test part.
_Arrays = Sequence[NDArray[Any]]


_IDX_SOURCES = {"mnist": _DIGITS, "fashion-mnist": _CLOTHES}  # with the names of the classes
NAMES: tuple[str, ...] = ("mnist-small", "digits", "banking-small", *_IDX_SOURCES)


@dataclass(frozen=True, eq=False, repr=False)
class NamedData:
    """Rows with labels, split into training and test rows.

    Attributes
    ----------
    name : str
        Name of the data set.
    x_train : ndarray of shape (n, N), or (n,) for texts
        Training rows as stored: uint8 pixels, float64 for "digits", or texts.
    y_train : ndarray of shape (n,)
        Numbers of the classes in `class_names`; for texts, the names themselves.
    x_test : ndarray of shape (m, N), or (m,) for texts
        Test rows.
    y_test : ndarray of shape (m,)
        Their classes.
    image_shape : (rows, columns) or None
        How a row is an image; None for texts.
    class_names : tuple of C str
        Names of the classes.

    Examples
    --------
    >>> mn.load_data("digits")
    NamedData('digits': 1442 train + 355 test images of 8x8, 10 classes)
    """

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    image_shape: tuple[int, int] | None
    class_names: tuple[str, ...]

    def __repr__(self) -> str:
        shape = self.image_shape
        what = "texts" if shape is None else f"images of {shape[0]}x{shape[1]}"
        return (
            f"NamedData({self.name!r}: {len(self.x_train)} train + {len(self.x_test)} test {what}, "
            f"{len(self.class_names)} classes)"
        )


def load_data(name: str, directory: str | Path | None = None) -> NamedData:
    """Load a data set by name, with a fixed split into training and test rows.

    - "mnist-small": 5,000 + 1,000 MNIST digits, the first 500 and 100 of each, in the package.
    - "digits": scikit-learn's 8x8 digits, 1,442 + 355. Every fifth image of each class is a test row.
    - "banking-small": 300 + 100 questions to a bank with 10 intents, in the package (Casanueva et al.,
      2020, CC BY 4.0).
    - "mnist" (LeCun, Cortes and Burges) and "fashion-mnist" (Xiao, Rasul and Vollgraf, 2017): 60,000 +
      10,000 images of 28x28 from the four standard IDX files, plain or .gz. They are looked for in
      `directory/<name>`, `directory`, `$MNEMOSPHERE_DATA/<name>` and `$MNEMOSPHERE_DATA`.

    Parameters
    ----------
    name : str
        One of these names. The first three need no files.
    directory : str or path, default None
        Where the files of the last two are.

    Returns
    -------
    NamedData
        The rows and labels.

    Examples
    --------
    >>> named = mn.load_data("digits")
    >>> named.x_train.shape, named.image_shape
    ((1442, 64), (8, 8))
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}: try one of {', '.join(NAMES)}")
    if name in _IDX_SOURCES:
        return _load_idx(name, None if directory is None else Path(directory))
    packaged = {
        "mnist-small": _load_mnist_small,
        "digits": _load_digits,
        "banking-small": _load_banking_small,
    }
    return packaged[name]()


def _load_mnist_small() -> NamedData:
    resource = files("mnemosphere.rows").joinpath("embedded", "mnist-small.npz")
    with resource.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        arrays = [stored[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    return _named("mnist-small", arrays, _DIGITS)


def _load_banking_small() -> NamedData:
    resource = files("mnemosphere.rows").joinpath("embedded", "banking-small.tsv")
    _, _, *lines = resource.read_text(encoding="utf-8").splitlines()
    rows = np.array([line.split("\t") for line in lines], dtype=object)  # part, label, text
    train, test = rows[rows[:, 0] == "train"], rows[rows[:, 0] == "test"]
    return NamedData(
        "banking-small", train[:, 2], train[:, 1].astype(str), test[:, 2], test[:, 1].astype(str),
        None, tuple(sorted({*rows[:, 1]})),
    )  # fmt: skip


def _load_digits() -> NamedData:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images, bunch.target
    # Every fifth row overall would not do: the labels repeat 0..9 in long stretches of the file.
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(len(_DIGITS)):
        is_test[np.flatnonzero(labels == label)[4::5]] = True
    parts = images[~is_test], labels[~is_test], images[is_test], labels[is_test]
    return _named("digits", parts, _DIGITS)


def _load_idx(name: str, directory: Path | None) -> NamedData:
    environment = os.environ.get("MNEMOSPHERE_DATA")
    roots = [root for root in (directory, environment and Path(environment)) if root]
    # The named subfolder first: both data sets use the same four file names.
    folders = [folder for root in roots for folder in (root / name, root)]
    others = {*_IDX_SOURCES} - {name}
    found = (_read_folder(folder) for folder in folders if folder.name not in others)
    arrays = next((own for own in found if own is not None), None)
    if arrays is None:
        raise FileNotFoundError(
            f"no files of {name} found: put {', '.join(_STEMS)} (plain or .gz) into a folder "
            f"DIR/{name} and pass directory=DIR or set MNEMOSPHERE_DATA=DIR"
        )
    return _named(name, arrays, _IDX_SOURCES[name])


def _read_folder(folder: Path) -> _Arrays | None:
    """What the four files in a folder hold; None if there are none."""
    options = {stem: (folder / stem, folder / f"{stem}.gz") for stem in _STEMS}
    found = {stem: next(filter(Path.is_file, own), None) for stem, own in options.items()}
    paths = [path for path in found.values() if path is not None]
    if not paths:
        return None
    if len(paths) < len(_STEMS):
        missing = ", ".join(stem for stem, path in found.items() if path is None)
        raise FileNotFoundError(
            f"{folder} holds some IDX files but lacks {missing} (plain or .gz): add them"
        )
    arrays = [read_idx(path) for path in paths]
    for k, (path, array) in enumerate(zip(paths, arrays, strict=True)):
        # Images are of the size of the first ones; labels are as many as the images before them.
        images = k % 2 == 0
        wanted = (len(array), *arrays[0].shape[1:3]) if images else arrays[k - 1].shape[:1]
        bad = array.shape != wanted or array.ndim != (3 if images else 1) or array.size == 0
        if bad or array.dtype != np.uint8 or (not images and array.max() >= len(_DIGITS)):
            raise ValueError(
                f"{path}: {array.dtype} of shape {array.shape} up to {array.max(initial=0)} does not "
                "go with the other files: download it again"
            )
    return arrays


def _named(name: str, arrays: _Arrays, class_names: tuple[str, ...]) -> NamedData:
    """Flatten images (n, rows, columns) to rows (n, d)."""
    x_train, y_train, x_test, y_test = arrays
    rows, columns = x_train.shape[1:]
    return NamedData(
        name, x_train.reshape(len(x_train), -1), y_train.astype(np.int64),
        x_test.reshape(len(x_test), -1), y_test.astype(np.int64), (rows, columns), class_names,
    )  # fmt: skip

"""Small data sets: `load_data(name)` returns the same fixed train/test split everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DIGITS = tuple("0123456789")
# Images (n, rows, columns) and classes (n,) of the training and the test part.
_Arrays = Sequence[NDArray[Any]]


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


def load_data(name: str) -> NamedData:
    """Load a data set by name, with a fixed split into training and test rows.

    - "mnist-small": 5,000 + 1,000 MNIST digits, the first 500 and 100 of each, in the package.
    - "digits": scikit-learn's 8x8 digits, 1,442 + 355. Every fifth image of each class is a test row.
    - "banking-small": 300 + 100 questions to a bank with 10 intents, in the package (Casanueva et al.,
      2020, CC BY 4.0).

    Parameters
    ----------
    name : {"mnist-small", "digits", "banking-small"}
        The data set.

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
    if name not in _LOAD:
        raise ValueError(f"unknown data set {name!r}: try one of {', '.join(_LOAD)}")
    return _LOAD[name]()


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


def _named(name: str, arrays: _Arrays, class_names: tuple[str, ...]) -> NamedData:
    """Flatten images (n, rows, columns) to rows (n, d)."""
    x_train, y_train, x_test, y_test = arrays
    rows, columns = x_train.shape[1:]
    return NamedData(
        name, x_train.reshape(len(x_train), -1), y_train.astype(np.int64),
        x_test.reshape(len(x_test), -1), y_test.astype(np.int64), (rows, columns), class_names,
    )  # fmt: skip


_LOAD = {
    "mnist-small": _load_mnist_small, "digits": _load_digits, "banking-small": _load_banking_small
}  # fmt: skip

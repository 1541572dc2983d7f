"""The rows a command works on: a built-in data set or a user's file."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere import datasets
from mnemosphere.datasets import read_table

_TEST_KEYS = (("x_test", "y_test"), ("X_test", "y_test"), ("X_test", "Y_test"))
_SUFFIXES = (".csv", ".npz", ".npy", ".parquet")


@dataclass(frozen=True, eq=False)
class Part:
    """Rows x (n, N) and their labels: y (n,), soft labels (n, C), or None."""

    x: NDArray[Any]
    y: NDArray[Any] | None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labels(self) -> NDArray[Any]:
        """The labels; ValueError where there are none."""
        if self.y is None:
            raise ValueError(
                "the data have no labels: name their column with --label, "
                "or pass --labels FILE with rows in a .npy file"
            )
        return self.y

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no label: None or NaN among numbers, "" among text, zeros if soft."""
        y = self.labels
        if y.ndim == 2:
            return np.asarray(y.sum(axis=1) == 0)
        if y.dtype.kind == "O":
            return np.array([value is None for value in y])
        return np.asarray(y == "") if y.dtype.kind == "U" else np.zeros(len(y), dtype=bool)

    @property
    def unlabeled(self) -> object:
        """The estimator's `unlabeled`: what marks a missing label here."""
        if self.labels.ndim == 2 or not self.missing.any():
            return None
        return "" if self.labels.dtype.kind == "U" else math.nan

    def judged(self) -> Part:
        """The labelled rows, with one label each: what accuracy is measured on."""
        known = ~self.missing
        if not known.any():
            raise ValueError("no row has a label: label some, or choose other rows with --split")
        y = self.labels[known]
        if y.ndim == 2:
            y = y.argmax(axis=1)
        elif y.dtype.kind == "O":
            y = np.array(y.tolist())
        return Part(self.x[known], y)

    def take(self, rows: NDArray[np.intp]) -> Part:
        """Some of the rows."""
        return Part(self.x[rows], None if self.y is None else self.y[rows])


@dataclass(frozen=True, eq=False)
class Source:
    """Where rows come from; `test` is None where the source has no split of its own."""

    name: str
    train: Part
    test: Part | None
    checksum: str
    image_shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    def part(self, split: str | None, default: str) -> Part:
        """The rows of a split: 'train', 'test' or 'all'; all rows where there is no split."""
        if split not in (None, "train", "test", "all"):
            raise ValueError(f"--split must be train, test or all, got {split!r}")
        if self.test is None:
            if split in ("train", "test"):
                raise ValueError(f"{self.name} has no {split} split of its own: drop --split")
            return self.train
        chosen = split or default
        if chosen == "all":
            both = [self.train, self.test]
            y = None
            if all(part.y is not None for part in both):
                y = np.concatenate([part.labels for part in both])
            return Part(np.concatenate([part.x for part in both]), y)
        return self.train if chosen == "train" else self.test

    def with_test(self, fraction: float, seed: int) -> Source:
        """Put rows aside for the test, of each class the same share, where there are none yet."""
        if not 0 <= fraction < 1:
            raise ValueError(f"--test-fraction must lie in [0, 1), got {fraction}")
        if self.test is not None or fraction == 0:
            return self
        y = self.train.labels
        key = y.argmax(axis=1) if y.ndim == 2 else np.array([str(v) for v in y])
        rng = np.random.default_rng(seed)
        known = ~self.train.missing
        held: list[NDArray[np.intp]] = []
        for label in np.unique(key[known]):
            members = rng.permutation(np.flatnonzero(known & (key == label)))
            held.append(members[: round(fraction * len(members))])
        test = np.sort(np.concatenate(held)) if held else np.array([], dtype=np.intp)
        if test.size == 0:
            return self
        kept = np.setdiff1d(np.arange(len(self.train)), test)
        return replace(self, train=self.train.take(kept), test=self.train.take(test))

    def label(self, value: Any) -> str:
        """The name of a label."""
        names = self.class_names
        if names and isinstance(value, int | np.integer) and 0 <= value < len(names):
            return names[int(value)]
        return str(value)


def load_source(
    data: str,
    *,
    label: str | int | None = None,
    labels: str | None = None,
    test: str | None = None,
    directory: str | None = None,
) -> Source:
    """Load a built-in data set by its name, or a file by its path."""
    if data in datasets.NAMES:
        for value, name in ((label, "--label"), (labels, "--labels"), (test, "--test")):
            if value is not None:
                raise ValueError(f"{name} is for files of your own: {data} is a built-in data set")
        return _built_in(data, directory)
    path = Path(data)
    if path.suffix.lower() not in _SUFFIXES and not path.exists():
        raise ValueError(
            f"no data set or file called {data!r}: try one of {', '.join(datasets.NAMES)}, "
            f"or the path of a {', '.join(_SUFFIXES)} file"
        )
    source = _from_file(path, _column(label), labels)
    if test is not None:
        other = _from_file(Path(test), _column(label), None)
        if other.train.y is None:
            raise ValueError(f"{test} has no labels: name their column with --label")
        n_features = source.train.x.shape[1]
        rows = _in_order(other, other.train, source.feature_names, n_features, data)
        source = replace(source, test=rows)
    return source


def _built_in(name: str, directory: str | None) -> Source:
    d = datasets.load(name, directory)
    return Source(
        name=name,
        train=Part(d.x_train, d.y_train),
        test=Part(d.x_test, d.y_test),
        checksum=_checksum(d.x_train, d.y_train, d.x_test, d.y_test),
        image_shape=d.image_shape,
        class_names=d.class_names,
    )


def _from_file(path: Path, label: str | int | None, labels: str | None) -> Source:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist: check the path, or use one of {', '.join(datasets.NAMES)}"
        )
    table = read_table(path, label=label)
    y = table.y if labels is None else _read_labels(Path(labels), len(table.x))
    train = Part(table.x, None if y is None else _tidy(y))
    return Source(
        name=str(path),
        train=train,
        test=_test_arrays(path, train) if path.suffix.lower() == ".npz" else None,
        checksum=f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
        feature_names=table.feature_names,
    )


def _test_arrays(path: Path, train: Part) -> Part | None:
    """x_test and y_test of a .npz file, where it has both."""
    with np.load(path, allow_pickle=False) as stored:
        for x_key, y_key in _TEST_KEYS:
            if x_key in stored.files and y_key in stored.files:
                x, y = stored[x_key], stored[y_key]
                x = x.reshape(len(x), -1)
                if len(x) != len(y) or x.shape[1] != train.x.shape[1]:
                    raise ValueError(
                        f"{path}: {x_key} {x.shape} fits neither {y_key} {y.shape} nor rows of "
                        f"{train.x.shape[1]} features"
                    )
                return Part(x, _tidy(y))
    return None


def _read_labels(path: Path, n_rows: int) -> NDArray[Any]:
    with path.open("rb") as stream:
        if stream.read(6) != b"\x93NUMPY":
            raise ValueError(f"{path} is not a .npy file: save the labels with numpy.save")
        stream.seek(0)
        y: NDArray[Any] = np.load(stream, allow_pickle=False)
    if y.ndim not in (1, 2) or len(y) != n_rows:
        raise ValueError(f"{path} holds labels of shape {y.shape}, expected ({n_rows},)")
    return y


def _column(label: str | int | None) -> str | int | None:
    return int(label) if isinstance(label, str) and re.fullmatch(r"-?\d+", label) else label


def _tidy(y: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as integers, None for a missing number."""
    if y.ndim == 2 or y.dtype.kind != "f":
        return y
    missing = np.isnan(y)
    known = y[~missing]
    whole: NDArray[Any] = known
    if (known == np.rint(known)).all():
        whole = known.astype(np.int64)
    if not missing.any():
        return whole
    out: NDArray[Any] = np.full(len(y), None, dtype=object)
    out[~missing] = whole.tolist()
    return out


def _checksum(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return f"sha256:{digest.hexdigest()}"


def match_features(
    source: Source, names: tuple[str, ...] | None, n_features: int, what: str
) -> Source:
    """The rows with their columns in the model's order; ValueError where they do not fit."""
    train = _in_order(source, source.train, names, n_features, what)
    test = source.test and _in_order(source, source.test, names, n_features, what)
    return replace(source, train=train, test=test)


def _in_order(
    source: Source, part: Part, names: tuple[str, ...] | None, n_features: int, what: str
) -> Part:
    """Columns of a part of `source` as `names` has them, where both have names."""
    have = source.feature_names
    if names and have and names != have:
        lost = [name for name in names if name not in have]
        if lost:
            raise ValueError(
                f"{source.name} has no column {lost[0]!r}, which {what} has: "
                "use data of the same columns"
            )
        return replace(part, x=part.x[:, [have.index(name) for name in names]])
    if part.x.shape[1] != n_features:
        raise ValueError(
            f"{source.name} has {part.x.shape[1]} features but {what} has "
            f"{n_features}: use data of the same columns, or name the label column with --label"
        )
    return part


def parse_shape(text: str | None, n_features: int) -> tuple[int, ...] | None:
    """28x28 → (28, 28); ValueError where it does not fit the features."""
    if text is None:
        return None
    if not re.fullmatch(r"\d+x\d+(x\d+)?", text):
        raise ValueError(f"--image-shape must look like 28x28, got {text!r}")
    shape = tuple(int(size) for size in text.split("x"))
    if math.prod(shape) != n_features:
        raise ValueError(
            f"--image-shape {text} has {math.prod(shape)} pixels but rows have {n_features} "
            "features"
        )
    return shape

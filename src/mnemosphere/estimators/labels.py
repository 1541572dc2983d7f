"""From a user's labels to class indices, label weights and class weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from mnemosphere.estimators.preparation import Floats


@dataclass(frozen=True)
class Encoded:
    """Labels as numbers."""

    classes: NDArray[Any]  # (C,)
    index: NDArray[np.intp]  # (n,) the class of each row, −1 where unknown
    targets: Floats  # (n, C+1) label weights, smoothed


def encode(
    y: Any,
    n_rows: int,
    classes: NDArray[Any] | None,
    *,
    unlabeled: object,
    smoothing: float,
    some: bool,
) -> Encoded:
    """Plain labels (n,) or soft ones (n, C); classes None: those found.

    `some`: at least one row must have a label; without it `classes` must be given.
    """
    if y is None or y.ndim == 0:
        raise ValueError(
            "requires y to be passed, but the target y is None: pass labels, and mark "
            "unlabelled rows with unlabeled="
        )
    if y.shape[0] != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {y.shape[0]}: pass one label a row")
    if y.ndim == 2 and y.shape[1] > 1:
        return _encode_soft(y, classes, smoothing)
    y = column_or_1d(y, warn=True)
    missing = is_missing(y, unlabeled)
    index = np.full(n_rows, -1, dtype=np.intp)
    if not missing.all():
        classes, index[~missing] = label_index(y[~missing], classes)
    elif classes is None or some:
        raise ValueError("every row of y is unlabelled: label some rows of each class")
    return Encoded(classes, index, soft_label_matrix(index, classes.shape[0], smoothing))


def _encode_soft(y: NDArray[Any], classes: NDArray[Any] | None, smoothing: float) -> Encoded:
    try:
        q = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "a two-dimensional y must be a numeric (n, C) matrix of soft labels: "
            "pass one-dimensional y for plain labels"
        ) from error
    total = q.sum(axis=1)
    bad = ~np.isfinite(q).all(axis=1) | (q < 0).any(axis=1) | (total > 1 + 1e-6)
    if bad.any():
        row = np.flatnonzero(bad)[0]
        raise ValueError(
            f"row {row} of the soft labels y is {q[row].tolist()}: entries must be >= 0 and "
            "sum to at most 1 in each row"
        )
    if classes is not None and q.shape[1] != classes.shape[0]:
        raise ValueError(
            f"soft labels y have {q.shape[1]} columns for {classes.shape[0]} classes: "
            "pass one column a class"
        )
    if not total.any():
        raise ValueError("every row of y is unlabelled: label some rows of each class")
    index = np.where(total > 0, q.argmax(axis=1), -1)
    none = total[:, None] * smoothing / (q.shape[1] + 1)
    targets = np.hstack([(1 - smoothing) * q + none, none])
    return Encoded(np.arange(q.shape[1]) if classes is None else classes, index, targets)


def is_missing(y: NDArray[Any], unlabeled: object) -> NDArray[np.bool_]:
    """Which labels are missing. The marker NaN stands for None and other marks of no value too."""
    if unlabeled is None:
        return np.zeros(y.shape[0], dtype=bool)
    if isinstance(unlabeled, float) and np.isnan(unlabeled):
        return no_value(y)
    return np.asarray(y == unlabeled, dtype=bool) & np.ones(y.shape[0], dtype=bool)


def no_value(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where y is None, NaN, NaT or a data frame's missing value."""
    if y.dtype.kind == "O":
        # Of all values, only those compare unequal to themselves, or do not compare at all.
        return np.array([v is None or _unlike_itself(v) for v in y.tolist()], dtype=bool)
    return np.asarray(y != y)


def _unlike_itself(value: Any) -> bool:
    try:
        return not bool(value == value)
    except TypeError:
        return True


def label_index(
    y: NDArray[Any], classes: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """(classes, the index of each label among them); classes None: those found, sorted.

    ValueError names labels that are missing, of unlike types, or not among the classes.
    """
    if no_value(y).any():
        raise ValueError(
            f"label {np.flatnonzero(no_value(y))[0]} of y has no value: drop the row, or mark "
            "unlabelled rows by unlabeled=float('nan')"
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError(f"label {np.flatnonzero(np.isinf(y))[0]} of y is infinite: drop the row")
    if y.dtype.kind == "O":
        kinds = sorted({type(v).__name__ for v in y.tolist()})
        if len(kinds) > 1:
            raise ValueError(f"y mixes labels of types {', '.join(kinds)}: make them one type")
        y = np.asarray(y.tolist())
    check_classification_targets(y)
    found, index = np.unique(y, return_inverse=True)
    if classes is None:
        return found, index.astype(np.intp)
    # "1" is not 1: NumPy would compare them as strings.
    alike = (found.dtype.kind in "biuf") == (classes.dtype.kind in "biuf")
    unknown = found[~np.isin(found, classes)] if alike else found
    if unknown.size:
        raise ValueError(
            f"y has labels {unknown.tolist()} that are not among the classes {classes.tolist()}: "
            "drop those rows, or fit with them"
        )
    return classes, np.searchsorted(classes, found)[index].astype(np.intp)


def class_weights(
    setting: dict[Any, float] | str,
    classes: NDArray[Any],
    index: NDArray[np.intp],
    sample_weight: Floats,
) -> Floats:
    """The weight of each class (C,): as given, or so that all classes weigh the same."""
    each = np.ones(classes.shape[0])
    if isinstance(setting, dict):
        names = classes.tolist()
        unknown = [name for name in setting if name not in names]
        if unknown:
            raise ValueError(f"class_weight names {unknown}, not among the classes {names}")
        each = np.array([float(setting.get(name, 1.0)) for name in names])
        if not (each >= 0).all():
            raise ValueError(f"class_weight must be >= 0, got {setting}")
        return each
    labelled = index >= 0
    mass = np.bincount(index[labelled], sample_weight[labelled], minlength=classes.shape[0])
    present = mass > 0
    each[present] = mass.sum() / (present.sum() * mass[present])
    return each


def soft_label_matrix(index: NDArray[np.intp], n_classes: int, smoothing: float) -> Floats:
    """Rows (1−ε)·onehot + ε/(C+1) over C+1 columns; index −1 (unlabelled) gives a row of zeros."""
    columns = n_classes + 1
    q = np.full((index.shape[0], columns), smoothing / columns)
    labelled = np.flatnonzero(index >= 0)
    q[labelled, index[labelled]] += 1 - smoothing
    q[index < 0] = 0.0
    return q

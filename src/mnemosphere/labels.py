"""From a user's labels to class indices, label weights and class weights."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from mnemosphere.model.objectives import soft_labels

# The label of rows that are known to belong to none of the classes.
OUT_OF_SCOPE = "out of scope"


@dataclass(frozen=True)
class Encoded:
    """Labels as numbers."""

    classes: NDArray[Any]  # (C,)
    index: Tensor  # (n,) int64: the class of each row, −1 where unknown
    targets: Tensor  # (n, C+1) float64 label weights, smoothed


def as_labels(y: Any) -> Any:
    """Y as a NumPy array, or the tensor it is; class names of a frame of soft labels are lost."""
    if isinstance(y, Tensor):
        # NumPy, which holds the classes, knows no bfloat16.
        return y.detach().float() if y.dtype == torch.bfloat16 else y.detach()
    try:
        return np.asarray(y)
    except ValueError as error:
        raise ValueError(
            "y must be (n,) labels or an (n, C) matrix of soft labels, got rows of unlike lengths"
        ) from error


def encode(
    y: Any,
    n_rows: int,
    classes: NDArray[Any] | None,
    *,
    unlabeled: object,
    smoothing: float,
    require_label: bool,
    device: torch.device,
) -> Encoded:
    """Plain labels (n,) or soft ones (n, C); classes None: those found.

    require_label: at least one row must have a label; without it `classes` must be given.
    """
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: pass labels, and mark "
            "unlabeled rows with unlabeled="
        )
    names = list(y.columns) if hasattr(y, "columns") else None
    y = as_labels(y)
    if y.ndim not in (1, 2):
        raise ValueError(
            f"y must be (n,) labels or an (n, C) matrix of soft labels, got shape {tuple(y.shape)}"
        )
    if y.is_complex() if isinstance(y, Tensor) else y.dtype.kind == "c":
        raise ValueError("Complex data not supported in y: pass labels")
    if y.shape[0] != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {y.shape[0]}: pass one label per row")
    if y.ndim == 2 and y.shape[1] > 1:
        return _encode_soft(y, classes, names, smoothing, device)
    if isinstance(y, Tensor):
        y = y.reshape(-1)
        missing = _is_missing_tensor(y, unlabeled)
    else:
        y = column_or_1d(y, warn=True)
        missing = torch.from_numpy(is_missing(y, unlabeled))
    index = torch.full((n_rows,), -1, dtype=torch.long, device=device)
    if not bool(missing.all()):
        present = ~missing
        known = y[present] if isinstance(y, Tensor) else y[present.numpy()]
        classes, found = class_index(known, classes, device)
        index[present.to(device)] = found
    elif classes is None or require_label:
        raise ValueError("every row of y is unlabeled: label some rows of each class")
    targets = soft_labels(index, classes.shape[0], smoothing, dtype=torch.float64)
    return Encoded(classes, index, targets)


def _encode_soft(
    y: Any,
    classes: NDArray[Any] | None,
    names: list[Any] | None,
    smoothing: float,
    device: torch.device,
) -> Encoded:
    try:
        q = y if isinstance(y, Tensor) else torch.from_numpy(np.array(y, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(
            "a two-dimensional y must be a numeric (n, C) matrix of soft labels: "
            "pass one-dimensional y for plain labels"
        ) from error
    q = q.to(device).double()
    total = q.sum(1)
    bad = ~torch.isfinite(q).all(1) | (q < 0).any(1) | (total > 1 + 1e-6)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"row {row} of the soft labels y is {q[row].tolist()}: entries must be >= 0 and "
            "sum to at most 1 in each row"
        )
    if classes is not None and q.shape[1] != classes.shape[0]:
        raise ValueError(
            f"soft labels y have {q.shape[1]} columns for {classes.shape[0]} classes: "
            "pass one column per class"
        )
    if not bool(total.any()):
        raise ValueError("every row of y is unlabeled: label some rows of each class")
    if names is None or names == list(range(q.shape[1])):
        classes = np.arange(q.shape[1]) if classes is None else classes
    elif classes is None:
        classes = _column_names(names)
    else:
        q = q[:, _columns_of(classes, names)]
    index = torch.where(total > 0, q.argmax(1), -1)
    none = total[:, None] * smoothing / (q.shape[1] + 1)
    targets = torch.cat([(1 - smoothing) * q + none, none], dim=1)
    return Encoded(classes, index, targets)


def _column_names(names: list[Any]) -> NDArray[Any]:
    """The classes that the columns of a frame name."""
    alike = len({type(name) for name in names}) == 1 and isinstance(names[0], (str, int, float))
    if not alike or len(set(names)) < len(names):
        raise ValueError(
            f"the columns of y name the classes: make them distinct and of one type, got {names}"
        )
    return np.asarray(names)


def _columns_of(classes: NDArray[Any], names: list[Any]) -> list[int]:
    """Where each class is among the columns of a frame, which come in any order."""
    if sorted(map(str, names)) != sorted(map(str, classes.tolist())):
        raise ValueError(f"y has columns {names} for the classes {classes.tolist()}: rename them")
    place = {str(name): column for column, name in enumerate(names)}
    return [place[str(label)] for label in classes.tolist()]


def is_missing(y: NDArray[Any], unlabeled: object) -> NDArray[np.bool_]:
    """Which labels are missing. The marker NaN stands for None and other marks of no value too."""
    if unlabeled is None:
        return np.zeros(y.shape[0], dtype=bool)
    if _differs_from_itself(unlabeled):
        return _no_value(y)
    return np.asarray(y == unlabeled, dtype=bool) & np.ones(y.shape[0], dtype=bool)


def _is_missing_tensor(y: Tensor, unlabeled: object) -> Tensor:
    if unlabeled is None:
        return torch.zeros(y.shape[0], dtype=torch.bool, device=y.device)
    if _differs_from_itself(unlabeled):
        return torch.isnan(y)
    return (y == unlabeled) & torch.ones_like(y, dtype=torch.bool)


def in_scope(y: Any) -> NDArray[np.bool_]:
    """Which labels are not `OUT_OF_SCOPE`, (n,); all soft ones."""
    labels = np.zeros(len(y)) if isinstance(y, Tensor) else np.asarray(y)
    if labels.ndim != 1 or labels.dtype.kind not in "UO":
        return np.ones(len(labels), dtype=bool)
    return np.array([label != OUT_OF_SCOPE for label in labels.tolist()], dtype=bool)


def _no_value(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where y is None, NaN, NaT or a data frame's missing value."""
    if y.dtype.kind == "O":
        # Of all values, only those compare unequal to themselves, or do not compare at all.
        return np.array([v is None or _differs_from_itself(v) for v in y.tolist()], dtype=bool)
    return np.asarray(y != y)


def _differs_from_itself(value: Any) -> bool:
    try:
        return not bool(value == value)
    except TypeError:
        return True


def class_index(
    y: Any, classes: NDArray[Any] | None, device: torch.device
) -> tuple[NDArray[Any], Tensor]:
    """(classes, the index of each label among them); classes None: those found, sorted.

    ValueError names labels that are missing, of unlike types, or not among the classes.
    """
    if isinstance(y, Tensor):
        values, inverse = torch.unique(y, return_inverse=True)
        found: NDArray[Any] = values.cpu().numpy()
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise ValueError("y holds a label that is NaN or infinite: drop such rows")
        index = inverse.to(device)
    else:
        found, plain = _unique_labels(y)
        index = torch.from_numpy(plain).to(device)
    if classes is None:  # each three times: scikit-learn warns of labels that occur once
        inside = in_scope(found)
        known = found if inside.all() else np.asarray(found[inside].tolist())
        check_classification_targets(np.repeat(known, 3))
        return found, index
    # "1" is not 1: NumPy would compare them as strings.
    alike = (found.dtype.kind in "biuf") == (classes.dtype.kind in "biuf")
    unknown = found[~np.isin(found, classes)] if alike else found
    if unknown.size:
        raise ValueError(
            f"y has labels {unknown.tolist()} that are not among the classes {classes.tolist()}: "
            "drop those rows, or fit with them"
        )
    order = np.argsort(classes, kind="stable")  # those of a frame need not be sorted
    place = order[np.searchsorted(classes, found, sorter=order)]
    return classes, torch.from_numpy(place).to(device)[index]


def _unique_labels(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(the distinct labels, the index of each label among them)."""
    missing = _no_value(y)
    if missing.any():
        raise ValueError(
            f"label {np.flatnonzero(missing)[0]} of y has no value: drop the row, or mark "
            "unlabeled rows by unlabeled=float('nan')"
        )
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError(f"label {np.flatnonzero(np.isinf(y))[0]} of y is infinite: drop the row")
    inside = np.ones(len(y), dtype=bool)
    if y.dtype.kind == "O":
        inside = in_scope(y)
        kinds = sorted({type(v).__name__ for v in y[inside].tolist()})
        if len(kinds) > 1:
            raise ValueError(f"y mixes labels of types {', '.join(kinds)}: make them one type")
        inside |= kinds == ["str"]  # sorted with the others
        y = np.asarray(y[inside].tolist())
    found, known = np.unique(y, return_inverse=True)
    index = np.full(len(inside), len(found), dtype=np.int64)
    index[inside] = known
    if not inside.all():
        found = np.array([*found.tolist(), OUT_OF_SCOPE], dtype=object)
    return found, index


def class_weights(
    setting: dict[Any, float] | str,
    classes: NDArray[Any],
    index: Tensor,
    sample_weight: Tensor,
) -> Tensor:
    """The weight of each class (C,): as given, or so that all classes weigh the same."""
    if isinstance(setting, dict):
        names = classes.tolist()
        unknown = [name for name in setting if name not in names]
        if unknown:
            raise ValueError(f"class_weight names {unknown}, not among the classes {names}")
        given = [setting.get(name, 1.0) for name in names]
        if not all(isinstance(value, Real) and 0 <= value < np.inf for value in given):
            raise ValueError(f"class_weight must be finite and >= 0, got {setting}")
        return torch.tensor(given, dtype=sample_weight.dtype, device=sample_weight.device)
    labeled = index >= 0
    mass = sample_weight.new_zeros(classes.shape[0])
    mass.index_add_(0, index[labeled], sample_weight[labeled])
    present = mass > 0
    even = mass.sum() / (int(present.sum()) * torch.where(present, mass, 1.0))
    return torch.where(present, even, 1.0)


def sample_weights(given: Any, n_rows: int, device: torch.device) -> Tensor | None:
    """sample_weight (n,) in float64 on the device; None stays None."""
    if given is None:
        return None
    try:
        weight = torch.as_tensor(given if isinstance(given, Tensor) else np.array(given, float))
    except (TypeError, ValueError) as error:
        raise ValueError("sample_weight must be numbers, one per row") from error
    weight = weight.to(device).double()
    if weight.ndim == 0:
        weight = weight.expand(n_rows)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {tuple(weight.shape)}, expected ({n_rows},): one per row"
        )
    if not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise ValueError("sample_weight must be finite and >= 0: Negative values in data passed")
    return _relative(weight)


def row_weights(
    coded: Encoded, setting: dict[Any, float] | str | None, sample_weight: Any
) -> Tensor | None:
    """Sample weight times class weight, (n,); None where all are 1."""
    n_rows, device = coded.index.shape[0], coded.index.device
    weight = sample_weights(sample_weight, n_rows, device)
    if setting is None:
        return weight
    if weight is None:
        weight = torch.ones(n_rows, dtype=torch.float64, device=device)
    each = class_weights(setting, coded.classes, coded.index, weight)
    return _relative(torch.where(coded.index >= 0, weight * each[coded.index], weight))


def _relative(weight: Tensor) -> Tensor:
    """Weights of which only ratios matter, of a size that single precision holds.

    Rows with 1e-30 of the largest weight add nothing to any sum: they have none.
    """
    if not bool(weight.sum() > 0):
        raise ValueError("all weights are zero: give some rows a sample_weight above 0")
    largest = float(weight.max())
    weight = weight if 1e-30 < largest < 1e30 else weight / largest
    return torch.where(weight < 1e-30 * float(weight.max()), 0.0, weight)

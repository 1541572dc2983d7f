"""Labels and weights as users pass them, parsed once, before NumPy can turn one value into another."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from mnemosphere.model.objectives import soft_labels
from mnemosphere.rows.containers import check_not_masked, check_text, listed
from mnemosphere.rows.texts import is_equal, is_missing

# The label of rows that are known to belong to none of the classes.
OUT_OF_SCOPE = "out of scope"
_MISSING, _OUTSIDE = -1, -2  # places of rows without label, and of rows out of scope
_NAN = float("nan")
_NUMBERS = "biuf"
_FEW_ROWS = 20  # below, nothing is remarkable
_MANY_NUMBERS, _ROWS_EACH = 30, 5  # numeric classes above, of fewer rows each: measurements
_RARE = 0.01  # share of a rare class
_FAR = 0.2  # of the largest class: one that is not rarer is not rare
_MANY, _THIN = 200, 10  # classes, of fewer rows each: to be asked for
_KINDS = "labels must be numbers, texts or truth values"
_SHAPE = "y must be (n,) labels or an (n, C) matrix of soft labels"


@dataclass(frozen=True)
class Labels:
    """Plain labels of rows: which there are, and which each row has."""

    found: NDArray[Any]  # (K,) distinct labels of one type, sorted
    place: NDArray[np.int64]  # (n,) of each row in `found`; < 0: no label, or out of scope

    @classmethod
    def of(cls, y: Any, n_rows: int | None = None, *, unlabeled: object = _NAN) -> Self:
        """Labels of one type; ValueError names the first that is none.

        unlabeled: the mark of rows without label, None: there must be none. NaN stands for None and
        other marks of no value too.
        """
        values = _values(y, n_rows)
        if values.ndim == 2:
            if values.shape[1] != 1:
                raise ValueError(f"y must be one label per row, got shape {values.shape}")
            values = np.asarray(column_or_1d(values, warn=True))
        empty = values != values
        if values.dtype.kind == "O":
            empty = np.array([is_missing(v) for v in values.tolist()], dtype=bool)
        missing = (
            empty if is_missing(unlabeled) and unlabeled is not None else _equal(values, unlabeled)
        )
        if len(bad := np.flatnonzero(empty & ~missing)):
            raise ValueError(
                f"label {bad[0]} of y has no value: drop the row, or mark unlabeled rows by "
                "unlabeled=float('nan')"
            )
        outside = _equal(values, OUT_OF_SCOPE) & ~missing
        places = np.where(outside, _OUTSIDE, _MISSING)
        known = ~missing & ~outside
        found, places[known] = np.unique(_typed(values[known]), return_inverse=True)
        return cls(found, places)

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """Which rows have a label that is no mark, (n,)."""
        return self.place >= 0

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Which rows are out of scope, (n,)."""
        outside: NDArray[np.bool_] = self.place == _OUTSIDE
        return outside

    def take(self, rows: NDArray[Any]) -> Labels:
        """Those of some rows."""
        return Labels(self.found, self.place[rows])

    def tolist(self) -> list[Any]:
        """The label of each row, None for no label."""
        names = [*self.found.tolist(), OUT_OF_SCOPE, None]
        return [names[place] for place in self.place.tolist()]

    def check_like(self, classes: NDArray[Any]) -> None:
        """ValueError if labels and classes are of two kinds, so that none can be right."""
        numbers = [labels.dtype.kind in _NUMBERS for labels in (self.found, classes)]
        if len(self.found) and numbers[0] != numbers[1]:
            raise ValueError(
                f"the labels are like {self.found[0].item()!r}, the model's like "
                f"{classes[0].item()!r}: choose labels of the same kind"
            )

    def among(self, classes: NDArray[Any], *, unknown: bool = False) -> NDArray[np.int64]:
        """The place of each row's class, (n,); −1: no label, or none of these.

        unknown: labels that are not among the classes are −1 too, and otherwise a ValueError. Rows
        out of scope have a place if the classes hold that mark.
        """
        place = {name: k for k, name in enumerate(classes.tolist())}
        strange = [label for label in self.found.tolist() if label not in place]
        if strange and not unknown:
            names = [name for name in place if name != OUT_OF_SCOPE]
            raise ValueError(
                f"y has labels {strange} that are not among the classes {names}: drop those rows, "
                "or fit with them"
            )
        table = [place.get(label, -1) for label in [*self.found.tolist(), OUT_OF_SCOPE]]
        return np.array([*table, -1])[self.place]


def _values(y: Any, n_rows: int | None = None) -> NDArray[Any]:
    """Y as an array of one type, or of objects as they came; (n,) or (n, C)."""
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: pass labels, and mark "
            "unlabeled rows with unlabeled="
        )
    check_not_masked(y, "y")
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = (y.float() if y.dtype == torch.bfloat16 else y).numpy()  # NumPy has none
    elif type(y).__module__.startswith("polars") and not hasattr(y, "columns"):
        y = y.to_list()  # as an array, whole numbers beside nulls are fractions
    try:
        found = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    except ValueError as error:
        raise ValueError(f"{_SHAPE}, got rows of unlike lengths") from error
    if found.ndim not in (1, 2):
        raise ValueError(f"{_SHAPE}, got shape {found.shape}")
    if n_rows is not None and len(found) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(found)}: pass one label per row")
    if found.dtype.kind == "c":
        raise ValueError("Complex data not supported in y: pass labels")
    return found


def _typed(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels (n,) of one type; an error unless they are numbers, texts or truth values."""
    if labels.dtype.kind == "O":
        plain = [v.item() if isinstance(v, np.generic) else v for v in labels.tolist()]
        kinds = {type(v) for v in plain}
        if not kinds <= {str, int, float, bool}:
            raise TypeError(f"{_KINDS}, got {listed(plain, 1)}")
        if len(kinds) > 1 and kinds != {int, float}:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(f"y mixes labels of types {names}: make them one type")
        for label in set(plain) if kinds == {str} else ():
            check_text(label, "label")
            if label.endswith("\0"):
                raise ValueError(f"label {label!r:.60} ends in a NUL, which NumPy drops: rename it")
        labels = np.array(plain) if plain else np.zeros(0, dtype=np.int64)
    if labels.dtype.kind not in "biufU":
        raise TypeError(f"{_KINDS}, got {labels.dtype}")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError("a label of y is infinite: drop its row")
    return labels


def _equal(values: NDArray[Any], mark: object) -> NDArray[np.bool_]:
    """Which values are the mark, (n,); none if that is None."""
    if mark is None or (isinstance(mark, str) and values.dtype.kind not in "UO"):
        return np.zeros(len(values), dtype=bool)
    if values.dtype.kind == "O":
        kind = isinstance(mark, bool)  # True is not 1
        same = [is_equal(v, mark) and isinstance(v, bool) == kind for v in values.tolist()]
        return np.array(same, dtype=bool)
    return np.broadcast_to(values == mark, len(values))


# What a careful tool says about labels before it learns from them, one line each.


def about_labels(classes: NDArray[Any], counts: NDArray[Any], *, weighted: bool) -> list[str]:
    """Remarks on classes (C,) and how many rows each has, (C,); weighted: rare ones are seen to."""
    n, n_classes, notes = int(counts.sum()), len(classes), list[str]()
    if n < _FEW_ROWS:
        return notes
    if classes.dtype.kind in "iuf" and n_classes > _MANY_NUMBERS and n < _ROWS_EACH * n_classes:
        return [
            f"y has {n_classes} different numbers in {n} rows and looks like a measurement: "
            "this is a classifier, so cut it into ranges first, with pandas.cut say"
        ]
    if n_classes == 1:
        notes.append(
            "y says {0!r} in every row, so every prediction will be {0!r}".format(str(classes[0]))
        )
    elif classes.dtype.kind in "if" and classes[0] == -1 and classes[1] >= 0:
        notes.append(
            "the label -1 counts as a class: if it marks missing labels, pass unlabeled=-1, or "
            "leave it out of the file"
        )
    rare = (counts <= _RARE * n) & (counts < _FAR * counts.max())
    if not weighted and rare.any() and n_classes <= 1 / _RARE:
        notes.append(
            f"class {listed(classes[rare].tolist())} has 1% of the rows or less (the rarest "
            f"{int(counts.min())} of {n}): accuracy hides it, so look at its recall, and try "
            "class_weight='balanced'"
        )
    return notes


def check_worth_it(n_classes: int, n_rows: int) -> None:
    """ValueError for hundreds of classes of a few rows: that is to be asked for."""
    if n_classes > _MANY and n_rows < _THIN * n_classes:
        raise ValueError(
            f"y has {n_classes} classes of {n_rows / n_classes:.1f} rows each: that is slow, and "
            f"there is little to learn from; check y, or pass n_memories={2 * n_classes} to go on"
        )


# Labels as training takes them.


@dataclass(frozen=True)
class Encoded:
    """Labels as numbers."""

    classes: NDArray[Any]  # (C,)
    index: Tensor  # (n,) int64: the class of each row, −1 where unknown
    targets: Tensor  # (n, C+1) float64 label weights, smoothed


def encode_labels(
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

    require_label: at least one row must have a label; without it `classes` must be given. Rows out
    of scope are a class of their own among those found, and "none of them" among given classes.
    """
    values = _values(y, n_rows)
    if values.ndim == 2 and values.shape[1] > 1:
        names = list(getattr(y, "columns", range(values.shape[1])))
        return _encode_soft(values, classes, names, smoothing, device)
    labels = Labels.of(values, unlabeled=unlabeled)
    if not labels.labeled.any() and (classes is None or require_label):
        what = "out of scope" if labels.outside.any() else "unlabeled"
        raise ValueError(f"every row of y is {what}: label some rows of each class")
    if classes is None:
        classes = _classes(labels)
    index = torch.from_numpy(labels.among(classes)).to(device)
    none = torch.from_numpy(labels.outside).to(device) & (index < 0)
    column = torch.where(none, len(classes), index)
    targets = soft_labels(column, len(classes), smoothing, dtype=torch.float64)
    return Encoded(classes, index, targets)


def _classes(labels: Labels) -> NDArray[Any]:
    """The labels that were found, and the mark of rows out of scope if there are some."""
    found = labels.found
    check_classification_targets(np.repeat(found, 3))  # which warns of labels that occur once
    if not labels.outside.any():
        return found
    return np.append(found if found.dtype.kind == "U" else found.astype(object), OUT_OF_SCOPE)


def class_index(
    y: Any, classes: NDArray[Any] | None, device: torch.device, n_rows: int | None = None
) -> tuple[NDArray[Any], Tensor]:
    """(classes, the index of each label among them); classes None: those found, sorted.

    ValueError names labels that are missing, of unlike types, or not among the classes, or says that
    they are not one for each of `n_rows` rows.
    """
    labels = Labels.of(y, n_rows, unlabeled=None)
    if classes is None:
        classes = _classes(labels)
    elif labels.outside.any() and OUT_OF_SCOPE not in classes.tolist():
        raise ValueError(f"{OUT_OF_SCOPE!r} is none of the classes {classes.tolist()}")
    return classes, torch.from_numpy(labels.among(classes)).to(device)


def _encode_soft(
    y: NDArray[Any],
    classes: NDArray[Any] | None,
    names: list[Any],
    smoothing: float,
    device: torch.device,
) -> Encoded:
    try:
        q = torch.from_numpy(y.astype(np.float64)).to(device)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "a two-dimensional y must be a numeric (n, C) matrix of soft labels: "
            "pass one-dimensional y for plain labels"
        ) from error
    total = q.sum(1)
    bad = ~torch.isfinite(q).all(1) | (q < 0).any(1) | (total > 1 + 1e-6)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"row {row} of the soft labels y is {q[row].tolist()}: entries must be >= 0 and "
            "sum to at most 1 in each row"
        )
    if not bool(total.any()):
        raise ValueError("every row of y is unlabeled: label some rows of each class")
    if classes is None:
        if not {*map(type, names)} <= {type(names[0])} & {str, int, float} or len({*names}) < len(
            names
        ):
            raise ValueError(
                "the columns of y name the classes: make them distinct and of one type, got "
                f"{names}"
            )
        classes = np.asarray(names)
    elif q.shape[1] != len(classes):
        raise ValueError(
            f"soft labels y have {q.shape[1]} columns for {len(classes)} classes: "
            "pass one column per class"
        )
    elif names != list(range(len(names))):  # in any order
        known, place = classes.tolist(), {str(name): k for k, name in enumerate(names)}
        if {*place} != {*map(str, known)}:
            raise ValueError(f"y has columns {names} for the classes {known}: rename them")
        q = q[:, [place[str(label)] for label in known]]
    index = torch.where(total > 0, q.argmax(1), -1)
    none = total[:, None] * smoothing / (q.shape[1] + 1)
    targets = torch.cat([(1 - smoothing) * q + none, none], dim=1)
    return Encoded(classes, index, targets)


# Weights.
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
    check_not_masked(given, "sample_weight")
    try:
        weight = (
            given.detach() if isinstance(given, Tensor) else torch.tensor(np.array(given, float))
        )
    except (TypeError, ValueError) as error:
        raise ValueError("sample_weight must be numbers, one per row") from error
    weight = weight.to(device).double()
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
    weight = sample_weights(sample_weight, len(coded.index), coded.index.device)
    if setting is None:
        return weight
    if weight is None:
        weight = torch.ones_like(coded.index, dtype=torch.float64)
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
    return torch.where(weight < 1e-30 * weight.max(), 0.0, weight)

"""What a careful tool says about labels before it learns from them, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from numpy.typing import NDArray

from mnemosphere.rows.encoding import listed

_FEW_ROWS = 20  # below, nothing is remarkable
_MANY_NUMBERS, _ROWS_EACH = 30, 5  # numeric classes above, of fewer rows each: measurements
_RARE, _LEAST_RARE = 0.01, 100  # share of a rare class; rows from which that is told
_FAR = 0.2  # of the largest class: one that is not rarer is not rare
_MANY, _THIN = 200, 10  # classes, of fewer rows each: to be asked for


def about_labels(
    classes: NDArray[Any], counts: NDArray[Any], n_memories: int | None, *, weighted: bool
) -> list[str]:
    """Remarks on classes (C,) and how many rows each has, (C,); weighted: rare ones are seen to."""
    n = int(counts.sum())
    notes: list[str] = []
    if n < _FEW_ROWS:
        return notes
    if n_memories is not None and n_memories > n:
        notes.append(
            f"n_memories={n_memories} but only {n} rows have a label: memories will be copies of "
            "rows; fewer do as well"
        )
    few_each = len(classes) > _MANY_NUMBERS and n < _ROWS_EACH * len(classes)
    if classes.dtype.kind in "iuf" and few_each:
        notes.append(
            f"y has {len(classes)} different numbers in {n} rows and looks like a measurement: "
            "this is a classifier, so cut it into ranges first, with pandas.cut say"
        )
        return notes
    if len(classes) == 1:
        name = repr(str(classes[0]))
        notes.append(f"y says {name} in every row, so every prediction will be {name}")
    if classes.dtype.kind in "if" and len(classes) > 1 and classes[0] == -1 and classes[1] >= 0:
        notes.append(
            "the label -1 counts as a class: if it marks missing labels, pass unlabeled=-1, or "
            "leave it out of the file"
        )
    lone = classes[counts == 1]
    if len(lone):
        names = [str(name) for name in classes[counts > 1]]
        near = {str(name): get_close_matches(str(name), names, n=1) for name in lone}
        told = [f"{name!r} (near {match[0]!r})" if match else repr(name)
                for name, match in near.items()]  # fmt: skip
        more = f" and {len(told) - 5} more" if len(told) > 5 else ""
        notes.append(
            f"{len(lone)} of {len(classes)} classes have one row only, spelling mistakes perhaps: "
            f"{', '.join(told[:5])}{more}"
        )
    rare = classes[(counts > 1) & (counts <= _RARE * n) & (counts < _FAR * counts.max())]
    if not weighted and n >= _LEAST_RARE and len(rare) and len(classes) <= 1 / _RARE:
        least = int(counts[counts > 1].min())
        notes.append(
            f"class {listed(rare.tolist())} has 1% of the rows or less (the rarest {least} of {n}):"
            " accuracy hides it, so look at its recall, and try class_weight='balanced'"
        )
    return notes


def check_worth_it(n_classes: int, n_rows: int) -> None:
    """ValueError for hundreds of classes of a few rows: that is to be asked for."""
    if n_classes > _MANY and n_rows < _THIN * n_classes:
        raise ValueError(
            f"y has {n_classes} classes of {n_rows / n_classes:.1f} rows each: that is slow, and "
            f"there is little to learn from; check y, or pass n_memories={2 * n_classes} to go on"
        )


def no_better_than_chance(found: Mapping[str, Any], class_weight: object) -> str | None:
    """A remark where always saying the most frequent class would be right as often.

    With weights of classes accuracy is not what was asked for.
    """
    accuracy, most = found["accuracy"], found["most_frequent"]
    if accuracy > most or most == 1 or class_weight is not None:
        return None
    return (
        f"accuracy {accuracy:.1%} is no better than always answering the most frequent class "
        f"({most:.1%}): the features may not tell the classes, or --class-weight balanced may help"
    )

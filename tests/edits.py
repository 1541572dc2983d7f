"""Every edit of the classes, examples and memories of a fitted classifier: what holds after any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mnemosphere import interpret
from mnemosphere.fitted.model import FittedModel

Draw = Callable[[Any, int], Any]  # so many rows of a class


def examples(model: FittedModel, of: Draw, new: Any) -> FittedModel:
    label = model.classes[0].item()
    return interpret.add_examples(model, of(label, 5), [label] * 5)


def renaming(edit: str, classes: list[Any]) -> dict[Any, Any]:
    """What an edit calls the classes; None: it removes one."""
    first, last = classes[0], classes[-1]
    given = {"remove": {last: None}, "merge": {first: last}, "rename": {first: last + last}}
    return given.get(edit, {})


def mapped(edit: str) -> Callable[[FittedModel, Draw, Any], FittedModel]:
    return lambda m, of, new: interpret.map_classes(m, renaming(edit, m.classes.tolist()))


# of a model, rows of a class, and a label that is new to it
EDITS: dict[str, Callable[[FittedModel, Draw, Any], FittedModel]] = {
    "add_class": lambda m, of, new: interpret.add_class(m, of(new, 20), new),
    "add_examples": examples,
    "remove": mapped("remove"),
    "merge": mapped("merge"),
    "rename": mapped("rename"),
    "relabel_memory": lambda m, of, new: interpret.relabel_memory(
        m, 0, {m.classes[0].item(): 1, m.classes[-1].item(): 2}
    ),
    "with_class_prior": lambda m, of, new: interpret.with_class_prior(
        m, 1.0 + np.arange(len(m.classes))
    ),
}
OF_CLASSES = ["add_class", "add_examples", "remove", "merge", "rename"]


def known_to(edit: str, classes: list[Any], x: Any, y: Any) -> tuple[Any, Any]:
    """Rows of the classes that are left, and what they are called after the edit."""
    names = renaming(edit, classes)
    kept = np.array([names.get(label, label) is not None for label in y.tolist()])
    return x[kept], np.array([names.get(label, label) for label in y[kept].tolist()])

"""The estimator that settings describe, as a person types them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sklearn.utils._param_validation import validate_parameter_constraints

import mnemosphere
from mnemosphere.estimators.choice import SOLVERS

_NAMES = {"memories": "n_memories", "clusters": "n_clusters"}  # shorter where a person types them


def build(estimator: str, values: Mapping[str, str], classes: Iterable[Any] = ()) -> Any:
    """The estimator that settings by key describe, checked; classes: labels that they may name."""
    kind = getattr(mnemosphere, estimator)
    allowed = kind._parameter_constraints
    own: dict[str, Any] = {}
    steps: dict[str, Any] = {}
    for key, text in values.items():
        name = _NAMES.get(key, key)
        part = own if name in allowed else steps
        part[name] = _value(text, _words(allowed.get(name, ())))
    if steps:
        solver = own.get("solver", kind().solver)
        if solver == "auto":  # known as soon as the objective is
            solver = {"joint": "fixed-point", "conditional": "adam"}.get(own.get("objective", ""))
        for key in steps:
            having = [name for name, known in SOLVERS.items()
                      if hasattr(known, key) and name in _words(allowed["solver"])]  # fmt: skip
            if solver not in having:
                where = " or ".join(f"--solver {name}" for name in having)
                raise ValueError(f"{_flag(key)} is a setting of {where}: add that")
        own["solver"] = type(SOLVERS[str(solver)])(**steps)
    if own.get("class_weight") not in (None, "balanced"):
        own["class_weight"] = label_numbers(str(own["class_weight"]), classes, "--class-weight")
    found = kind(**own)
    try:
        validate_parameter_constraints(allowed, found.get_params(deep=False), estimator)
    except (TypeError, ValueError) as error:
        long = rf"The '(?:n_(?=memories|clusters))?(\w+)' parameter of {estimator}"
        text = re.sub(long, lambda name: _flag(name[1]), " ".join(str(error).split()))
        raise ValueError(text) from error
    return found


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _words(constraints: Iterable[Any]) -> set[str]:
    """The words that a setting may be."""
    return {word for c in constraints for word in getattr(c, "options", ())}


def _value(text: str, words: set[str]) -> Any:
    """A value from the text of a flag."""
    if text in words:
        return text
    if text == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def label_numbers(text: str, classes: Iterable[Any], flag: str) -> dict[Any, float]:
    """{label: number} from LABEL=NUMBER,…; labels are checked where classes are known."""
    known = {str(label): label for label in classes}
    found: dict[Any, float] = {}
    for pair in text.split(","):
        name, mark, number = pair.strip().rpartition("=")
        try:
            value = float(number)
        except ValueError:
            mark = ""
        if not mark:
            raise ValueError(f"{flag} must look like LABEL=NUMBER,LABEL=NUMBER, got {text!r}")
        if known and name not in known:
            raise ValueError(f"{flag} names {name!r}, which is none of {', '.join(known)}")
        found[known.get(name, name)] = value
    return found

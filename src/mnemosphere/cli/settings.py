"""The settings of an estimator by what a person types: flags, and the estimator.

settings.toml has them as options, so that `--help` needs no torch. What is allowed is checked
by the estimator and its solver.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("settings.toml")
ESTIMATORS: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
_NAMES = {"memories": "n_memories", "clusters": "n_clusters"}  # shorter where a person types them


def build(estimator: str, values: Mapping[str, Any], classes: Iterable[Any] = ()) -> Any:
    """The estimator that settings by key describe, checked; classes: labels that they may name."""
    from sklearn.utils._param_validation import validate_parameter_constraints

    import mnemosphere
    from mnemosphere.estimators.choice import SOLVERS

    kind, known = getattr(mnemosphere, estimator), ESTIMATORS[estimator]
    allowed = kind._parameter_constraints
    own: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for key, given in values.items():
        name = _NAMES.get(key, key)
        part = fields if "solver" in known[key] else own
        part[name] = _value(given, allowed.get(name, ()))
    if fields:
        solver = own.get("solver", known["solver"]["shown"])
        if solver == "auto":  # known as soon as the objective is
            solver = {"joint": "fixed-point", "conditional": "adam"}.get(own.get("objective", ""))
        for key in fields:
            if solver not in known[key]["solver"]:
                where = " or ".join(f"--solver {name}" for name in known[key]["solver"])
                raise ValueError(f"{_flag(key)} is a setting of {where}: add that")
        own["solver"] = type(SOLVERS[str(solver)])(**fields)
    if own.get("class_weight") not in (None, "balanced"):
        own["class_weight"] = label_numbers(str(own["class_weight"]), classes, "--class-weight")
    found = kind(**own)
    try:
        validate_parameter_constraints(allowed, found.get_params(deep=False), estimator)
    except (TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        for key in known:
            long = f"The {_NAMES.get(key, key)!r} parameter of {estimator}"
            text = text.replace(long, _flag(key))
        raise ValueError(text) from error
    return found


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _value(given: Any, constraints: Iterable[Any]) -> Any:
    """A value from the text of a flag."""
    words = {word for c in constraints for word in getattr(c, "options", ())}
    if not isinstance(given, str) or given in words:
        return given
    if given == "none":
        return None
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    return given


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

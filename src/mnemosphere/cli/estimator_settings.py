"""The settings of an estimator as data: names, defaults and help, read off the estimator itself.

Names and defaults come from the signature and from the dataclasses of solvers, help from
docstrings. What is allowed is checked by the estimator and the solver. Command lines and
configuration files are made from them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.utils._param_validation import validate_parameter_constraints

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.setup import SOLVERS

ESTIMATORS: dict[str, type[Any]] = {kind.__name__: kind for kind in (DAMClassifier, DAMClusterer)}
# Known by shorter names where a person types them.
_KEYS = {"n_memories": "memories", "n_clusters": "clusters"}
# Settled by the caller, by the data, or by another setting.
_NOT_SETTINGS = {
    "callbacks", "encoder", "random_state", "unlabeled", "learn_beta", "learn_weights",
    "once_per_pass", "steps", "decay",
}  # fmt: skip
_FREE_FORM = {"class_prior": "auto|NUMBERS", "class_weight": "none|balanced|LABEL=NUMBER,…"}


class Setting(NamedTuple):
    """One parameter of an estimator, or one field of its solver."""

    name: str
    owner: type[Any]
    default: Any
    kind: str  # as the docstring has it
    help: str


def parameter_help(kind: type) -> dict[str, tuple[str, str]]:
    """(type, text) of what stands under "Parameters" in a docstring, in numpydoc's form."""
    lines = inspect.cleandoc(kind.__doc__ or "").splitlines()
    found: dict[str, tuple[str, str]] = {}
    name = ""
    body = lines[lines.index("Parameters") + 2 :] if "Parameters" in lines else []
    for line, after in zip(body, [*body[1:], ""], strict=True):
        if after.startswith("---"):
            break
        if line and not line.startswith(" "):
            name, _, own = line.partition(" : ")
            found[name] = own, ""
        elif line:
            own, text = found[name]
            found[name] = own, f"{text} {line.strip()}".strip()
    return found


@functools.cache
def setting_groups(estimator: str) -> dict[str, list[Setting]]:
    """Settings by key, the estimator's own first; those of the same name in solvers share one."""
    kind = ESTIMATORS[estimator]
    known = [(name, kind, p.default) for name, p in inspect.signature(kind).parameters.items()]
    given = kind._parameter_constraints["solver"]
    for solver in (type(s) for s in SOLVERS.values() if type(s) in given):
        known += [(f.name, solver, f.default) for f in dataclasses.fields(solver)]
    found: dict[str, list[Setting]] = {}
    for name, owner, default in known:
        if name not in _NOT_SETTINGS:
            own = _KEYS.get(name, name)
            key = own if owner is kind or own not in inspect.signature(kind).parameters else (
                f"{owner.__name__.lower()}_{own}"
            )  # fmt: skip
            about = parameter_help(owner).get(name, ("", ""))
            found.setdefault(key, []).append(Setting(name, owner, default, *about))
    return found


def described(estimator: str) -> dict[str, dict[str, str]]:
    """What a command line shows of each setting, by its key."""
    found = {}
    for key, group in setting_groups(estimator).items():
        own = group[0].owner is ESTIMATORS[estimator]
        defaults = dict.fromkeys("none" if s.default is None else str(s.default) for s in group)
        texts = [*dict.fromkeys(s.help for s in group), *([] if own else [f"({_where(group)})"])]
        kinds = dict.fromkeys(s.kind.replace('"', "") for s in group)
        found[key] = {
            "help": " ".join(texts),
            "show_default": " or ".join(defaults),
            "metavar": _FREE_FORM.get(key, " or ".join(kinds) or "VALUE"),
            "rich_help_panel": "Model and training" if own else "Solver",
        }
    return found


def _where(group: Iterable[Setting]) -> str:
    """What brings these settings into play."""
    names = {type(solver): name for name, solver in SOLVERS.items()}
    return ", ".join(f"--solver {names[s.owner]}" for s in group)


def build(estimator: str, values: Mapping[str, Any], classes: Iterable[Any] = ()) -> Any:
    """The estimator that settings by key describe, checked; classes: labels that they may name."""
    groups, kind = setting_groups(estimator), ESTIMATORS[estimator]
    unknown = next((key for key in values if key not in groups), None)
    if unknown is not None:
        near = get_close_matches(unknown, groups, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(groups)}"
        raise ValueError(f"unknown setting {unknown!r}: {hint}")
    own = {s.name: _value(values[key], kind._parameter_constraints[s.name])
           for key, (s, *_) in groups.items() if s.owner is kind and key in values}  # fmt: skip
    name = own.get("solver", inspect.signature(kind).parameters["solver"].default)
    if name == "auto":  # known as soon as the objective is
        name = {"joint": "fixed-point", "conditional": "adam"}.get(own.get("objective", ""), name)
    solver, fields = type(SOLVERS[name]) if name in SOLVERS else None, {}
    for key, group in groups.items():
        if key in values and group[0].owner is not kind:
            setting = next((s for s in group if s.owner is solver), None)
            if setting is None:
                raise ValueError(f"--{_flag(key)} is a setting of {_where(group)}: add that")
            fields[setting.name] = _value(values[key], ())
    if solver is not None and fields:
        own["solver"] = solver(**fields)
    weights, shares = own.get("class_weight"), own.get("class_prior", "auto")
    if weights not in (None, "balanced"):
        own["class_weight"] = label_numbers(str(weights), classes, "--class-weight")
    if shares != "auto":
        try:
            own["class_prior"] = [float(number) for number in str(shares).split(",")]
        except ValueError as error:
            raise ValueError(f"--class-prior must look like 3,2,1, got {shares}") from error
    found = kind(**own)
    try:
        validate_parameter_constraints(
            kind._parameter_constraints, found.get_params(deep=False), estimator
        )
    except (TypeError, ValueError) as error:
        text = " ".join(str(error).split())
        for long in groups.values():
            text = text.replace(f"The {long[0].name!r} parameter of {estimator}",
                                f"--{_flag(_KEYS.get(long[0].name, long[0].name))}")  # fmt: skip
        raise ValueError(text) from error
    return found


def _flag(key: str) -> str:
    return key.replace("_", "-")


def _value(given: Any, constraints: Iterable[Any]) -> Any:
    """A value from the text of a flag, or as TOML has it."""
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


def settings_of(model: Any) -> dict[str, Any]:
    """All settings of an estimator by key: what a configuration file says."""
    found: dict[str, Any] = {}
    names = {type(solver): name for name, solver in SOLVERS.items()}
    for key, group in setting_groups(type(model).__name__).items():
        owner = next((o for o in (model, model.solver) for s in group if type(o) is s.owner), None)
        if owner is not None:
            value = getattr(owner, group[0].name)
            found[key] = names.get(type(value), value)
    if isinstance(found.get("class_weight"), dict):
        found["class_weight"] = ",".join(f"{k}={v:g}" for k, v in found["class_weight"].items())
    if not isinstance(found.get("class_prior", ""), str):
        found["class_prior"] = ",".join(f"{share:g}" for share in found["class_prior"])
    return found


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


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file; keys are the names of the flags, with - or _."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a TOML file ({str(error)[:200]}): start from a config.toml that train "
            "wrote"
        ) from error
    return {key.replace("-", "_"): value for key, value in content.items()}


def to_toml(values: Mapping[str, Any], remark: str) -> str:
    """A file that `read_config` reads back to the same settings."""
    return "\n".join([f"# {remark}", *(f"{k} = {_toml(v)}" for k, v in values.items()), ""])


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return str(value).lower()
    text = "none" if value is None else str(value)
    return '"' + "".join(
        c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text
    ) + '"'  # fmt: skip

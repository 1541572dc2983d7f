"""The settings of an estimator as data: names, defaults, what is allowed, help.

They are written once, in the estimators: names and defaults come from the signature and from the
dataclasses of solvers, types from annotations, words and ranges from scikit-learn's
constraints, help from docstrings. Command lines and configuration files are made from them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import tomllib
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sklearn.utils._param_validation import make_constraint

from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.estimators.setup import SOLVERS

ESTIMATORS: dict[str, type[Any]] = {kind.__name__: kind for kind in (DAMClassifier, DAMClusterer)}
# Known by shorter names where a person types them.
_KEYS = {"n_memories": "memories", "n_clusters": "clusters"}
# Settled by the caller, by the data, or by another setting.
_NOT_SETTINGS = {
    "callbacks",
    "encoder",
    "random_state",
    "unlabeled",
    "learn_beta",
    "learn_weights",
    "once_per_pass",
    "steps",
    "decay",
}
_FREE_FORM = {"class_prior": "auto|NUMBERS", "class_weight": "none|balanced|LABEL=NUMBER,…"}
_IN_USE = {
    "FixedPoint": "solver fixed-point",
    "SGD": "solver sgd",
    "Adam": "solver adam",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One parameter of an estimator, or one field of its solver."""

    name: str
    key: str  # of the flag and of the configuration file
    owner: str  # the class it belongs to
    default: Any
    help: str
    kinds: frozenset[type]  # of int, float and str
    words: tuple[str, ...]  # "none" stands for None
    constraints: tuple[Any, ...] = ()  # scikit-learn's; a dataclass checks its fields itself

    @property
    def flag(self) -> str:
        """As it is typed."""
        return "--" + self.key.replace("_", "-")

    @property
    def metavar(self) -> str:
        """What may stand there."""
        kinds = [k.__name__.upper() for k in (int, float) if k in self.kinds]
        free = ["TEXT"] if str in self.kinds and not self.words else []
        return _FREE_FORM.get(self.name, "|".join([*kinds, *free, *self.words]))

    def read(self, value: Any) -> Any:
        """A value of the parameter from the text of a flag or a value of TOML."""
        try:
            found = self._convert(value)
        except (ValueError, TypeError):
            allowed = False
        else:
            rules = [make_constraint(c) for c in self.constraints if self.name not in _FREE_FORM]
            allowed = not rules or any(rule.is_satisfied_by(found) for rule in rules)
        if allowed:
            return found
        ranges = [str(c) for c in self.constraints if hasattr(c, "closed")]  # intervals
        ranges = ranges or [k.__name__ for k in (int, float) if k in self.kinds]
        raise ValueError(f"{self.flag} must be {' or '.join([*ranges, *self.words])}, got {value}")

    def _convert(self, value: Any) -> Any:
        if value == "none" and ("none" in self.words or self.name in _FREE_FORM):
            return None
        if value in self.words or self.name in _FREE_FORM:
            return value
        if isinstance(value, bool):
            raise TypeError
        if int in self.kinds and (isinstance(value, str) or int(value) == value):
            return int(value)
        if float in self.kinds:
            return float(value)
        if str in self.kinds and not self.words and isinstance(value, str):
            return value
        raise ValueError


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, literals as their values."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    parts = (get_args(m) if get_origin(m) is Literal else (m,) for m in members)
    return tuple(value for part in parts for value in part)


def parameter_help(kind: type) -> dict[str, str]:
    """The texts under "Parameters" in the docstring of a class, in numpydoc's form."""
    lines = inspect.cleandoc(kind.__doc__ or "").splitlines()
    found: dict[str, list[str]] = {}
    current: list[str] = []
    body = lines[lines.index("Parameters") + 2 :] if "Parameters" in lines else []
    for line, after in zip(body, [*body[1:], ""], strict=True):
        if after.startswith("---"):
            break
        if line and not line.startswith(" "):
            current = found.setdefault(line.partition(" : ")[0], [])
        elif line:
            current.append(line.strip())
    return {name: " ".join(text) for name, text in found.items()}


@functools.cache
def settings_of(estimator: str) -> tuple[Setting, ...]:
    """All settings of an estimator, its own first."""
    kind = ESTIMATORS[estimator]
    hints, help = get_type_hints(kind.__init__), parameter_help(kind)
    found: list[Setting] = []
    parts: list[Any] = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in _NOT_SETTINGS:
            continue
        given = kind._parameter_constraints[name]
        constraints = () if isinstance(given, str) else tuple(given)
        members = _members(hints[name])
        parts += [m for m in members if dataclasses.is_dataclass(m) and m not in parts]
        words = sorted({w for c in constraints for w in getattr(c, "options", ())})
        found.append(
            Setting(
                name, _KEYS.get(name, name), estimator, parameter.default, help.get(name, ""),
                frozenset({int, float, str} & set(members)),
                (*words, *(["none"] if None in constraints else [])), constraints,
            )
        )  # fmt: skip
    own = {setting.name for setting in found}
    for part in parts:
        hints, help = get_type_hints(part), parameter_help(part)
        for field in dataclasses.fields(part):
            members = _members(hints[field.name])
            prefix = f"{part.__name__.lower()}_" if field.name in own else ""
            words = [m for m in members if isinstance(m, str)]
            words += [field.default] if str in members else []
            setting = Setting(
                field.name, prefix + field.name, part.__name__, field.default,
                help.get(field.name, ""), frozenset({int, float} & set(members)),
                (*words, *(["none"] if type(None) in members else [])),
            )  # fmt: skip
            found += [] if field.name in _NOT_SETTINGS else [setting]
    return tuple(found)


def setting_groups(estimator: str) -> dict[str, list[Setting]]:
    """Settings by key; those of the same name in several solvers share one."""
    found: dict[str, list[Setting]] = {}
    for setting in settings_of(estimator):
        found.setdefault(setting.key, []).append(setting)
    return found


def where(group: Iterable[Setting]) -> str:
    """What brings these settings into play."""
    return ", ".join(f"--{_IN_USE[s.owner]}" for s in group)


def described(estimator: str) -> dict[str, dict[str, str]]:
    """What a command line shows of each setting, by its key."""
    found = {}
    for key, group in setting_groups(estimator).items():
        own = group[0].owner == estimator
        defaults = dict.fromkeys("none" if s.default is None else str(s.default) for s in group)
        texts = [*dict.fromkeys(s.help for s in group), *([] if own else [f"({where(group)})"])]
        found[key] = {
            "help": " ".join(texts),
            "show_default": " or ".join(defaults),
            "metavar": "|".join(dict.fromkeys(w for s in group for w in s.metavar.split("|"))),
            "rich_help_panel": "Model and training" if own else "Solver",
        }
    return found


def resolve(estimator: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting in use, by its key, checked: what a configuration file says.

    values: by key, text of flags or values of TOML; what is not named has its default.
    """
    groups = setting_groups(estimator)
    unknown = next((key for key in values if key not in groups), None)
    if unknown is not None:
        near = get_close_matches(unknown, groups, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(groups)}"
        raise ValueError(f"unknown setting {unknown!r}: {hint}")
    found: dict[str, Any] = {}
    owners = {estimator}
    for key, group in groups.items():  # the estimator's own come first and tell the other owners
        setting = next((s for s in group if s.owner in owners), None)
        if setting is None and group[0].owner != estimator and len(owners) == 1:
            owners |= _owners(found)
            setting = next((s for s in group if s.owner in owners), None)
        if setting is not None:
            found[key] = setting.read(values[key]) if key in values else setting.default
        elif key in values:
            raise ValueError(f"{group[0].flag} is a setting of {where(group)}: add that")
    build(estimator, found)  # a solver checks its fields where it is made
    return found


def _owners(found: Mapping[str, Any]) -> set[str]:
    """The parts that these settings bring into play."""
    solver = found["solver"]
    if solver == "auto":  # known as soon as the objective is
        objective = found.get("objective", "")
        solver = {"joint": "fixed-point", "conditional": "adam"}.get(objective, solver)
    return {type(SOLVERS[solver]).__name__} if solver in SOLVERS else set()


def build(estimator: str, found: Mapping[str, Any], classes: Iterable[Any] = ()) -> Any:
    """The estimator that `resolve`d settings describe; classes: the labels they may name."""
    solvers = {type(solver).__name__: type(solver) for solver in SOLVERS.values()}
    parts: dict[str, dict[str, Any]] = {estimator: {}}
    for setting in settings_of(estimator):
        if setting.key in found and setting.owner in {estimator, *_owners(found)}:
            parts.setdefault(setting.owner, {})[setting.name] = found[setting.key]
    own = parts.pop(estimator)
    for owner, fields in parts.items():
        own["solver"] = solvers[owner](**fields)
    weights, shares = own.get("class_weight"), own.get("class_prior", "auto")
    if weights not in (None, "balanced"):
        own["class_weight"] = label_numbers(str(weights), classes, "--class-weight")
    if shares != "auto":
        try:
            own["class_prior"] = [float(number) for number in str(shares).split(",")]
        except ValueError as error:
            raise ValueError(f"--class-prior must look like 3,2,1, got {shares}") from error
    return ESTIMATORS[estimator](**own)


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
        return str(value)
    text = "none" if value is None else str(value)
    return '"' + "".join(
        c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text
    ) + '"'  # fmt: skip

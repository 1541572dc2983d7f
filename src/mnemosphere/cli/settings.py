"""Settings of `train`: defaults, then a TOML file, then flags."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from mnemosphere.estimators import DAMClassifier
    from mnemosphere.training.callbacks import Callback


@dataclass(frozen=True)
class Settings:
    """Everything that decides what is trained on what. Words stand for what TOML cannot say."""

    data: str
    label: str | int | None = None
    labels: str | None = None
    test: str | None = None
    test_fraction: float = 0.2
    directory: str | None = None
    image_shape: str | None = None
    memories: int | str = "auto"
    solver: str = "fixed-point"
    growth: str = "none"
    n_initial: int = 16
    varsigma: float | str = "auto"
    beta: float | str = "learn"
    objective: float | str = "joint"
    input_noise: float | str = "auto"
    label_smoothing: float = 0.1
    normalize: str = "auto"
    epochs: int | str = "auto"
    tol: float = 1e-4
    batch_size: int | str = "auto"
    learning_rate: float = 0.01
    momentum: float = 0.99
    validation_fraction: float = 0.1
    patience: int = 3
    uniform_weight: float = 1.0
    class_weight: str = "none"
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"

    @classmethod
    def gather(cls, config: Path | None, flags: Mapping[str, Any]) -> Self:
        """Defaults, overridden by a TOML file, overridden by flags that were given."""
        values: dict[str, Any] = {} if config is None else read_config(config)
        values |= {
            key: value for key, value in flags.items() if key in FIELDS and value is not None
        }
        if "data" not in values:
            raise ValueError("no data: pass DATA, or set data in the file given by --config")
        return cls(**{key: _coerce(key, value) for key, value in values.items()})

    def classifier(self, callbacks: Sequence[Callback], checkpoint: Path | None) -> DAMClassifier:
        """The estimator they describe; the marker of missing labels is set with the data."""
        from mnemosphere.estimators import DAMClassifier

        return DAMClassifier(
            self.memories,
            solver=self.solver,
            growth=None if self.growth == "none" else self.growth,
            n_initial=self.n_initial,
            varsigma=self.varsigma,
            beta=self.beta,
            objective=self.objective,
            input_noise=self.input_noise,
            label_smoothing=self.label_smoothing,
            normalize=self.normalize,
            max_epochs=None if self.epochs == "auto" else self.epochs,  # type: ignore[arg-type]
            tol=self.tol,
            batch_size=None if self.batch_size == "all" else self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            validation_fraction=self.validation_fraction,
            patience=self.patience,
            uniform_weight=self.uniform_weight,
            class_weight=None if self.class_weight == "none" else self.class_weight,
            random_state=self.seed,
            device=self.device,
            dtype=self.dtype,
            callbacks=callbacks,
            checkpoint=checkpoint,
        )

    def to_toml(self, remark: str) -> str:
        """A file that `read_config` reads back to the same settings."""
        lines = [f"# {line}" for line in remark.splitlines()]
        for field in fields(self):
            value = getattr(self, field.name)
            # JSON strings, numbers and booleans are TOML as well, but TOML knows no null.
            lines.append(
                f"# {field.name} is not set"
                if value is None
                else f"{field.name} = {json.dumps(value, ensure_ascii=False)}"
            )
        return "\n".join(lines) + "\n"


FIELDS = {field.name: str(field.type) for field in fields(Settings)}


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file; keys are the names of the flags, with - or _."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a TOML file ({error}): start from a config.toml that train wrote"
        ) from error
    values = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(FIELDS)}"
            raise ValueError(f"{path}: unknown key {key!r}: {hint}")
        values[name] = value
    return values


def _coerce(key: str, value: Any) -> Any:
    """A value of the field's type from a TOML value or the text of a flag."""
    kinds = FIELDS[key].split(" | ")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{key} must be {_wanted(kinds)}, got {value!r}")
    if not isinstance(value, str):
        if "float" in kinds:
            return float(value)
        if "int" in kinds and isinstance(value, int):
            return value
        raise TypeError(f"{key} must be {_wanted(kinds)}, got {value!r}")
    for kind, convert in (("int", int), ("float", float)):
        if kind in kinds:
            try:
                return convert(value)
            except ValueError:
                continue
    if "str" in kinds and (value in _WORDS.get(key, (value,))):
        return value
    raise ValueError(f"{key} must be {_wanted(kinds, _WORDS.get(key, ()))}, got {value!r}")


# Words that the estimator does not know, or knows as None.
_WORDS = {
    "memories": ("auto",),
    "varsigma": ("auto",),
    "beta": ("learn",),
    "objective": ("joint", "conditional"),
    "input_noise": ("auto",),
    "growth": ("none", "split"),
    "epochs": ("auto",),
    "batch_size": ("auto", "all"),
    "class_weight": ("none", "balanced"),
}


def _wanted(kinds: list[str], words: tuple[str, ...] = ()) -> str:
    names = {"int": "a whole number", "float": "a number", "str": "text"}
    parts = [names[kind] for kind in kinds if kind in names and not (kind == "str" and words)]
    return " or ".join([*parts, *(repr(word) for word in words)])

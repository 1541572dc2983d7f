"""Warnings that point to the line of the user's."""

from __future__ import annotations

import inspect
import warnings

_PASSED_OVER = {"mnemosphere", "sklearn", "joblib", "torch"}


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points to the line of the user's, outside this package and scikit-learn."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and _package(frame.f_globals) in _PASSED_OVER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]

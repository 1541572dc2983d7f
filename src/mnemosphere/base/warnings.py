"""Warnings that point to the line of the user's."""

from __future__ import annotations

import inspect
import types
import warnings

_SHOWN_BY: set[tuple[int, int, str]] = set()  # calls of the user's, and the warning that they gave
_OURS = {"mnemosphere", "sklearn", "joblib", "torch"}


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points to the line of the user's, outside this package and scikit-learn.

    One call of scikit-learn's, such as a cross-validation, shows it once for all of its fits.
    """
    frame, behind = inspect.currentframe(), False
    while frame is not None and frame.f_back is not None and _package(frame) in _OURS:
        behind |= _package(frame) == "sklearn"
        frame = frame.f_back
    assert frame is not None
    # scikit-learn sets the filters anew for every fit, by which Python forgets what it has shown.
    call = id(frame), frame.f_lasti, message
    if behind and call in _SHOWN_BY:
        return
    _SHOWN_BY.add(call)
    warnings.warn_explicit(
        message, category, frame.f_code.co_filename, frame.f_lineno, module="mnemosphere",
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def _package(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]

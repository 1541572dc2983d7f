"""Estimators from and to model files, and from fitted models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sklearn.utils._param_validation import validate_parameter_constraints
from sklearn.utils.validation import check_is_fitted

from mnemosphere.estimators.setup import kept_settings
from mnemosphere.export import files
from mnemosphere.fitted.model import FittedModel

_ESTIMATORS: dict[str, type[Any]] = {}
Estimator = TypeVar("Estimator")


def register(kind: type[Estimator]) -> type[Estimator]:
    """Let `load` give back estimators of this class."""
    _ESTIMATORS[kind.__name__] = kind
    return kind


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator to one file, atomically.

    Parameters
    ----------
    estimator : DAMClassifier or DAMClusterer
        A fitted estimator.
    path : str or path
        The file; `load` reads it.

    Raises
    ------
    TypeError
        If the estimator is of another class: use joblib for a scikit-learn pipeline.

    Examples
    --------
    >>> mn.save(clf, "wine.safetensors")
    >>> mn.load("wine.safetensors").n_features_in_
    4
    """
    check_is_fitted(estimator)
    files.write(_saved(estimator), path, _check_settings)


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Read a model file; the estimator predicts bitwise identically to the one that was saved.

    Parameters
    ----------
    path : str or path
        A file that `save` wrote.
    encoder : function or object with `encode` or `embed`, default None
        The encoder of a model of texts, unless it is the packaged one.

    Returns
    -------
    DAMClassifier or DAMClusterer
        The estimator that was saved, fitted.

    Raises
    ------
    ValueError
        If the file is damaged, or if the vectors of `encoder` are not those of training.

    Examples
    --------
    >>> mn.save(clf, "wine.safetensors")
    >>> mn.load("wine.safetensors").predict(X_test[:3])
    array([0, 2, 1])
    """
    found = files.read(path, _check_settings)
    if encoder is not None:
        features = found.features.with_encoder(encoder)
        settings = {**found.record.settings, "encoder": encoder}
        record = replace(found.record, settings=settings)
        found = replace(found, features=features, record=record)
    return as_estimator(found)


def as_estimator(model: FittedModel) -> Any:
    """Make an estimator that holds a fitted model, with the settings of its training.

    Parameters
    ----------
    model : FittedModel
        Such as `model_` of an estimator, or an edited copy of it.

    Returns
    -------
    DAMClassifier or DAMClusterer
        The estimator.

    Examples
    --------
    >>> smaller = mn.interpret.without_memories(model, [0])
    >>> mn.as_estimator(smaller).n_memories_
    5
    """
    estimator = _ESTIMATORS[files.estimator_of(model)](**model.record.settings)
    estimator.model_ = model
    return estimator


def _saved(estimator: Any) -> FittedModel:
    """The fitted model of an estimator, with the settings as they are now."""
    if type(estimator) not in _ESTIMATORS.values():
        raise TypeError(
            f"a model file cannot hold a {type(estimator).__name__}, only a "
            f"{' or a '.join(_ESTIMATORS)}: use joblib"
        )
    model: FittedModel = estimator.model_
    record = replace(model.record, settings=kept_settings(estimator.get_params(deep=False)))
    return replace(model, record=record)


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """ValueError unless the settings are ones of this estimator."""
    kind = _ESTIMATORS[name]
    try:
        kind(**settings)
        validate_parameter_constraints(
            {k: v for k, v in kind._parameter_constraints.items() if k in settings}, settings, name
        )
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"its settings are not those of a {name} ({error})") from error

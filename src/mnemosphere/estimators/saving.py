"""Estimators from and to model files, and from fitted models."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any

from sklearn.utils.validation import check_is_fitted

from mnemosphere.estimators.base import saved_model
from mnemosphere.estimators.classifier import DAMClassifier
from mnemosphere.estimators.clusterer import DAMClusterer
from mnemosphere.export import files
from mnemosphere.fitted.model import FittedModel


def save(estimator: Any, path: str | PathLike[str]) -> None:
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
    files.write(saved_model(estimator), path)


def load(path: str | PathLike[str], *, encoder: Any = None) -> Any:
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
        If the file is damaged, or if `encoder` is not that of training.

    Examples
    --------
    >>> mn.save(clf, "wine.safetensors")
    >>> mn.load("wine.safetensors").predict(X_test[:3])
    array([0, 2, 1])
    """
    found = files.read(path)
    if encoder is not None:
        columns = found.columns.with_encoder(encoder)
        settings = {**found.record.settings, "encoder": encoder}
        record = replace(found.record, settings=settings)
        found = replace(found, columns=columns, record=record)
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
    >>> fewer = mn.interpret.map_classes(model, {0: None})
    >>> mn.as_estimator(fewer).classes_
    array([1, 2])
    """
    kind = DAMClassifier if model.is_classifier else DAMClusterer
    estimator = kind(**model.record.settings)
    estimator.model_ = model
    return estimator

"""The pictures that `plot`, `explain` and `demo` write."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere import plots
from mnemosphere.cli import report
from mnemosphere.cli.rows import Part, Source
from mnemosphere.estimators import DAMClassifier, Explanation

Shape = tuple[int, ...] | None


def save(picture: Any, path: Path) -> None:
    """Write a picture; the suffix of the path gives the format."""
    plots.save(picture, path)


def names_of(model: DAMClassifier, source: Source | None) -> list[str]:
    """The classes as they are written in pictures."""
    labels = model.classes_.tolist()
    return [str(label) if source is None else source.label(label) for label in labels]


def memories(model: DAMClassifier, names: Sequence[str], shape: Shape, count: int) -> Any:
    """The gallery of memories above their class weights."""
    return plots.memory_gallery(
        model.memories_,
        model.class_weights_,
        model.memory_prior_,
        classes=names,
        image_shape=shape,
        indices=report.representative(model, count),
    )


def weights(model: DAMClassifier, names: Sequence[str], count: int) -> Any:
    """The class weights of the same memories."""
    indices = report.representative(model, count)
    return plots.class_weights(
        model.class_weights_, names, p_h=model.memory_prior_, indices=indices
    )


def curves(model: DAMClassifier) -> Any:
    """Loss and β over the passes."""
    if not model.history_:
        raise ValueError("this model has no history of training: there are no curves to draw")
    return plots.learning_curves(model.history_)


def confusion(scores: report.Scores, names: Sequence[str]) -> Any:
    """What is taken for what."""
    return plots.confusion_matrix(scores.confusion, names)


def histogram(model: DAMClassifier) -> Any:
    """How sharp the soft labels are."""
    return plots.class_weight_histogram(model.class_weights_, model.memory_prior_)


def lineage(model: DAMClassifier, names: Sequence[str], shape: Shape) -> Any:
    """The tree of splits."""
    tree = model.lineage_
    if tree is None:
        raise ValueError("this model did not grow: train with --growth split for a lineage")
    w = np.zeros((tree.n_nodes, model.n_features_in_))
    label = np.zeros(tree.n_nodes, dtype=np.int64)
    for level, nodes in enumerate(tree.members):  # a node is drawn as it was last
        then = model.at_level(level)
        w[nodes.numpy()] = then.memories_
        label[nodes.numpy()] = then.class_weights_[1:].argmax(axis=1)
    return plots.lineage_tree(
        tree.level.numpy(),
        tree.parent.numpy(),
        memories=w,
        image_shape=shape,
        labels=label,
        classes=[*names, "none"],
    )


def spectrum(model: DAMClassifier, part: Part) -> Any:
    """β_split of every memory against β_eff."""
    found = report.certificate(model, part, tol=1e-3)
    return plots.split_spectrum(found.beta_split.cpu().numpy(), found.beta_eff)


def explain_row(model: DAMClassifier, part: Part, row: int, nearest: int) -> Explanation:
    """Why a row got its class; the patterns are those a person would recognize."""
    x = part.x[row : row + 1]
    found = model.explain(x, nearest)
    if found.rows.shape[1] == model.n_features_in_:
        return found
    # Standardized rows carry one coordinate more: show row and memories in the features' units.
    return dataclasses.replace(
        found, rows=np.asarray(x, dtype=np.float64), memories=model.memories_[found.memory]
    )


def truth_of(part: Part, row: int) -> Any:
    """The label of a row; None where it has none."""
    if part.y is None or part.missing[row]:
        return None
    value: NDArray[Any] = part.y[row]
    if part.y.ndim == 2:
        return int(value.argmax())
    return value.item() if hasattr(value, "item") else value


def explanation(found: Explanation, source: Source, shape: Shape, truth: object) -> Any:
    """The row, the memories that decided, the verdict."""
    named = dataclasses.replace(
        found,
        classes=np.array([source.label(label) for label in found.classes.tolist()]),
        verdict=np.array([source.label(label) for label in found.verdict.tolist()]),
    )
    return named.plot(0, image_shape=shape, truth=None if truth is None else source.label(truth))

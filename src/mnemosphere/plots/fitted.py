"""Pictures of a fitted model: what of it the other pictures need, handed to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import NDArray

from mnemosphere.fitted import FittedModel
from mnemosphere.model.parameters import memory_name
from mnemosphere.plots.features import memory_texts
from mnemosphere.plots.functions import memory_curves, representative
from mnemosphere.plots.gallery import class_weights, memories, memory_gallery
from mnemosphere.plots.growth import lineage_tree
from mnemosphere.plots.latent import latent_classes
from mnemosphere.plots.recall import recall_strips
from mnemosphere.text import readable

Shape = tuple[int, ...] | None
_CURVES = 8  # memories in one panel


def memories_of(
    model: FittedModel, shape: Shape = None, count: int = 25, pictures: NDArray[Any] | None = None
) -> Figure | SubFigure | Axes:
    """Memories of a classifier with their classes, or of a clusterer by cluster.

    Where features have names that can be read, those of both by them; memories of texts by texts;
    memories on circles as functions of the features. Where memories are no images, their class
    weights are below them.

    pictures (P, pixels): what memories look like, where they are not images themselves.
    """
    behind, label = model.exemplars, _class_weights(model)[1:].argmax(1)
    called = [*model.classes.tolist(), "none of them"]
    if model.features.encoder is not None and behind is not None and behind.names is not None:
        texts = behind.as_lists()
        shown = sorted(representative(model, count).tolist(), key=lambda m: (label[m], m))
        titles = [f"{memory_name(m)} {called[label[m]]}" for m in shown]
        return memory_texts(titles, [texts[m] for m in shown])
    w, normalizer = model.memories if pictures is None else pictures, model.normalizer
    unit = "coordinate on the sphere"
    if normalizer.units is not None and pictures is None:
        if shape is not None:  # pixels are alike: memories look like rows
            w = w - w.mean(axis=1, keepdims=True)
        elif normalizer.mean is not None:  # features as given are not
            unit = "standard units"
            w = (w - normalizer.mean.cpu().numpy()) / normalizer.units.cpu().numpy()
        else:
            return memory_curves(model, indices=representative(model, min(count, _CURVES)))
    parts = (w, _class_weights(model))
    names = [str(name) for name in model.features.names or []]
    named = shape is None and pictures is None and bool(names) and readable(names)
    if not model.is_classifier and not named:
        scale = float(np.quantile(np.abs(w), 0.99)) or None
        return latent_classes(*parts, image_shape=shape, vmax=scale)
    chosen = representative(model, count)
    if shape is not None:
        labels = [called[label[m]] for m in chosen]
        return memories(w, shape, indices=chosen, labels=labels).figure
    return memory_gallery(
        *parts, classes=model.classes.tolist(), image_shape=shape,
        feature_names=names if named else None, unit=unit, indices=chosen,
    )  # fmt: skip


def _class_weights(model: FittedModel) -> NDArray[Any]:
    """P (P+1, C+1) with which the model predicts: without what label smoothing put there."""
    found: NDArray[Any] = model.votes.p.cpu().numpy()
    return found


def classes_of(model: FittedModel, count: int = 25) -> Axes:
    """Soft labels of some memories."""
    return class_weights(
        _class_weights(model), model.classes.tolist(), indices=representative(model, count),
    )  # fmt: skip


def tree_of(model: FittedModel, shape: Shape = None) -> Axes:
    """The tree of splits of a model that has grown; a node is drawn as it was last."""
    tree = model.lineage
    if tree is None:
        raise ValueError("this model did not grow: train with growth from 16 memories, say")
    w = np.zeros((tree.n_nodes, model.memories.shape[1]))
    label = np.zeros(tree.n_nodes, dtype=np.int64)
    for level, nodes in enumerate(tree.members):
        then = tree.at_level(level)
        p = then.p if model.is_classifier else tree.sum_up(level, model.density.p)
        w[nodes.numpy()] = model.restore(then.w).cpu().numpy()
        label[nodes.numpy()] = p[1:].argmax(1).cpu().numpy()
    names = [""] * tree.n_nodes
    for k, node in enumerate(tree.members[-1].tolist()):  # those that the model has
        names[node] = memory_name(k)
    return lineage_tree(
        tree.level.numpy(), tree.parent.numpy(), w, image_shape=shape, labels=label,
        classes=[*model.classes.tolist(), "none"], names=names,
    )  # fmt: skip


def recall_of(
    model: FittedModel, X: Any, path: Any, known: NDArray[np.bool_], shape: Shape = None, *,
    names: Sequence[object], predictions: Sequence[object],
) -> Figure | SubFigure:  # fmt: skip
    """Rows X (n, N) on their way down the energy, `path` as `recall_path` has it.

    known (n, N): which features were not hidden; X is shown as the original where it is whole.
    """
    whole = np.asarray(X, dtype=np.float64)
    if model.normalizer.kind == "center":
        whole = whole - whole.mean(axis=1, keepdims=True)
    return recall_strips(
        path.rows[:, : len(whole)], path.energies[:, : len(whole)], shape,
        originals=whole if np.isfinite(whole).all() else None, known=known[: len(whole)],
        names=names, predictions=[f"→ {predicted}" for predicted in predictions],
    )  # fmt: skip

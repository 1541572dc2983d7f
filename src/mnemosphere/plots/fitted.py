"""Pictures of a fitted model: what of it the other pictures need, handed to them."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.model.mixture import memory_name
from mnemosphere.plots.features import memory_texts
from mnemosphere.plots.functions import memory_curves, representative
from mnemosphere.plots.gallery import counted, memories
from mnemosphere.plots.growth import lineage_tree
from mnemosphere.rows.columns import readable

Shape = tuple[int, ...] | None
_CURVES = 8  # memories in one panel


def memories_of(
    model: FittedModel, shape: Shape = None, count: int = 25
) -> Figure | SubFigure | Axes:
    """Memories with the class or the cluster that each stands for.

    Memories of texts are drawn by texts, memories on circles as functions of the features, and
    those with readable features by these.
    """
    label = model.votes.p[1:].argmax(1).cpu().numpy()
    what = "class" if model.is_classifier else "cluster"
    classes = [*model.classes.tolist(), "none of them"]
    called = [classes[k] for k in label]
    chosen = representative(model, count)
    by_class = chosen[np.argsort(label[chosen], kind="stable")]
    behind, geometry = model.exemplars, model.geometry
    if model.columns.is_texts and behind is not None and behind.names is not None:
        texts = behind.as_lists()
        titles = [f"{memory_name(m)} {called[m]}" for m in by_class]
        return memory_texts(titles, [texts[m] for m in by_class])
    w, unit = model.memories, "coordinate on the sphere"
    names = [str(name) for name in model.columns.number_names or []]
    named = shape is None and bool(names) and readable(names)
    if geometry.units is not None:
        if shape is not None:  # pixels are alike: memories look like rows
            w = w - w.mean(axis=1, keepdims=True)
        elif not geometry.has_curves:  # features as given are not
            places, unit = geometry.in_units(torch.from_numpy(w))
            w = as_numpy(places)
        else:
            return memory_curves(model, indices=representative(model, min(count, _CURVES)))
    if named or not model.is_classifier:
        chosen = by_class
    return memories(
        w, shape, indices=chosen, unit=unit, feature_names=names if named else None,
        labels=[called[m] for m in chosen],
        title=f"{counted(len(chosen), len(w))}, each with its {what}",
    ).figure  # fmt: skip


def tree_of(model: FittedModel, shape: Shape = None) -> Axes:
    """The tree of splits of a model that has grown; a node is drawn as it was last."""
    tree = model.lineage
    if tree is None:
        raise ValueError("this model did not grow: train with growth from 16 memories, say")
    w = np.zeros((tree.n_nodes, model.memories.shape[1]))
    label = np.zeros(tree.n_nodes, dtype=np.int64)
    for level, (nodes, then) in enumerate(zip(tree.members, tree.models, strict=True)):
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

"""A classifier that is fitted quickly, and what makes two of them one."""

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere.fitted.model import FittedModel, Record
from mnemosphere.geometry import KINDS
from mnemosphere.model.mixture import Mixture
from mnemosphere.rows.columns import Columns


def small(**settings):
    """A model whose choices are made, so that a test is quick."""
    settings = {
        "n_memories": 7, "geometry": "unit", "varsigma": 0.9, "random_state": 0,
        "objective": "joint", "max_iter": 3,
    } | settings  # fmt: skip
    return mn.DAMClassifier(**settings)


def built(memories, class_weights, *, beta, varsigma=1.0, classes=None, geometry="unit"):
    """A classifier out of numbers: memories (P, N), class weights (P+1, C+1)."""
    geometry, p = KINDS[geometry].of(), torch.tensor(class_weights, dtype=torch.float64)
    w, _ = geometry.place(torch.tensor(memories, dtype=torch.float64))
    p = p / p.sum()
    beta = torch.tensor(beta, dtype=torch.float64)
    params = Mixture(w, p, beta, varsigma, p.sum(1), p.sum(0)).check()
    names = np.arange(p.shape[1] - 1) if classes is None else np.array(classes)
    settings = {"n_memories": len(w), "geometry": geometry.name, "label_smoothing": 0.0}
    model = FittedModel(
        "classifier", params, params, geometry, Columns(w.shape[1]), names,
        learns_beta=False, label_mass=params.p_q.clone(), record=Record(settings),
    )  # fmt: skip
    return mn.as_estimator(model)


def reloaded(model, folder):
    """The model as its file gives it back."""
    mn.save(model, folder / "m.safetensors")
    return mn.load(folder / "m.safetensors")


def graph_answers(model, folder, rows):
    """What the ONNX graph of a model answers to rows of numbers, by the names of its outputs."""
    onnxruntime = pytest.importorskip("onnxruntime")
    mn.to_onnx(model, folder / "m.onnx")
    session = onnxruntime.InferenceSession(folder / "m.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, graph_inputs(session, model, rows)), strict=True))


def graph_inputs(session, model, rows):
    """Rows of numbers as the graph of a model takes them: one matrix, or the columns of a frame."""
    rows, columns = np.asarray(rows, dtype=np.float64), model.model_.columns
    if not columns.each or columns.is_texts:
        return {"rows": rows}
    ends = np.cumsum([own.width for own in columns.each])
    parts = np.split(rows, ends[:-1], axis=1)
    given = {own.name: _as_put_in(own, x) for own, x in zip(columns.each, parts, strict=True)}
    return {own.name: given[own.name] for own in session.get_inputs()}


def _as_put_in(column, x):
    if column.kind != "category":
        return x
    levels = [
        column.levels[np.flatnonzero((column.table[:-1] == row).all(1))[0]]
        if (column.table[:-1] == row).all(1).any()
        else "no such level"
        for row in x
    ]
    texts = np.where(np.isnan(x).any(1), "", np.array(levels, dtype=object))
    return texts[:, None]


def assert_same_model(one, two, x):
    """Bit for bit, and all that a file keeps of a fit."""
    for name in ("memories_", "class_weights_", "memory_prior_", "class_prior_", "classes_"):
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name
    for name in ("beta_", "varsigma_", "n_memories_", "geometry_", "n_features_in_"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("history_", "search_", "status_", "n_iter_", "converged_"):
        assert getattr(one, name) == getattr(two, name), name
    for method in ("predict", "predict_proba", "novelty_score", "transform"):
        assert np.array_equal(getattr(one, method)(x), getattr(two, method)(x)), method

"""The model as an ONNX graph, built by hand: raw rows in; label, probabilities, novelty out."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.circles import Circles
from mnemosphere.data.windows import FLAT
from mnemosphere.encoder import FittedEncoder, PatchLayer, fitted_parts
from mnemosphere.files import write_atomically
from mnemosphere.fitted import FittedModel
from mnemosphere.interpret.rejection import novelty_threshold
from mnemosphere.machine import need
from mnemosphere.model.retrieval import largest_novelty_score
from mnemosphere.model.votes import Mixture

_OPSET = 17
_LABELS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}  # else texts
_IR_VERSION = 8
_CONSTANT = 1e-9  # of the normalizer: what is left of a constant row after its mean
_HEADROOM = 1e8  # of the kernel: densities are kept this far above the smallest number


def to_onnx(model: object, path: str | PathLike[str]) -> None:
    """Write a fitted model, or a pipeline of a `PatchEncoder` and a model, as an ONNX graph.

    The graph takes raw rows, float64 (batch, N), and returns label (batch,), probabilities (batch, C),
    novelty_score (batch,) and, after `calibrate`, is_novel (batch,). It needs the package onnx.

    Parameters
    ----------
    model : FittedModel or estimator or Pipeline
        A fitted model, or what holds one.
    path : str or path
        The file.

    Examples
    --------
    >>> mn.to_onnx(clf, "wine.onnx")
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession("wine.onnx")
    >>> session.run(["label"], {"rows": X_test[:3].to_numpy("float64")})[0].tolist()
    [0, 2, 1]
    """
    encoder, fitted = fitted_parts(model)
    write_atomically(Path(path), build(fitted, encoder).SerializeToString())


def build(model: FittedModel, encoder: FittedEncoder | None = None) -> Any:
    """The graph as an onnx.ModelProto.

    Input: rows, float64 (batch, n_features), pixels with an encoder. Outputs: label (batch,) of
    the type of the classes; probabilities (batch, C) float32, those of `predict_proba`;
    novelty_score (batch,) float32; is_novel (batch,) after `calibrate`.
    """
    checker, helper = need("onnx.checker", "onnx"), need("onnx.helper", "onnx")
    graph = _Graph()
    rows = "rows" if encoder is None else _encoded(graph, encoder)
    outputs = _answers(graph, model, _on_sphere(graph, model, rows))
    taken = model.features.n_numbers if encoder is None else encoder.features.n_columns
    value = helper.make_tensor_value_info
    inner = helper.make_graph(
        graph.nodes, "mnemosphere", [value("rows", graph.double, ["batch", taken])],
        [value(name, kind, ["batch", *more]) for name, kind, *more in outputs],
        initializer=graph.constants,
    )  # fmt: skip
    opset = [helper.make_opsetid("", _OPSET)]
    proto = helper.make_model(inner, opset_imports=opset, producer_name="mnemosphere")
    proto.ir_version = _IR_VERSION
    checker.check_model(proto)
    return proto


class _Graph:
    """Nodes and constants, each named by its number."""

    def __init__(self) -> None:
        helper, TensorProto = need("onnx.helper", "onnx"), need("onnx", "onnx").TensorProto
        self._make = helper.make_node
        self._constant = need("onnx.numpy_helper", "onnx").from_array
        self._value, self._graph = helper.make_tensor_value_info, helper.make_graph
        self._numbers = itertools.count()
        self.kind_of = helper.np_dtype_to_tensor_dtype
        self.bool, self.float, self.double = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A stored array."""
        name = f"c{len(self.constants)}"
        self.constants.append(self._constant(np.asarray(value, dtype=dtype), name))
        return name

    def stored(self, value: Tensor) -> str:
        """A tensor stored in its own precision and read in double."""
        return self("Cast", self.constant(value.cpu().numpy()), to=self.double)

    def norms(self, x: str, axis: int) -> str:
        """Lengths along an axis, which stays."""
        return self("Sqrt", self("ReduceSumSquare", x, axes=[axis], keepdims=1))

    def total(self, x: str, axis: int = 1) -> str:
        """Sums along an axis, which stays."""
        return self("ReduceSum", x, self.constant([axis], np.int64), keepdims=1)

    def plus(self, *terms: str | float) -> str:
        """A sum of results and numbers, in double precision."""
        names = [t if isinstance(t, str) else self.constant(t, np.float64) for t in terms]
        return functools.reduce(lambda a, b: self("Add", a, b), names)

    def only_if(self, condition: str, build: Callable[[], str]) -> str:
        """What `build` makes where the condition holds; else 0, and none of its nodes run."""
        outside, self.nodes = self.nodes, []
        branches = {}
        for branch, make in (("then_branch", build), ("else_branch", lambda: self.zero)):
            found = self("Identity", make(), output=f"{branch}{len(outside)}")
            result = self._value(found, self.double, None)
            branches[branch] = self._graph(self.nodes, branch, [], [result])
            self.nodes = []
        self.nodes = outside
        return self("If", condition, **branches)

    @functools.cached_property
    def zero(self) -> str:
        """0 in double precision."""
        return self.constant(0.0, np.float64)

    @functools.cached_property
    def one(self) -> str:
        """1 in double precision."""
        return self.constant(1.0, np.float64)

    def quotient(self, x: str, length: str, without: str, dtype: Any) -> str:
        """The quotient; 0 where there is none."""
        safe = self("Where", without, self.constant(1.0, dtype), length)
        return self("Where", without, self.constant(0.0, dtype), self("Div", x, safe))

    def __call__(self, operation: str, *inputs: str, output: str | None = None, **more: Any) -> str:
        """One node; the name of its result."""
        name = output or f"n{next(self._numbers)}"
        self.nodes.append(self._make(operation, list(inputs), [name], **more))
        return name


def _encoded(g: _Graph, encoder: FittedEncoder) -> str:
    """Soft counts of patch memories, in the precision of the encoder, as `PatchEncoder` does it."""
    dtype = np.float32 if encoder.dtype == torch.float32 else np.float64
    images = g("Cast", "rows", to=g.float) if dtype is np.float32 else "rows"
    power = g.constant(encoder.power, dtype)
    parts = []
    for layer in encoder.layers:
        counts = g("Pow", _counts(g, layer, images, dtype), power)
        parts.append(_unit(g, counts, dtype))
    return parts[0] if len(parts) == 1 else _unit(g, g("Concat", *parts, axis=1), dtype)


def _counts(g: _Graph, layer: PatchLayer, images: str, dtype: Any) -> str:
    """Shares of the memories of patches, summed over each cell, (batch, cells · P)."""
    windows, params = layer.windows, layer.params.to(device="cpu")
    cut = g("Gather", images, g.constant(windows.pixels().numpy().ravel(), np.int64), axis=1)
    x = g("Reshape", cut, g.constant([-1, windows.n_places, windows.n_features], np.int64))
    length = left = g.norms(x, 2)
    if windows.center:
        x = g("Sub", x, g("ReduceMean", x, axes=[2], keepdims=1))
        left = g.norms(x, 2)
    limit = g("Mul", length, g.constant(FLAT[params.w.dtype], dtype))
    blank = g("LessOrEqual", left, limit)  # (batch, places, 1)
    x = g.quotient(x, left, blank, dtype)
    e = g("MatMul", x, g.constant((params.beta_eff * params.w).T.numpy(), dtype))
    weight = params.p.sum(1).numpy()
    uniform = g.constant(float(params.offset) if weight[0] > 0 else -np.inf, dtype)
    top = g("Max", g("ReduceMax", e, axes=[2], keepdims=1), uniform)
    e = g("Mul", g("Exp", g("Sub", e, top)), g.constant(weight[1:], dtype))
    e0 = g("Mul", g("Exp", g("Sub", uniform, top)), g.constant(weight[0], dtype))
    share = g("Div", e, g("Add", g.total(e, 2), e0))
    share = g("Where", blank, g.constant(0.0, dtype), share)
    counts = g("MatMul", g.constant(layer.membership().cpu().numpy(), dtype), share)
    return g("Reshape", counts, g.constant([-1, layer.n_features], np.int64))


def _unit(g: _Graph, x: str, dtype: Any) -> str:
    length = g.norms(x, 1)
    return g.quotient(x, length, g("LessOrEqual", length, g.constant(0.0, dtype)), dtype)


class _Point(NamedTuple):
    """Rows on the sphere, in double precision; (batch, ·) each."""

    unit: str  # with 0 where a feature is not known
    lost: str  # which have no direction
    gaps: str | None = None  # 1 where not known, else 0; None: they are at a place of their own
    missing: str = ""  # how many are not known
    room: str = ""  # the square of the norm that is left to them
    some: str = ""  # whether any feature of any row is not known


def _on_circles(g: _Graph, circles: Circles, x: str) -> _Point:
    """As `Circles`: a rank is a sum over the spaces between knots, each filled from 0 to 1."""
    knots = circles.knots.cpu() / 2  # halves: the difference of two huge numbers is one too
    width, rise = (t.diff(dim=1) for t in (knots, circles.ranks.cpu()))
    safe = torch.where(width > 0, width, 1.0)
    each = g("Unsqueeze", g("Mul", x, g.constant(0.5, np.float64)), g.constant([2], np.int64))
    filled = g("Div", g("Sub", each, g.stored(knots[:, :-1])), g.stored(safe))
    filled = g("Min", g("Max", filled, g.zero), g.one)  # (batch, N, K−1)
    rise = torch.where(width > 0, rise, 0.0)
    rank = g("ReduceSum", g("Mul", filled, g.stored(rise)), g.constant([2], np.int64), keepdims=0)
    rank = g("Add", rank, g.stored(circles.ranks[:, 0]))
    column = g.constant(circles.column.cpu().numpy(), np.int64)
    amplitude, frequency, phase = (g.stored(t) for t in circles.waves)
    angle = g("Add", g("Mul", g("Gather", rank, column, axis=1), frequency), phase)
    unknown = g("Gather", g("IsNaN", x), column, axis=1)
    found = g("Where", unknown, g.zero, g("Mul", g("Sin", angle), amplitude))
    length = g.norms(found, 1)
    lost = g("LessOrEqual", length, g.zero)
    return _Point(g.quotient(found, length, lost, np.float64), lost)


def _on_sphere(g: _Graph, model: FittedModel, rows: str) -> _Point:
    """As `Normalizer.with_gaps`."""
    normalizer, n = model.normalizer, model.features.n_numbers
    x = g("Cast", rows, to=g.double)
    if normalizer.circles is not None:
        return _on_circles(g, normalizer.circles, x)
    unknown = g("IsNaN", x)
    gaps = g("Cast", unknown, to=g.double)
    count = g.total(gaps)
    some = g("Greater", g("ReduceMax", count, keepdims=0), g.zero)
    whole = g.constant(float(n), np.float64)
    blank = g("GreaterOrEqual", count, whole)
    x = g("Where", unknown, g.zero, x)
    if normalizer.mean is not None and normalizer.scale is not None:
        mean = g.stored(normalizer.mean)
        x = g("Where", unknown, mean, x)
        z = g("Div", g("Sub", x, mean), g.stored(normalizer.scale))
        pads = g.constant([0, 0, 0, 1], np.int64)
        x = g("Pad", z, pads, g.constant(float(n) ** 0.5, np.float64))
        gaps = g("Pad", gaps, pads, g.zero)
    length = g.norms(x, 1)
    limit = g.zero
    if normalizer.kind == "center":
        mean = g("Div", g.total(x), g("Max", g("Sub", whole, count), g.one))
        # Measured against the row as it came: what is left of a constant row is rounding.
        came = g.norms(g("Where", unknown, mean, x), 1)
        limit = g("Mul", came, g.constant(_CONSTANT, np.float64))
        x = g("Where", unknown, g.zero, g("Sub", x, mean))
        length = g.norms(x, 1)
    lost = g("Or", blank, g("LessOrEqual", length, limit))
    if normalizer.metric is not None:
        x = g("MatMul", x, g.stored(normalizer.metric.T.contiguous()))
        length = g.norms(x, 1)
        lost = g("Or", lost, g("LessOrEqual", length, g.zero))
        return _Point(g.quotient(x, length, lost, np.float64), lost)
    unit = g.quotient(x, length, lost, np.float64)
    # The share of the squared norm that a row with gaps has in what is known.
    if normalizer.extra:
        last = g("Slice", unit, g.constant([n], np.int64), g.constant([n + 1], np.int64),
                 g.constant([1], np.int64))  # fmt: skip
        left = g("Mul", g("Mul", last, last), g("Div", count, whole))
        share = g("Div", g.one, g("Add", g.one, left))
    elif normalizer.kind == "none":
        share = g("Min", g("Mul", length, length), g.one)
    else:
        even = torch.full((n,), 1 / n, dtype=torch.float64)
        energy = g.stored(even if normalizer.energy is None else normalizer.energy)
        share = g.total(g("Where", unknown, g.zero, energy))
    share = g("Where", g("Greater", count, g.zero), share, g.one)
    unit = g("Mul", unit, g("Sqrt", share))
    room = g("Max", g("Sub", g.one, g.total(g("Mul", unit, unit))), g.zero)
    return _Point(unit, lost, gaps, count, room, some)


def _exponents(g: _Graph, at: _Point, w: str, mixture: Mixture) -> str:
    """slope·⟨w, x⟩ − offset (batch, P), with what gaps add: see `model.gaps`."""
    slope, offset = float(mixture.slope), float(mixture.offset)
    # A factor of the product would be rounded: ONNX Runtime fuses the two, in single precision.
    h = g("MatMul", at.unit, g("Mul", w, g.constant(slope, np.float64)))
    if at.gaps is None:
        return g.plus(h, -offset)
    gaps, half = at.gaps, g.constant(0.5, np.float64)

    def lift() -> str:
        m = g("Mul", at.missing, half)
        a, b = g("Max", g.plus(m, -0.5), g.zero), g.plus(m, 0.5)
        length = g("MatMul", gaps, g("Mul", w, w))  # ‖w_U‖²
        square = g("Mul", at.room, g.constant((slope / mixture.varsigma) ** 2, np.float64))
        root = g("Sqrt", g("Add", g("Mul", length, square), g("Mul", b, b)))
        log = g("Log", g("Div", g("Add", a, root), g("Add", a, b)))
        return g("Sub", g("Sub", root, b), g("Mul", a, log))

    return g.plus(h, g.only_if(at.some, lift), -offset)


def _answers(g: _Graph, model: FittedModel, at: _Point) -> list[tuple[Any, ...]]:
    """Nodes from unit rows to the outputs, in double precision; (name, type, more axes) of each.

    In single precision the many equal terms of a blank border are rounded alike, which costs
    probabilities their fifth digit. What is stored stays in the precision of the model.
    """
    votes, density = model.votes.to(device="cpu"), model.density.to(device="cpu")
    n_classes = len(model.classes)
    floor = _HEADROOM * float(torch.finfo(torch.float64).tiny)
    net = votes.p[:, :n_classes]
    # Exponents of the memories; that of the uniform component is 0.
    w = g.stored(votes.w.T.contiguous())
    h = _exponents(g, at, w, votes)  # (B, P)
    # As in the kernel: shifted by the largest, the uniform one's included if it has weight.
    uniform = g.constant(0.0 if bool(votes.p[0].any()) else -np.inf, np.float64)
    top = g("Max", g("ReduceMax", h, axes=[1], keepdims=1), uniform)
    joint = g(
        "Add",
        g("MatMul", g("Exp", g("Sub", h, top)), g.stored(net[1:])),
        g("Mul", g("Exp", g("Sub", uniform, top)), g.stored(net[:1])),
    )  # (B, C)
    joint = g("Max", joint, g.constant(floor, np.float64))
    joint = g("Where", at.lost, g.stored(votes.prior[None, :n_classes]), joint)
    best = g("ArgMax", joint, axis=1, keepdims=0)
    labels: NDArray[Any] = model.classes.astype(_LABELS.get(model.classes.dtype.kind, np.str_))
    labels = labels.astype(object) if labels.dtype.kind == "U" else labels
    g("Gather", g.constant(labels), best, output="label", axis=0)
    g("Cast", g("Div", joint, g.total(joint)), output="probabilities", to=g.float)
    # −log Σ_μ c_μ exp(h_μ), memories alone: far from all of them it still tells rows apart.
    own = w if model.is_joint else g.stored(density.w.T.contiguous())
    h = _exponents(g, at, own, density.to(dtype=torch.float64))
    with np.errstate(divide="ignore"):
        weight = np.log(density.p[1:].double().sum(1).numpy())[None, :]
    s = g("Add", h, g.constant(np.maximum(weight, -1e30), np.float64))
    peak = g("ReduceMax", s, axes=[1], keepdims=1)
    score = g("Neg", g("Add", peak, g("Log", g.total(g("Exp", g("Sub", s, peak))))))
    farthest = g.constant(largest_novelty_score(model.precise_density), np.float64)
    score = g("Where", at.lost, farthest, score)
    score = g("Squeeze", score, g.constant([1], np.int64))
    g("Cast", score, output="novelty_score", to=g.float)
    outputs = [
        ("label", g.kind_of(labels.dtype)),
        ("probabilities", g.float, n_classes),
        ("novelty_score", g.float),
    ]
    if (limit := novelty_threshold(model)) is not None:
        g("Greater", score, g.constant(limit, np.float64), output="is_novel")
        outputs.append(("is_novel", g.bool))
    return outputs

"""The model as an ONNX graph, built by hand: raw rows in; label, probabilities, novelty out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.files import write_atomically
from mnemosphere.base.machine import import_extra
from mnemosphere.fitted.model import FittedModel, Tails
from mnemosphere.geometry.graph import OnnxUnitRows
from mnemosphere.interpret.rejection import default_limit, novelty_threshold
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import least_density
from mnemosphere.model.retrieval import largest_novelty_score

_OPSET = 17  # of ONNX Runtime 1.12 and later
_LABELS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}  # else texts
_IR_VERSION = 8
_TINY = 1e-300  # in place of 0, in logarithms


def to_onnx(model: object, path: str | PathLike[str]) -> None:
    """Write a fitted model as an ONNX graph.

    The graph takes raw rows, float64 (batch, N), and returns label (batch,), probabilities (batch, C),
    novelty_score (batch,) and shares (batch, P) of the memories in the votes. If the model is calibrated, also
    is_novel (batch,), is_rejected (batch,) at a rate of 0.05, and reasons (batch, 3): −log of the upper
    tails of novelty, doubt and lead. It needs the package onnx.

    Parameters
    ----------
    model : FittedModel or estimator
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
    fitted = getattr(model, "model_", model)
    if not isinstance(fitted, FittedModel):
        raise TypeError(
            f"a fitted DAMClassifier or DAMClusterer is wanted, got {type(model).__name__}"
        )
    graph, checker = _Graph(), import_extra("onnx.checker", "onnx")
    taken = fitted.columns.n_numbers
    outputs = _answers(graph, fitted, fitted.geometry.onnx(graph, "rows", taken))
    helper, value = graph.helper, graph.helper.make_tensor_value_info
    inner = helper.make_graph(
        graph.nodes, "mnemosphere", [value("rows", graph.double, ["batch", taken])],
        [value(name, kind, ["batch", *more]) for name, kind, *more in outputs],
        initializer=graph.constants,
    )  # fmt: skip
    opset = [helper.make_opsetid("", _OPSET)]
    proto = helper.make_model(inner, opset_imports=opset, producer_name="mnemosphere")
    proto.ir_version = _IR_VERSION
    checker.check_model(proto)
    write_atomically(Path(path), proto.SerializeToString())


class _Graph:
    """Nodes and constants, each named by its number."""

    def __init__(self) -> None:
        self.helper, TensorProto = (
            import_extra("onnx.helper", "onnx"),
            import_extra("onnx", "onnx").TensorProto,
        )
        self._stored = import_extra("onnx.numpy_helper", "onnx").from_array
        self._numbers = itertools.count()
        self.bool, self.float, self.double = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.DOUBLE
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A stored array; whole numbers have 64 bits."""
        name, array = f"c{len(self.constants)}", np.asarray(value, dtype=dtype)
        array = array.astype(np.int64) if array.dtype.kind == "i" else array
        self.constants.append(self._stored(array, name))
        return name

    def stored(self, value: Tensor) -> str:
        """A tensor stored in its own precision and read in double."""
        return self("Cast", self.constant(value.cpu().numpy()), to=self.double)

    def norms(self, x: str, axis: int) -> str:
        """Lengths along an axis, which stays."""
        return self("Sqrt", self("ReduceSumSquare", x, axes=[axis], keepdims=1))

    def total(self, x: str) -> str:
        """Sums of rows, (batch, 1)."""
        return self("ReduceSum", x, [1], keepdims=1)

    def shares(self, exponents: str, first: float) -> str:
        """Softmax of rows, one more component of that exponent in front."""
        return self("Softmax", self("Pad", exponents, [0, 1, 0, 0], first), axis=-1)

    def only_if(self, condition: str, build: Callable[[], str | float]) -> str:
        """What `build` makes where the condition holds; else 0, and none of its nodes run."""
        outside, self.nodes = self.nodes, []
        branches = {}
        for branch, make in (("then_branch", build), ("else_branch", lambda: 0.0)):
            found = self("Identity", make(), output=f"{branch}{len(outside)}")
            result = self.helper.make_tensor_value_info(found, self.double, None)
            branches[branch] = self.helper.make_graph(self.nodes, branch, [], [result])
            self.nodes = []
        self.nodes = outside
        return self("If", condition, **branches)

    def quotient(self, x: str, length: str, without: str) -> str:
        """The quotient in double precision; 0 where there is none."""
        safe = self("Where", without, 1.0, length)
        return self("Where", without, 0.0, self("Div", x, safe))

    def __call__(self, operation: str, *inputs: Any, output: str | None = None, **more: Any) -> str:
        """One node, of results by their names and of numbers; the name of its result."""
        name = output or f"n{next(self._numbers)}"
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        self.nodes.append(self.helper.make_node(operation, names, [name], **more))
        return name


def _exponents(g: _Graph, at: OnnxUnitRows, w: str, mixture: Mixture) -> str:
    """slope·⟨w, x⟩ − offset (batch, P), with what gaps add: see `model.gaps`."""
    slope, offset = float(mixture.slope), float(mixture.offset)
    # A factor of the product would be rounded: ONNX Runtime fuses the two, in single precision.
    h = g("MatMul", at.unit, g("Mul", w, slope))
    if at.gaps is None:
        return g("Sub", h, offset)
    gaps = at.gaps

    def lift() -> str:
        m = g("Mul", at.missing, 0.5)
        a, b = g("Max", g("Sub", m, 0.5), 0.0), g("Add", m, 0.5)
        length = g("MatMul", gaps, g("Mul", w, w))  # ‖w_U‖²
        square = g("Mul", at.room, (slope / mixture.varsigma) ** 2)
        root = g("Sqrt", g("Add", g("Mul", length, square), g("Mul", b, b)))
        log = g("Log", g("Div", g("Add", a, root), g("Add", a, b)))
        return g("Sub", g("Sub", root, b), g("Mul", a, log))

    return g("Sub", g("Add", h, g.only_if(at.some, lift)), offset)


def _answers(g: _Graph, model: FittedModel, at: OnnxUnitRows) -> list[tuple[Any, ...]]:
    """Nodes from unit rows to the outputs, in double precision; (name, type, more axes) of each.

    In single precision the many equal terms of a blank border are rounded alike, which costs
    probabilities their fifth digit. What is stored stays in the precision of the model.
    """
    votes, density = model.votes.to(device="cpu"), model.density.to(device="cpu")
    n_classes = len(model.classes)
    floor = least_density(torch.float64)
    # Exponents of the memories; that of the uniform component is 0.
    w = g.stored(votes.w.T.contiguous())
    h = _exponents(g, at, w, votes)  # (B, P)
    share, joint = _classes(g, at, h, votes, floor)
    joint = g("Slice", joint, [0], [n_classes], [1])
    share = g("Slice", share, [1], [len(votes.p)], [1])
    g("Cast", share, output="shares", to=g.float)
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
    s = g("Add", h, np.maximum(weight, -1e30))
    peak = g("ReduceMax", s, axes=[1], keepdims=1)
    score = g("Neg", g("Add", peak, g("Log", g.total(g("Exp", g("Sub", s, peak))))))
    farthest = largest_novelty_score(model.precise_density)
    score = g("Where", at.undirected, farthest, score)
    score = g("Squeeze", score, [1])
    g("Cast", score, output="novelty_score", to=g.float)
    outputs = [
        ("label", g.helper.np_dtype_to_tensor_dtype(labels.dtype)),
        ("probabilities", g.float, n_classes),
        ("novelty_score", g.float),
        ("shares", g.float, votes.n_memories),
    ]
    if (limit := novelty_threshold(model)) is not None:
        g("Greater", score, limit, output="is_novel")
        outputs.append(("is_novel", g.bool))
    held, limit = model.calibration, default_limit(model)
    if held is not None and limit is not None:
        scored = votes.at(held.temperature)
        _, joint = _classes(g, at, _exponents(g, at, w, scored), scored, floor)
        _rejections(g, joint, n_classes, score, held.tails, limit)
        outputs += [("reasons", g.float, 3), ("is_rejected", g.bool)]
    return outputs


def _classes(g: _Graph, at: OnnxUnitRows, h: str, votes: Mixture, floor: float) -> tuple[str, str]:
    """(shares of the components (batch, P+1), votes for the classes and for none (batch, C+1))."""
    uniform = 0.0 if bool(votes.p[0].any()) else -np.inf
    share = g.shares(h, uniform)
    joint = g("Max", g("MatMul", share, g.stored(votes.p)), floor)
    joint = g("Where", at.undirected, g.stored(votes.p_q[None]), joint)
    share = g("Mul", share, g.stored(votes.weights[None]))
    return g("Where", at.undirected, 0.0, g("Div", share, g("Max", g.total(share), floor))), joint


def _rejections(
    g: _Graph, joint: str, n_classes: int, novelty: str, tails: Tails, limit: float
) -> None:
    """Tails of the reasons (batch, 3), and whether a row is rejected, as `interpret.rejections`."""
    known = g("Slice", joint, [0], [n_classes], [1])
    best = g("ReduceMax", known, axes=[1], keepdims=1)
    first = g("Equal", g("ArgMax", known, axis=1, keepdims=1), np.arange(n_classes + 1)[None])
    others = g.total(g("Where", first, 0.0, joint))
    doubt = g("Log", g("Div", g("Max", others, _TINY), best))
    lead = g("Sub", g("ReduceMean", g("Log", known), axes=[1], keepdims=1), g("Log", best))
    reasons = g("Concat", g("Unsqueeze", novelty, [1]), doubt, lead, axis=1)
    knots = torch.from_numpy(tails.values)
    width = knots.diff(dim=1).clamp_min(_TINY)
    each = g("Sub", g("Unsqueeze", reasons, [2]), g.stored(knots[:, :-1]))
    filled = g("Min", g("Max", g("Div", each, g.stored(width)), 0.0), 1.0)
    inside = g("Mul", g("ReduceMean", filled, axes=[2], keepdims=0), tails.level)
    beyond = g("Sub", reasons, g.stored(knots[:, -1]))
    beyond = g("Max", g("Div", beyond, g.stored(torch.from_numpy(tails.mean))), 0.0)
    found = g("Add", inside, beyond)
    g("Cast", found, output="reasons", to=g.float)
    score = g("Squeeze", g.norms(found, 1), [1])
    none = g("Squeeze", g("Slice", joint, [n_classes], [n_classes + 1], [1]), [1])
    outside = g("Greater", none, g("Squeeze", best, [1]))
    g("Or", g("Greater", score, limit), outside, output="is_rejected")

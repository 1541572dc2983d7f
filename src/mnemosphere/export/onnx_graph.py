"""The model as an ONNX graph, built by hand: raw rows in; label, probabilities, novelty out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.files import write_atomically
from mnemosphere.numerics.bessel import log_omega_ratio

if TYPE_CHECKING:
    from mnemosphere.estimators.portable_model import PortableModel

__all__ = ["build", "write_onnx"]

_OPSET = 17
_IR_VERSION = 8
_CONSTANT = 1e-9  # of the normalizer: what is left of a constant row after its mean
_HEADROOM = 1e8  # of the kernel: densities are kept this far above the smallest number


def write_onnx(model: PortableModel, path: Path) -> None:
    """Write the graph of a fitted model atomically."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    write_atomically(path, build(model).SerializeToString())


def build(model: PortableModel) -> Any:
    """The graph as an onnx.ModelProto.

    Input: rows, float32 (batch, n_features). Outputs: label (batch,) of the type of the classes;
    probabilities (batch, C) float32, those of `predict_proba`; novelty_score (batch,)
    float32; is_novel (batch,) where `calibrate_novelty` has set a threshold.
    """
    try:
        from onnx import checker, helper
    except ImportError as error:
        raise ImportError("to_onnx needs onnx: pip install 'mnemosphere[onnx]'") from error
    graph = _Graph()
    unit, lost = _on_sphere(graph, model)
    outputs = _answers(graph, model, unit, lost)
    kinds = {"label": graph.kind_of(model.classes_), "probabilities": 1, "novelty_score": 1}
    shapes: dict[str, list[int | str]] = {"probabilities": ["batch", len(model.classes_)]}
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "mnemosphere",
            [helper.make_tensor_value_info("rows", 1, ["batch", int(model.n_features_in_)])],
            [
                helper.make_tensor_value_info(
                    name, kinds.get(name, graph.bool), shapes.get(name, ["batch"])
                )
                for name in outputs
            ],
            initializer=graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        producer_name="mnemosphere",
    )
    proto.ir_version = _IR_VERSION
    checker.check_model(proto)
    return proto


class _Graph:
    """Nodes and constants, each named by its number."""

    def __init__(self) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self._make, self._constant = helper.make_node, numpy_helper.from_array
        self.bool, self.float, self.double = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.DOUBLE
        self._string, self._int = TensorProto.STRING, TensorProto.INT64
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A stored array."""
        name = f"c{len(self.constants)}"
        self.constants.append(self._constant(np.asarray(value, dtype=dtype), name))
        return name

    def __call__(self, operation: str, *inputs: str, output: str | None = None, **more: Any) -> str:
        """One node; the name of its result."""
        name = output or f"n{len(self.nodes)}"
        self.nodes.append(self._make(operation, list(inputs), [name], **more))
        return name

    def kind_of(self, classes: NDArray[Any]) -> int:
        """The type of the labels."""
        kinds = {"b": self.bool, "i": self._int, "u": self._int, "f": self.double}
        return int(kinds.get(classes.dtype.kind, self._string))

    def labels(self, classes: NDArray[Any]) -> str:
        """The classes as a stored array of their type."""
        kinds = {"b": bool, "i": np.int64, "u": np.int64, "f": np.float64}
        dtype = kinds.get(classes.dtype.kind)
        if dtype is not None:
            return self.constant(classes, dtype)
        return self.constant(np.array([str(name) for name in classes.tolist()], dtype=object))


def _on_sphere(g: _Graph, model: PortableModel) -> tuple[str, str]:
    """(unit rows in the model's precision, which rows have no direction (batch, 1))."""
    normalizer = model._normalizer
    x = g("Cast", "rows", to=g.double)
    if normalizer.mean is not None and normalizer.scale is not None:
        n = model.n_features_in_
        z = g("Sub", x, g.constant(normalizer.mean.cpu().numpy()))
        z = g("Div", z, g.constant(normalizer.scale.cpu().numpy()))
        pads = g.constant([0, 0, 0, 1], np.int64)
        x = g("Pad", z, pads, g.constant(float(n) ** 0.5, np.float64))
    length = g("Sqrt", g("ReduceSumSquare", x, axes=[1], keepdims=1))
    if normalizer.kind == "center":
        x = g("Sub", x, g("ReduceMean", x, axes=[1], keepdims=1))
        left = g("Sqrt", g("ReduceSumSquare", x, axes=[1], keepdims=1))
        limit = g("Mul", length, g.constant(_CONSTANT, np.float64))
        lost, length = g("LessOrEqual", left, limit), left
    else:
        lost = g("LessOrEqual", length, g.constant(0.0, np.float64))
    safe = g("Where", lost, g.constant(1.0, np.float64), length)
    unit = g("Where", lost, g.constant(0.0, np.float64), g("Div", x, safe))
    single = model.params_.w.dtype == torch.float32
    return (g("Cast", unit, to=g.float) if single else unit), lost


def _answers(g: _Graph, model: PortableModel, unit: str, lost: str) -> list[str]:
    """Nodes from unit rows to the outputs, whose names are returned."""
    params = model.params_.to(device="cpu")
    single = params.w.dtype == torch.float32
    dtype = np.float32 if single else np.float64
    n_classes = len(model.classes_)
    temperature = float(getattr(model, "temperature_", 1.0))
    floor = _HEADROOM * float(torch.finfo(params.p.dtype).tiny)
    log_ratio = float(log_omega_ratio(params.beta, params.n_features))
    net = model._class_params.p.cpu().numpy()
    # Exponents of the memories; that of the uniform component is 0.
    h = g("MatMul", unit, g.constant((params.beta_eff * params.w).T.numpy(), dtype))  # (B, P)
    h = g("Sub", h, g.constant(log_ratio, dtype))
    tempered = h if temperature == 1.0 else g("Div", h, g.constant(temperature, dtype))
    # As in the kernel: shifted by the largest, the uniform one's included.
    top = g("Max", g("ReduceMax", tempered, axes=[1], keepdims=1), g.constant(0.0, dtype))
    joint = g(
        "Add",
        g("MatMul", g("Exp", g("Sub", tempered, top)), g.constant(net[1:, :n_classes], dtype)),
        g("Mul", g("Exp", g("Neg", top)), g.constant(net[:1, :n_classes], dtype)),
    )  # (B, C)
    joint = g("Max", joint, g.constant(floor, dtype))
    joint = g("Where", lost, g.constant(params.p_q.numpy()[None, :n_classes], dtype), joint)
    best = g("ArgMax", joint, axis=1, keepdims=0)
    g("Gather", g.labels(model.classes_), best, output="label", axis=0)
    every = g("ReduceSum", joint, g.constant([1], np.int64), keepdims=1)
    g("Cast", g("Div", joint, every), output="probabilities", to=g.float)
    # −log Σ_μ c_μ exp(h_μ), memories alone: far from all of them it still tells rows apart.
    with np.errstate(divide="ignore"):
        weight = np.log(params.p[1:].double().sum(1).numpy())[None, :]
    s = g("Add", h, g.constant(np.maximum(weight, -1e30), dtype))
    peak = g("ReduceMax", s, axes=[1], keepdims=1)
    total = g("ReduceSum", g("Exp", g("Sub", s, peak)), g.constant([1], np.int64), keepdims=1)
    score = g("Neg", g("Add", peak, g("Log", total)))
    score = g("Where", lost, g.constant(np.inf, dtype), score)
    score = g("Squeeze", score, g.constant([1], np.int64))
    g("Cast", score, output="novelty_score", to=g.float)
    if model.novelty_threshold_ is None:
        return ["label", "probabilities", "novelty_score"]
    g("Greater", score, g.constant(model.novelty_threshold_, dtype), output="is_novel")
    return ["label", "probabilities", "novelty_score", "is_novel"]

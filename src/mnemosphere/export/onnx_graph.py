"""The model as an ONNX graph, built by hand: rows or columns in; label, probabilities, novelty out."""

from __future__ import annotations

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
from mnemosphere.rows.columns import MISSING, Column, Columns

_OPSETS = {"": 18, "ai.onnx.ml": 2}  # of ONNX Runtime 1.14 and later
_LABELS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}  # else texts
_IR_VERSION = 8
_TINY = 1e-300  # in place of 0, in logarithms


def to_onnx(model: object, path: str | PathLike[str], X: Any = None) -> None:
    """Write a fitted model, or a scikit-learn pipeline that ends in one, as one ONNX graph.

    The input is `rows`, (batch, N). If the model was fitted to a frame with categories, each column is an input
    (batch, 1) of its own name: a category as strings, "" where missing; others as numbers, NaN where missing; a date as
    days since 1970-01-01; a text or a list as its vector, (batch, length). The inputs of a pipeline are those of
    skl2onnx: `X`, or the columns of a frame.

    Outputs are label (batch,), probabilities (batch, C), novelty_score (batch,) and shares (batch, P) of the memories
    in the votes. If the model is calibrated, also is_novel (batch,), reasons (batch, 3), which are −log of the upper
    tails of novelty, doubt and lead, and is_rejected (batch,) at a rate of 0.05.

    It needs the package onnx, and skl2onnx for a pipeline.

    Parameters
    ----------
    model : FittedModel, estimator or Pipeline
        A fitted model, or what holds one.
    path : str or path
        The file.
    X : array or frame of shape (n, N), default None
        Some rows, which tell the types of the inputs. Numbers are float32 if they all are in X, else float64. Needed
        for a pipeline.

    Examples
    --------
    >>> mn.to_onnx(clf, "wine.onnx")
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession("wine.onnx")
    >>> session.run(["label"], {"rows": X_test[:3].to_numpy("float64")})[0].tolist()
    [0, 2, 1]
    """
    fitted = getattr(model, "model_", model)
    if isinstance(fitted, FittedModel):
        kinds = {str(kind) for kind in getattr(X, "dtypes", [getattr(X, "dtype", None)])}
        proto = _of_model(fitted, single="float32" in kinds and "float64" not in kinds)
    elif steps := getattr(model, "steps", None):
        if X is None:
            raise ValueError("a pipeline needs X, for the types of its inputs: pass some rows")
        register_converter(type(steps[-1][1]))
        proto = import_extra("skl2onnx", "onnx").to_onnx(model, X, target_opset=_OPSETS)
    else:
        raise TypeError(
            f"a fitted DAMClassifier or DAMClusterer is wanted, got {type(model).__name__}"
        )
    import_extra("onnx", "onnx").checker.check_model(proto)
    write_atomically(Path(path), proto.SerializeToString())


def register_converter(estimator: type) -> None:
    """Let skl2onnx convert an estimator, also within others of scikit-learn.

    Parameters
    ----------
    estimator : type
        DAMClassifier or DAMClusterer.

    Examples
    --------
    >>> mn.export.register_converter(mn.DAMClassifier)
    """
    onnx, skl2onnx = import_extra("onnx", "onnx"), import_extra("skl2onnx", "onnx")
    types = import_extra("skl2onnx.common.data_types", "onnx")

    def parse(scope: Any, fitted: Any, inputs: Any, custom_parsers: Any = None) -> Any:
        operator = scope.declare_local_operator(estimator.__name__, fitted)
        operator.inputs = inputs
        for output in _of_model(fitted.model_).graph.output:
            variable = scope.declare_local_variable(output.name, types.FloatTensorType())
            operator.outputs.append(variable)
        return operator.outputs

    def tell_types(operator: Any) -> None:
        outputs = _of_model(operator.raw_operator.model_).graph.output
        for variable, output in zip(operator.outputs, outputs, strict=False):
            kind = output.type.tensor_type
            name = onnx.TensorProto.DataType.Name(kind.elem_type).title().replace("Bool", "Boolean")
            own = getattr(types, f"{name}TensorType")
            variable.type = own([axis.dim_value or None for axis in kind.shape.dim])

    def convert(scope: Any, operator: Any, container: Any) -> None:
        asked = container.get_options(operator.raw_operator, {"raw_scores": False})
        whole = _of_model(operator.raw_operator.model_, **asked).graph
        graph = onnx.compose.add_prefix_graph(whole, scope.get_unique_operator_name("dam"))
        given = {each.raw_name: each.full_name for each in operator.inputs}
        if [each.name for each in whole.input] == ["rows"]:  # from one or several columns
            parts = [scope.get_unique_variable_name("part") for _ in given]
            for name, part in zip(given.values(), parts, strict=True):
                container.add_node("Cast", name, part, to=onnx.TensorProto.DOUBLE)
            container.add_node("Concat", parts, graph.input[0].name, axis=1)
        else:
            for each, inner in zip(whole.input, graph.input, strict=True):
                container.add_node("Identity", given[each.name], inner.name)
        container.nodes.extend(graph.node)
        container.initializers.extend(graph.initializer)
        for variable, output in zip(operator.outputs, graph.output, strict=False):
            container.add_node("Identity", output.name, variable.full_name)

    skl2onnx.update_registered_converter(
        estimator, estimator.__name__, tell_types, convert, parser=parse,
        options={"raw_scores": [True, False]},
    )  # fmt: skip


def _of_model(model: FittedModel, *, single: bool = False, raw_scores: bool = False) -> Any:
    """A model as a graph; numbers go in in single or double precision.

    raw_scores: in place of probabilities, what `decision_function` says, as skl2onnx has it of two classes.
    """
    g = _Graph()
    x = _rows(g, model.columns, g.float if single else g.double)
    at = model.geometry.onnx(g, x, model.columns.n_numbers)
    _answers(g, model, at, raw_scores)
    if both := {own.name for own in g.inputs} & {own.name for own in g.outputs}:
        raise ValueError(f"column {min(both)!r} has the name of an output of the graph: rename it")
    inner = g.helper.make_graph(g.nodes, "mnemosphere", g.inputs, g.outputs, g.constants)
    opsets = [g.helper.make_opsetid(*each) for each in _OPSETS.items()]
    proto = g.helper.make_model(inner, opset_imports=opsets, producer_name="mnemosphere")
    proto.ir_version = _IR_VERSION
    return proto


def _rows(g: _Graph, columns: Columns, number: int) -> str:
    """The numbers (batch, N) of rows in double precision, from inputs of that type and of strings."""
    if not columns.each or columns.is_texts:
        return g("Cast", g.input("rows", number, columns.n_numbers), to=g.double)
    parts = []
    for column in columns.each:
        if column.kind == "category":
            parts.append(_numbers_of(g, column, g.input(column.name, g.text, 1)))
        elif column.width:
            parts.append(g("Cast", g.input(column.name, number, column.width), to=g.double))
    return g("Concat", *parts, axis=1)


def _numbers_of(g: _Graph, column: Column, texts: str) -> str:
    """The numbers (batch, width) of a category."""
    n = len(column.levels)
    table = np.vstack([column.table, np.full(column.width, np.nan)])
    place = {MISSING: n + 1} | {level: k for k, level in enumerate(column.levels)}
    found = g(
        "LabelEncoder", texts, domain="ai.onnx.ml", keys_strings=[*place],
        values_int64s=[*place.values()], default_int64=n,
    )  # fmt: skip
    return g("Gather", g.constant(table), g("Squeeze", found, [1]), axis=0)


class _Graph:
    """Inputs, outputs, nodes and constants; the latter two are named by their numbers."""

    def __init__(self) -> None:
        onnx = import_extra("onnx", "onnx")
        self.helper, self._array = onnx.helper, onnx.numpy_helper.from_array
        types = onnx.TensorProto
        self.bool, self.float, self.double = types.BOOL, types.FLOAT, types.DOUBLE
        self.text = types.STRING
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, kind: int, width: int) -> str:
        """What is put in, (batch, width)."""
        self.inputs.append(self.helper.make_tensor_value_info(name, kind, ["batch", width]))
        return name

    def output(self, name: str, node: str, kind: int, *axes: int) -> None:
        """What comes out, (batch, *axes)."""
        self("Identity", node, output=name)
        self.outputs.append(self.helper.make_tensor_value_info(name, kind, ["batch", *axes]))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A stored array; whole numbers have 64 bits."""
        name, array = f".c{len(self.constants)}", np.asarray(value, dtype=dtype)
        array = array.astype(np.int64) if array.dtype.kind == "i" else array
        self.constants.append(self._array(array, name))
        return name

    def stored(self, value: Tensor) -> str:
        """A tensor stored in its own precision and read in double."""
        return self("Cast", self.constant(value.cpu().numpy()), to=self.double)

    def norms(self, x: str) -> str:
        """Lengths of rows, (batch, 1)."""
        return self("Sqrt", self("ReduceSumSquare", x, [1], keepdims=1))

    def total(self, x: str) -> str:
        """Sums of rows, (batch, 1)."""
        return self("ReduceSum", x, [1], keepdims=1)

    def __call__(self, operation: str, *inputs: Any, output: str | None = None, **more: Any) -> str:
        """One node, of results by their names and of numbers; the name of its result."""
        name = output or f".n{len(self.nodes)}"
        names = [given if isinstance(given, str) else self.constant(given) for given in inputs]
        self.nodes.append(self.helper.make_node(operation, names, [name], **more))
        return name


def _exponents(g: _Graph, at: OnnxUnitRows, w: str, mixture: Mixture) -> str:
    """slope·⟨w, x⟩ − offset (batch, P), with what gaps add: see `model.gaps`."""
    slope, offset = float(mixture.slope), float(mixture.offset)
    # A factor of the product would be rounded: ONNX Runtime fuses the two, in single precision.
    h = g("MatMul", at.unit, g("Mul", w, slope))
    h = g("Sub", h, offset)
    if at.gaps is None:
        return h
    # Rows with gaps (k, 1).
    some = g("Transpose", g("NonZero", g("Greater", g("Squeeze", at.missing, [1]), 0.0)))
    gaps, missing, room = (g("GatherND", each, some) for each in (at.gaps, at.missing, at.room))
    m = g("Mul", missing, 0.5)
    a, b = g("Max", g("Sub", m, 0.5), 0.0), g("Add", m, 0.5)
    length = g("MatMul", gaps, g("Mul", w, w))  # ‖w_U‖²
    square = g("Mul", room, (slope / mixture.varsigma) ** 2)
    root = g("Sqrt", g("Add", g("Mul", length, square), g("Mul", b, b)))
    log = g("Log", g("Div", g("Add", a, root), g("Add", a, b)))
    lift = g("Sub", g("Sub", root, b), g("Mul", a, log))
    return g("ScatterND", h, some, lift, reduction="add")


def _answers(g: _Graph, model: FittedModel, at: OnnxUnitRows, raw_scores: bool) -> None:
    """Nodes from inputs to outputs, in double precision.

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
    best = g("ArgMax", joint, axis=1, keepdims=0)
    labels: NDArray[Any] = model.classes.astype(_LABELS.get(model.classes.dtype.kind, np.str_))
    labels = labels.astype(object) if labels.dtype.kind == "U" else labels
    label = g("Gather", g.constant(labels), best, axis=0)
    g.output("label", label, g.helper.np_dtype_to_tensor_dtype(labels.dtype))
    found = g("Div", joint, g.total(joint))
    if raw_scores:
        found = g("Log", found)
        found = g("Sub", found, g("Gather", found, [1, 0], axis=1)) if n_classes == 2 else found
    g.output("probabilities", g("Cast", found, to=g.float), g.float, n_classes)
    # −log Σ_μ c_μ exp(h_μ), memories alone: far from all of them it still tells rows apart.
    own = w if model.is_joint else g.stored(density.w.T.contiguous())
    h = _exponents(g, at, own, density.to(dtype=torch.float64))
    with np.errstate(divide="ignore"):
        weight = np.log(density.p[1:].double().sum(1).numpy())[None, :]
    each = g("Add", h, np.maximum(weight, -1e30))
    score = g("Neg", g("ReduceLogSumExp", each, [1], keepdims=1))
    score = g("Where", at.undirected, largest_novelty_score(model.precise_density), score)
    score = g("Squeeze", score, [1])
    g.output("novelty_score", score, g.double)  # hundreds, of which a float keeps 1e-5
    g.output("shares", g("Cast", share, to=g.float), g.float, votes.n_memories)
    if (limit := novelty_threshold(model)) is not None:
        g.output("is_novel", g("Greater", score, limit), g.bool)
    held, limit = model.calibration, default_limit(model)
    if held is not None and limit is not None:
        scored = votes.at(held.temperature)
        _, joint = _classes(g, at, _exponents(g, at, w, scored), scored, floor)
        _rejections(g, joint, n_classes, score, held.tails, limit)


def _classes(g: _Graph, at: OnnxUnitRows, h: str, votes: Mixture, floor: float) -> tuple[str, str]:
    """(shares of the components (batch, P+1), votes for the classes and for none (batch, C+1))."""
    uniform = 0.0 if bool(votes.p[0].any()) else -np.inf
    share = g("Softmax", g("Pad", h, [0, 1, 0, 0], uniform), axis=-1)
    joint = g("Max", g("MatMul", share, g.stored(votes.p)), floor)
    joint = g("Where", at.undirected, g.stored(votes.p_q[None]), joint)
    share = g("Mul", share, g.stored(votes.weights[None]))
    return g("Where", at.undirected, 0.0, g("Div", share, g("Max", g.total(share), floor))), joint


def _rejections(
    g: _Graph, joint: str, n_classes: int, novelty: str, tails: Tails, limit: float
) -> None:
    """Tails of the reasons (batch, 3), and whether a row is rejected, as `interpret.rejections`."""
    known = g("Slice", joint, [0], [n_classes], [1])
    best = g("ReduceMax", known, [1], keepdims=1)
    first = g("Equal", g("ArgMax", known, axis=1, keepdims=1), np.arange(n_classes + 1)[None])
    others = g.total(g("Where", first, 0.0, joint))
    doubt = g("Log", g("Div", g("Max", others, _TINY), best))
    lead = g("Sub", g("ReduceMean", g("Log", known), [1], keepdims=1), g("Log", best))
    reasons = g("Concat", g("Unsqueeze", novelty, [1]), doubt, lead, axis=1)
    knots = torch.from_numpy(tails.values)
    width = knots.diff(dim=1).clamp_min(_TINY)
    each = g("Sub", g("Unsqueeze", reasons, [2]), g.stored(knots[:, :-1]))
    filled = g("Clip", g("Div", each, g.stored(width)), 0.0, 1.0)
    inside = g("Mul", g("ReduceMean", filled, [2], keepdims=0), tails.level)
    beyond = g("Sub", reasons, g.stored(knots[:, -1]))
    beyond = g("Max", g("Div", beyond, g.stored(torch.from_numpy(tails.mean))), 0.0)
    found = g("Add", inside, beyond)
    score = g("Squeeze", g.norms(found), [1])
    none = g("Squeeze", g("Slice", joint, [n_classes], [n_classes + 1], [1]), [1])
    outside = g("Greater", none, g("Squeeze", best, [1]))
    g.output("reasons", found, g.double, 3)
    g.output("is_rejected", g("Or", g("Greater", score, limit), outside), g.bool)

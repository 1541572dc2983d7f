"""What a page is made of: the model, some rows and what is known of both, as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from mnemosphere.base.colors import category_colors
from mnemosphere.export.facts import facts, show
from mnemosphere.export.pack import pack, pack_rows
from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, row_names
from mnemosphere.fitted.pulls import column_curves
from mnemosphere.geometry.base import on_sphere
from mnemosphere.interpret.rejection import rejections
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import least_density
from mnemosphere.rows.columns import readable
from mnemosphere.rows.labels import Labels
from mnemosphere.rows.rows import Rows
from mnemosphere.rows.texts import PACKAGED, packaged_tokens

_LEAST_PIXELS = 36
_LETTERS = 2000  # of a text
_NAMED, _CURVES = 5, 12  # classes in a title, columns with curves
_BINS = 30  # of the values of a column
_CHECKED = 3  # rows by which the page checks itself
TABLE_BYTES = 2_000_000  # of the vectors of tokens, before compression
_BYTES = 259  # tokens of a vocabulary that stand for marks and single bytes


def payload(
    model: FittedModel,
    X: Any = None,
    y: Any = None,
    *,
    max_rows: int = 500,
    image_shape: Sequence[int] | str | None = "auto",
    title: str | None = None,
) -> dict[str, Any]:
    """Everything the page shows.

    X, y: rows to measure by; up to `max_rows` of them go into the page, of each class its
    share. image_shape: (rows, columns) or (rows, columns, 3), None for tables; "auto": a
    square if rows have no names, no negative numbers and a square number of features.
    """
    check_whole(max_rows, "max_rows", 1)
    if X is None and y is not None:
        raise ValueError("y needs the rows that it is about: pass X, too")
    texts = model.columns.texts(X)
    chosen = packed = None
    named: list[str] = []
    if X is not None:
        stored = model.stored(X)
        named, X = row_names(X, stored.n_rows), stored
        y = None if y is None else Labels.of(y, X.n_rows)
        chosen = _choose_rows(model, X.n_rows, y, max_rows)
        packed = as_numpy(X.take(torch.from_numpy(chosen)).values).astype(np.float64)
    columns, names = model.columns, model.columns.number_names
    shape = _image_shape(model, image_shape, packed)
    votes, density = model.precise_votes, _mixture(model.density)
    geometry, mixing = model.geometry, model.geometry.mixing
    known = facts(model, X, None if y is None else y.tolist())
    values = None if model.exemplars is None else getattr(model.exemplars, "columns", None)
    is_table = shape is None and not columns.is_texts
    return {
        **known,
        "title": title or _title(known["classes"], model),
        "colors": category_colors(len(known["classes"])),
        "features": None if names is None else [show(name) for name in names],
        "n_features": columns.n_numbers,
        "image": None if shape is None else list(shape),
        "range": [0.0, 1.0] if packed is None else [_least(packed), -_least(-packed)],
        "geometry": {
            "kind": geometry.name,
            "learned": {name: pack(as_numpy(t)) for name, t in geometry.tensors().items()},
            "inverse": None if mixing is None else pack(as_numpy(torch.linalg.pinv(mixing))),
            "categories": [[place.start, place.stop] for place in columns.categories],
        },
        "calibration": _calibration(model),
        "floor": least_density(votes.p.dtype),
        "votes": _mixture(model.votes)
        | {
            "prior": votes.p_q.tolist(),
            "share": votes.p_h.tolist(),
            "temperature": votes.temperature,
        },
        "density": density | ({"w": None} if model.is_joint else {}),  # those of the votes
        "standing": model.standing.tolist(),
        "map": _map(model, packed),
        "columns": [] if shape is not None else _columns(model),
        "curves": _curves(model, packed) if packed is not None and is_table else [],
        "rows": None if packed is None else _rows(model, texts, packed, chosen, y, named),
        "strong": _strong_features(model),
        "known": _known_rows(model),
        "average": None if values is None else pack(values),
        "typical": None if model.exemplars is None else model.exemplars.as_lists(),
        "encoder": _encoder(model),
        "checks": _checks(model, packed),
    }


def _image_shape(
    model: FittedModel, given: Sequence[int] | str | None, table: NDArray[Any] | None
) -> tuple[int, ...] | None:
    n_features = model.columns.n_numbers
    if given is None:
        return None
    if given == "auto":
        geometry = model.geometry
        named = model.columns.number_names is not None or model.columns.is_texts
        named |= geometry.units is not None and not geometry.has_curves
        side = round(n_features**0.5)
        square = side * side == n_features and n_features >= _LEAST_PIXELS
        positive = table is None or _least(table) >= 0
        return (side, side) if square and positive and not named else None
    shape = () if isinstance(given, str) else tuple(int(side) for side in given)
    known = len(shape) in (2, 3) and shape[2:] in ((), (1,), (3,))
    if not known or math.prod(shape) != n_features:
        raise ValueError(
            "image_shape must be 'auto', None, (rows, columns) or (rows, columns, 1 or 3) of "
            f"{n_features} values, got {given!r}"
        )
    return shape


def _least(table: NDArray[Any]) -> float:
    """The least number there is; 0 if there is none."""
    known = table[~np.isnan(table)]
    return float(known.min()) if known.size else 0.0


def _map(model: FittedModel, table: NDArray[Any] | None) -> dict[str, Any]:
    """Two axes (2, M) and where their middle lies, (2,): principal components of the rows.

    Of the memories, if there are no rows. Rows and memories fill each axis from −1 to 1.
    """
    w = as_numpy(model.precise_votes.w.double())
    x = np.zeros((0, w.shape[1]))
    if table is not None:
        placed, lost = on_sphere(Rows.of(table, model.device), model.geometry, torch.float64)
        x = np.nan_to_num(as_numpy(placed[~lost]))
    axes, shown = principal_axes(x if len(x) > 1 else w), np.concatenate([x, w])
    places = shown @ axes.T
    low, high = places.min(0), places.max(0)
    half = np.maximum(high - low, 1e-12) / 2
    return {"axes": pack(axes / half[:, None]), "middle": ((low + high) / 2 / half).tolist()}


def principal_axes(x: NDArray[Any]) -> NDArray[np.float64]:
    """The directions (2, M) in which points (n, M) vary most; zeros beyond what there is."""
    found, n = np.zeros((2, x.shape[1])), min(2, *x.shape)
    found[:n] = PCA(n, svd_solver="full").fit(x).components_
    return found


def _calibration(model: FittedModel) -> dict[str, Any] | None:
    """By what the page rejects rows; None if it cannot."""
    held = model.calibration
    if held is None or not held.inside.size:
        return None
    return {
        "values": held.tails.values, "level": held.tails.level, "mean": held.tails.mean,
        "novelty": pack(held.novelty), "scores": pack(held.inside),
        "temperature": held.temperature, "record": held.record[:, :2],
    }  # fmt: skip


def _known_rows(model: FittedModel) -> dict[str, Any] | None:
    """The known rows that explanations show, rounded to 16 bits, and the memory that holds each."""
    held = model.held
    if held is None:
        return None
    named = (held.names != -1) & (held.names != "")
    x, owner = np.nan_to_num(as_numpy(held.x)[named]), as_numpy(model.known_owners)[named]
    scale = np.maximum(np.abs(x).max(1, keepdims=True), 1e-12) / np.iinfo(np.int16).max
    return {
        "x": pack(np.rint(x / scale).astype(np.int16)), "scale": pack(scale[:, 0].astype(float)),
        "names": held.names[named], "column": as_numpy(held.column)[named], "owner": owner,
    } if named.any() else None  # fmt: skip


def _columns(model: FittedModel) -> list[dict[str, Any]]:
    """The columns as a user has them: their names, kinds, places, and the numbers of each level."""
    columns = model.columns
    if columns.is_texts:
        name, end = columns.text_column or "text", columns.n_numbers
        return [{"name": name, "kind": "text", "first": 0, "end": end}]
    found = []
    for own in columns.user_columns:
        levels, table = [], []
        if own.is_category:
            levels = [level or "missing" for level in own.column.levels]
            table = own.column.table.tolist()
        elif own.kind == "boolean":
            levels, table = ["False", "True"], [[0.0], [1.0]]
        kind = "list" if own.kind == "text" and own.name != columns.text_column else own.kind
        found.append({"name": own.name, "kind": kind, "first": own.place.start,
                      "end": own.place.stop, "levels": levels, "table": table})  # fmt: skip
    return found


def _curves(model: FittedModel, table: NDArray[Any]) -> list[dict[str, Any]]:
    """What the values of the columns that pull most say for each class, and how many rows have them."""
    found, lines = [], model.columns.user_columns
    if len(model.classes) < 2 or not readable(model.columns.shown_names):
        return []
    for own in column_curves(model, Rows.of(table, model.device), _CURVES):
        (place,) = (k for k, line in enumerate(lines) if line.name == own.name)
        column, values = table[:, lines[place].place], None
        column = column[~np.isnan(column).any(1)]
        if own.names is None:
            counts, _ = np.histogram(column[:, 0], _BINS, (own.at[0], own.at[-1]))
        else:
            told = [lines[place].written(row) for row in table]
            counts = np.array([told.count(name) for name in own.names])
            values = [table[told.index(name), lines[place].place] for name in own.names]
        found.append({
            "column": place, "size": own.size, "at": own.at, "names": own.names,
            "said": own.said.round(4), "counts": counts, "values": values,
        })  # fmt: skip
    return found


def _encoder(model: FittedModel) -> dict[str, Any] | None:
    """What typed texts are read by, as far as it fits; or why they cannot be."""
    encoder = model.columns.encoder
    if encoder is None:
        return None
    if encoder.name != PACKAGED:
        return {"name": encoder.name}
    tokens, vectors, cut = packaged_tokens()
    used = {k for line in ([] if model.exemplars is None else model.exemplars.as_lists())
            for name in map(str, line) for k in cut(name)}  # fmt: skip
    bare = [token.replace("▁", "") for token in tokens]
    # Those of the typical rows, single signs, other texts in ASCII; each in the order of how frequent they are.
    rank = [0 if k in used or k < _BYTES else 1 + (not t.isascii()) * 2 + (len(t) > 1)
            for k, t in enumerate(bare)]  # fmt: skip
    kept = np.sort(np.argsort(rank, kind="stable")[: TABLE_BYTES // vectors.shape[1]])
    scale = np.maximum(np.abs(vectors[kept]).max(1, keepdims=True) / 127, 1e-12)
    table = np.rint(vectors[kept] / scale).astype(np.int8)
    text = np.frombuffer("\0".join(tokens).encode(), np.uint8)
    return {"name": encoder.name, "tokens": pack(text), "kept": pack(kept.astype(np.int32)),
            "table": pack(table), "scale": pack(scale[:, 0].astype(np.float64))}  # fmt: skip


def _checks(model: FittedModel, packed: NDArray[Any] | None) -> dict[str, Any]:
    """What Python says of a few rows, with missing values and without."""
    x = model.memories.astype(np.float64) if packed is None else packed
    x = x[np.linspace(0, len(x) - 1, min(len(x), _CHECKED)).astype(int)]
    some = x[:1].copy()
    some[:, ::2] = np.nan
    x = np.concatenate([x, some, np.full_like(some, np.nan)])
    rows = Rows.of(x, model.device)
    said = {"proba": model.log_proba(rows).exp()[:, :], "score": model.novelty_score(rows)[:, None]}
    if _calibration(model) is not None:
        said["rejection"] = torch.from_numpy(rejections(model, rows).tails)
    return {"x": pack(x), **{name: as_numpy(own) for name, own in said.items()}}


def _choose_rows(model: FittedModel, n_rows: int, y: Labels | None, most: int) -> NDArray[np.int64]:
    """Rows to pack, in order; of each class its share, so that accuracy stays what it is."""
    if n_rows <= most:
        return np.arange(n_rows)
    rng = np.random.default_rng(0)
    order = rng.permutation(n_rows)
    if y is not None:
        order = order[np.argsort(y.among(model.classes, unknown=True)[order], kind="stable")]
    # Every k-th of the rows sorted by class, from a random order within each.
    return np.sort(order[np.floor((np.arange(most) + 0.5) * n_rows / most).astype(int)])


def _mixture(mixture: Mixture) -> dict[str, Any]:
    numbers = {
        name: float(getattr(mixture.precise, name)) for name in ("slope", "offset", "varsigma")
    }
    return {"w": pack(as_numpy(mixture.w)), "p": pack(as_numpy(mixture.p)), **numbers}


def _rows(
    model: FittedModel, texts: list[str | None] | None, packed: NDArray[Any],
    chosen: NDArray[np.int64] | None, y: Labels | None, names: list[str],
) -> dict[str, Any]:  # fmt: skip
    assert chosen is not None
    labels = None
    if y is not None and model.is_classifier:
        labels = y.among(model.classes, unknown=True)[chosen].tolist()
    elif y is not None:  # of a clusterer: names to show, not to score
        labels = [show(v) for v in y.take(chosen).tolist()]
    told = None if texts is None else [(texts[k] or "")[:_LETTERS] for k in chosen.tolist()]
    return {
        "x": pack_rows(packed),
        "y": labels,
        "number": [names[k] for k in chosen.tolist()],
        "text": told,
    }


def _title(classes: list[str], model: FittedModel) -> str:
    """What the model tells apart, by the names of few classes."""
    if not model.is_classifier or len(classes) > _NAMED:
        return f"{len(classes)} {'classes' if model.is_classifier else 'clusters'}"
    return " or ".join([", ".join(classes[:-1]), classes[-1]]) if classes[1:] else classes[0]


def _strong_features(model: FittedModel) -> list[int]:
    """Features by how much memories differ in them, the strongest first."""
    weight = model.votes.weights[1:].double().cpu()
    w = model.geometry.strengths(model.votes.w).cpu()
    weight = weight / weight.sum()
    mean = weight @ w
    spread = weight @ (w - mean).square()
    order = spread.argsort(descending=True, stable=True).tolist()
    hidden = () if model.columns.is_texts else model.columns.vectors
    return [j for j in order if j not in {*hidden}]

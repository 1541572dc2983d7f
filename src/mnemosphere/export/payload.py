"""What a page is made of: the model, some rows and what is known of both, as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.base.colors import category_colors
from mnemosphere.export.facts import facts, measure, show
from mnemosphere.export.pack import pack, pack_rows, rounded
from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, row_names
from mnemosphere.fitted.pulls import column_curves, scale, values_of_columns
from mnemosphere.geometry.base import on_sphere
from mnemosphere.interpret.rejection import rejections
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import least_density
from mnemosphere.rows.columns import readable
from mnemosphere.rows.labels import Labels
from mnemosphere.rows.rows import Rows
from mnemosphere.rows.texts import PACKAGED, packaged_tokens

_LEAST_PIXELS = 36
_NAMED, _CHECKED = 5, 3  # classes in a title, rows by which the page checks itself
_CURVES, _BINS = 12, 30  # columns with curves, bins of their values
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
    columns, geometry, votes = model.columns, model.geometry, model.precise_votes
    rows, table, behind, known = None, None, model.exemplars, facts(model)
    if X is not None:
        stored = model.stored(X)
        labels = None if y is None else Labels.of(y, stored.n_rows)
        if labels is not None and model.is_classifier:
            known["measured"] = measure(model, stored, labels)
        chosen = _choose_rows(model, stored.n_rows, labels, max_rows)
        table = as_numpy(stored.take(torch.from_numpy(chosen)).values).astype(np.float64)
        rows = {"x": pack_rows(table)} | _named(model, X, labels, chosen.tolist())
    shape = _image_shape(model, image_shape, table)
    return {
        **known,
        "title": title or _title(known["classes"], model),
        "colors": category_colors(len(known["classes"])),
        "n_features": columns.n_numbers,
        "image": shape,
        "geometry": {
            "kind": geometry.name,
            "learned": {name: pack(t) for name, t in geometry.tensors().items()},
            "inverse": pack(None if geometry.mixing is None else geometry.mixing.pinverse()),
            "categories": [[place.start, place.stop] for place in columns.categories],
        },
        "calibration": _calibration(model),
        "floor": least_density(votes.p.dtype),
        "votes": _mixture(model.votes),
        "density": _mixture(model.density) | ({"w": None} if model.is_joint else {}),
        "standing": model.standing.tolist(),
        "axes": pack(principal_axes(model, table)),
        "columns": [] if shape is not None else _columns(model),
        "curves": [] if shape or columns.is_texts or table is None else _curves(model, table),
        "rows": rows,
        "strong": np.argsort(-(model.memories / scale(model)).std(0), kind="stable"),
        "known": _known_rows(model),
        "average": pack(values_of_columns(model)),
        "typical": None if behind is None else behind.as_lists(),
        "encoder": _encoder(model),
        "checks": _checks(model, table),
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
        positive = table is None or not (table < 0).any()  # of NaN neither
        return (side, side) if square and positive and not named else None
    shape = () if isinstance(given, str) else tuple(int(side) for side in given)
    known = len(shape) in (2, 3) and shape[2:] in ((), (1,), (3,))
    if not known or math.prod(shape) != n_features:
        raise ValueError(
            "image_shape must be 'auto', None, (rows, columns) or (rows, columns, 1 or 3) of "
            f"{n_features} values, got {given!r}"
        )
    return shape


def principal_axes(model: FittedModel, table: NDArray[Any] | None) -> NDArray[np.float64]:
    """The directions (2, M) in which rows on the sphere vary most, or memories; zeros beyond what there is."""
    x = as_numpy(model.precise_votes.w)
    if table is not None and len(table) > 1:
        placed, lost = on_sphere(Rows.of(table, model.device), model.geometry, torch.float64)
        x = np.nan_to_num(as_numpy(placed[~lost]))
    found, n = np.zeros((2, x.shape[1])), min(2, *x.shape)
    found[:n] = np.linalg.svd(x - x.mean(0), full_matrices=False)[2][:n]
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
    x, scale = rounded(np.nan_to_num(as_numpy(held.x)[named]), np.int16)
    owner, column = as_numpy(model.known_owners)[named], as_numpy(held.column)[named]
    found = {"x": pack(x), "scale": pack(scale), "column": column, "owner": owner}
    return found | {"names": held.names[named]} if named.any() else None


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
        column = table[:, lines[place].place]
        column = column[~np.isnan(column).any(1)]
        if own.names is None:
            counts, _ = np.histogram(column[:, 0], _BINS, (own.at[0], own.at[-1]))
        else:
            told = [lines[place].written(row) for row in table]
            counts = np.array([told.count(name) for name in own.names])
        found.append({
            "column": place, "size": own.size, "at": own.at, "names": own.names,
            "said": own.said.round(4), "counts": counts,
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
    typical: Any = [] if model.exemplars is None else model.exemplars.shown.ravel()
    used = {k for name in typical for k in cut(str(name))}
    bare = [token.replace("▁", "") for token in tokens]
    # Those of typical rows, single signs, other texts in ASCII; each in the order of how frequent they are.
    rank = [(k >= _BYTES and k not in used) * (1 + 2 * (not t.isascii()) + (len(t) > 1))
            for k, t in enumerate(bare)]  # fmt: skip
    kept = np.sort(np.argsort(rank, kind="stable")[: TABLE_BYTES // vectors.shape[1]])
    found: dict[str, NDArray[Any]] = {
        "tokens": np.frombuffer("\0".join(tokens).encode(), np.uint8),
        "kept": kept.astype(np.int32),
    }
    found["table"], found["scale"] = rounded(vectors[kept], np.int8)
    return {"name": encoder.name, **{name: pack(own) for name, own in found.items()}}


def _checks(model: FittedModel, table: NDArray[Any] | None) -> dict[str, Any]:
    """What Python says of a few rows, one of them with missing values."""
    x = model.memories.astype(np.float64) if table is None else table
    x = x[np.linspace(0, len(x) - 1, _CHECKED).astype(int)]
    x[-1, ::2] = np.nan
    rows = Rows.of(x, model.device)
    found = {"proba": model.log_proba(rows).exp(), "score": model.novelty_score(rows)}
    if model.calibration is not None:
        found["rejection"] = torch.from_numpy(rejections(model, rows).tails)
    return {"x": pack(x), **{name: as_numpy(own) for name, own in found.items()}}


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
    numbers = ("slope", "offset", "varsigma", "temperature")
    arrays = {"w": mixture.w, "p": mixture.p, "prior": mixture.p_q, "share": mixture.p_h}
    found = {name: pack(tensor) for name, tensor in arrays.items()}
    return found | {name: float(getattr(mixture.precise, name)) for name in numbers}


def _named(model: FittedModel, X: Any, y: Labels | None, chosen: list[int]) -> dict[str, Any]:
    """What some rows are called, their labels (names for a clusterer) and texts."""
    texts, names = model.columns.texts(X), row_names(X, len(X))
    labels: list[Any] | None = None
    if y is not None and model.is_classifier:
        labels = y.among(model.classes, unknown=True)[chosen].tolist()
    elif y is not None:
        labels = [show(v) for v in y.take(np.array(chosen)).tolist()]
    told = None if texts is None else [texts[k] or "" for k in chosen]
    return {"y": labels, "number": [names[k] for k in chosen], "text": told}


def _title(classes: list[str], model: FittedModel) -> str:
    """What the model tells apart, by the names of few classes."""
    if not model.is_classifier or len(classes) > _NAMED:
        return f"{len(classes)} {'classes' if model.is_classifier else 'clusters'}"
    return " or ".join([", ".join(classes[:-1]), classes[-1]]) if classes[1:] else classes[0]

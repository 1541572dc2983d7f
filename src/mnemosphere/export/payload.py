"""What a page is made of: the model, some rows and what is known of both, as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from mnemosphere.export.facts import facts, show
from mnemosphere.export.pack import EXACT, pack, pack_memories, pack_rows
from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, row_names
from mnemosphere.fitted.pulls import column_curves, column_pulls
from mnemosphere.interpret.explanation import Explanation, explain
from mnemosphere.interpret.rejection import novelty_threshold
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import least_density
from mnemosphere.numerics import sphere
from mnemosphere.rows.labels import Labels
from mnemosphere.rows.stored import StoredRows

_LEAST_PIXELS = 36
_STRONG, _TOLD = 5000, 100  # features that get a slider; up to which rows are explained
_LETTERS = 400  # of a text
_KNOWN = 1000  # novelty scores of known rows, about
_NAMED, _MISLED, _CURVES = 5, 3, 12  # classes in a title, columns that misled, curves
_MISTAKES = 60  # that the page shows
_CHECKED = 3  # rows by which the page checks itself
# By how much probabilities and scores may be off, with memories as they are or rounded.
_ALMOST, _ROUNDED, _ROUNDED_SCORE = 1e-5, 5e-3, 0.05


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
    texts = model.features.texts(X)
    chosen = packed = None
    named: list[str] = []
    if X is not None:
        stored = model.stored(X)
        named, X = row_names(X, stored.n_rows), stored
        y = None if y is None else Labels.of(y, X.n_rows)
        chosen = _choose_rows(model, X.n_rows, y, max_rows)
        packed = as_numpy(X.take(torch.from_numpy(chosen)).values).astype(np.float64)
    names = model.features.names
    shape = _image_shape(model, image_shape, packed)
    votes, density = _mixture(model.precise_votes), _mixture(model.precise_density)
    geometry, mixing = model.geometry, model.geometry.mixing
    known, held = facts(model, X, None if y is None else y.tolist()), model.calibration
    return {
        **known,
        "title": title or _title(known["classes"], model),
        "features": None if names is None else [show(name) for name in names],
        "n_features": model.features.n_numbers,
        "image": None if shape is None else list(shape),
        "range": [0.0, 1.0] if packed is None else [_least(packed), -_least(-packed)],
        "geometry": {
            "kind": geometry.name,
            "learned": {name: pack(as_numpy(t)) for name, t in geometry.tensors().items()},
            "inverse": None if mixing is None else pack(as_numpy(torch.linalg.pinv(mixing))),
            "categories": [[place.start, place.stop] for place in model.features.categories],
        },
        "threshold": novelty_threshold(model),
        "floor": least_density(model.votes.p.dtype),
        "votes": votes
        | {
            "prior": model.votes.p_q.tolist(),
            "share": model.votes.p_h.tolist(),
            "temperature": model.votes.temperature,
        },
        "density": density | ({"w": None} if model.is_joint else {}),  # those of the votes
        "standing": model.standing.tolist(),
        "xy": map_memories(as_numpy(model.votes.w.double())).round(4).tolist(),
        "rows": None if packed is None else _rows(model, texts, packed, chosen, y, named),
        "strong": _strong_features(model)[:_STRONG],
        "known": None
        if held is None
        else held.novelty[:: max(1, len(held.novelty) // _KNOWN)].tolist(),
        "record": None if held is None else held.record[:, :2].tolist(),
        "typical": None if model.exemplars is None else model.exemplars.as_lists(),
        "checks": _checks(model, packed),
    }


def _image_shape(
    model: FittedModel, given: Sequence[int] | str | None, table: NDArray[Any] | None
) -> tuple[int, ...] | None:
    n_features = model.features.n_numbers
    if given is None:
        return None
    if given == "auto":
        geometry = model.geometry
        named = model.features.names is not None or model.features.encoder is not None
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


def map_memories(w: NDArray[Any]) -> NDArray[np.float64]:
    """Points (P, 2) in [−1, 1] for memories (P, N): two principal components, each fills its axis."""
    points, axes = np.zeros((len(w), 2)), min(2, *w.shape)
    points[:, :axes] = PCA(axes, svd_solver="full").fit_transform(w)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    found: NDArray[np.float64] = (points - middle) / np.maximum(np.ptp(points, axis=0) / 2, 1e-12)
    return found


def _checks(model: FittedModel, packed: NDArray[Any] | None) -> dict[str, Any]:
    """What Python says of a few rows, with missing values and without."""
    x = model.memories.astype(np.float64) if packed is None else packed
    x = x[np.linspace(0, len(x) - 1, min(len(x), _CHECKED)).astype(int)]
    some = x[:1].copy()
    some[:, ::2] = np.nan
    x = np.concatenate([x, some, np.full_like(some, np.nan)])
    rows = StoredRows.of(x, model.device)
    exact = all(p.w.numel() <= EXACT for p in (model.votes, model.density))
    return {
        "x": pack(x),
        "proba": as_numpy(model.log_proba(rows).exp()).tolist(),
        "score": as_numpy(model.novelty_score(rows)).tolist(),
        "tolerance": [_ALMOST, _ALMOST] if exact else [_ROUNDED, _ROUNDED_SCORE],
    }


def _choose_rows(model: FittedModel, n_rows: int, y: Labels | None, most: int) -> NDArray[np.int64]:
    """Rows to pack, in order; of each class its share, so that accuracy stays what it is."""
    if n_rows <= most:
        return np.arange(n_rows)
    rng = np.random.default_rng(0)
    order = rng.permutation(n_rows)
    if y is not None:
        order = order[np.argsort(y.among(model.classes, unknown=True)[order], kind="stable")]
    # Every so-manieth of the rows sorted by class, from a random order within each.
    return np.sort(order[np.floor((np.arange(most) + 0.5) * n_rows / most).astype(int)])


def _mixture(mixture: Mixture) -> dict[str, Any]:
    w, p = as_numpy(mixture.w.double()), as_numpy(mixture.p).astype(np.float32)
    numbers = {name: float(getattr(mixture, name)) for name in ("slope", "offset", "varsigma")}
    return {"w": pack_memories(w), "p": pack(p), **numbers}


def _rows(
    model: FittedModel, texts: list[str | None] | None, packed: NDArray[Any],
    chosen: NDArray[np.int64] | None, y: Labels | None, names: list[str],
) -> dict[str, Any]:  # fmt: skip
    assert chosen is not None
    stored = StoredRows.of(packed, model.device)
    why = explain(model, stored, n_memories=1)
    tables = misled = columns = None
    shown = texts is None and why.shows_features
    if shown and model.features.n_numbers <= _TOLD:
        tables = [[[*line.values()][:5] for line in why.column_table(k)] for k in range(len(why))]
    if shown:
        columns = [
            {
                "name": own.name, "size": own.size, "at": own.at.tolist(), "names": own.names,
                "said": own.said.round(4).tolist(),
            }
            for own in column_curves(model, stored, _CURVES)
        ]  # fmt: skip
    labels = None
    if y is not None and model.is_classifier:
        labels = y.among(model.classes, unknown=True)[chosen].tolist()
        misled = _misled(model, why, labels) if shown else None
    elif y is not None:  # of a clusterer: names to show, not to score
        labels = [show(v) for v in y.take(chosen).tolist()]
    told = None if texts is None else [(texts[k] or "")[:_LETTERS] for k in chosen.tolist()]
    return {"x": pack_rows(packed), "y": labels, "number": [names[k] for k in chosen.tolist()], "text": told,
            "rejected": why.rejected, "why": tables, "misled": misled,
            "columns": columns}  # fmt: skip


def _misled(model: FittedModel, why: Explanation, labels: list[int]) -> dict[str, list[str]]:
    """The columns that pulled the surest of the wrong rows from their class, by the place of the row."""
    best, found, lines = why.proba.argmax(1), {}, model.features.user_columns
    wrong = [k for k, own in enumerate(labels) if own >= 0 and own != best[k]]
    for k in sorted(wrong, key=lambda k: -why.proba[k].max())[:_MISTAKES]:
        stored = StoredRows(why.given[k : k + 1], model.device)
        pulls = column_pulls(model, stored, np.array([[best[k], labels[k]]]))
        found[str(k)] = [
            f"{lines[j].name} {lines[j].written(as_numpy(why.given[k]))} "
            f"(typical: {lines[j].written(pulls.typical[0, 1])})"
            for j in [j for j in pulls.order(0) if pulls.pull[0, j] > 0][:_MISLED]
        ]
    return found


def _title(classes: list[str], model: FittedModel) -> str:
    """What the model tells apart, by the names of few classes."""
    if not model.is_classifier or len(classes) > _NAMED:
        return f"{len(classes)} {'classes' if model.is_classifier else 'clusters'}"
    return " or ".join([", ".join(classes[:-1]), classes[-1]]) if classes[1:] else classes[0]


def _strong_features(model: FittedModel) -> list[int]:
    """Features by how much memories differ in them, the strongest first."""
    weight = model.votes.weights[1:].double().cpu()
    w = sphere.project(model.geometry.preimage(model.votes.w).cpu())
    weight = weight / weight.sum()
    mean = weight @ w
    spread, _ = model.geometry.per_feature(weight @ (w - mean).square())
    order = spread.argsort(descending=True, stable=True).tolist()
    return [j for j in order if j not in {*model.features.vectors}]

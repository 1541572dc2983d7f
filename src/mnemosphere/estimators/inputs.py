"""What a fit is given, checked: columns, rows, labels and weights; the seed and the callbacks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.machine import pick_device
from mnemosphere.base.warnings import warn_user
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.settings import Settings
from mnemosphere.fitted.model import draw_seed
from mnemosphere.gpu import on_gpu
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.rows.batches import Dataset, Piece
from mnemosphere.rows.columns import Columns
from mnemosphere.rows.labels import (
    OUT_OF_SCOPE,
    Encoded,
    Labels,
    about_labels,
    check_worth_it,
    class_index,
    class_weights,
    encode_labels,
    row_weights,
    sample_weights,
)
from mnemosphere.rows.odds import Odds
from mnemosphere.rows.rows import Rows
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.distributed import current

SAMPLED = 1 << 15  # rows of files, at most, that starts and "auto" choices look at
_LEAST_WIDTH, _WIDTH_OF_TEXT = 64, 256  # memories, as work is reckoned; numbers of a text or a list
_WORTH_A_GPU = 1_000_000  # numbers in X: with fewer, starting kernels takes longer than the work
COLUMNS = ("encoder", "categories", "min_frequency")  # settings of how columns are read
# Settings that may change when a fit goes on: they change nothing, or only how long it takes.
_NO_MATTER = {"callbacks", "device", "encoder", "max_iter", "verbose"}
_CPU = torch.device("cpu")


class Survey(NamedTuple):
    """What one look at all rows tells."""

    sample: Piece
    classes: NDArray[Any]  # (C,)
    mass: Tensor  # (C,) summed weight of each class
    class_weight: dict[Any, float] | None  # of each class, by all rows


class FitInputs(NamedTuple):
    """What a fit is given, checked; of rows in files, a sample."""

    settings: Settings
    source: Any  # X as given
    leveled: tuple[Columns, Rows]  # columns and rows, levels of categories as numbers
    columns: Columns  # the columns as `predict` sees them
    stored: Rows  # and the rows
    targets: Tensor  # (n, C+1) label weights
    weight: Tensor | None  # (n,)
    classes: NDArray[Any]  # (C,)
    survey: Survey | None  # of rows in files
    seed: int
    callbacks: list[Callback]
    progress: Progress


def read_inputs(
    settings: Settings, X: Any, y: Any, sample_weight: Any, progress: Progress, *,
    labeled: bool = True, classes: NDArray[Any] | None = None,
) -> FitInputs:  # fmt: skip
    """Columns are learned, labels become weights. labeled: whether y is read; classes None: those of y."""
    given, found, rows = settings.given, None, X
    class_weight = given.get("class_weight")
    if isinstance(X, Dataset):
        check_alone(y, sample_weight)
        if not X.fits:
            found = survey(X, settings, progress, labeled=labeled)
            classes, class_weight = found.classes, found.class_weight
        some = X.read() if found is None else found.sample
        rows, y, sample_weight = some.x, some.y, some.weight
    columns, leveled = learn_columns(rows, given, X if found else None, labeled=labeled)
    if found is not None:
        leveled = replace(leveled, ids=torch.from_numpy(found.sample.number))
    coded: Encoded | None = None
    if labeled:
        coded = encode(settings, y, leveled, classes, require_label=True)
        weight = row_weights(coded, class_weight, sample_weight)
        targets, classes = coded.targets, coded.classes
    else:
        weight = sample_weights(sample_weight, leveled.n_rows, leveled.device)
        targets = torch.zeros(leveled.n_rows, 1, dtype=torch.float64, device=leveled.device)
        classes = np.empty(0)
    settled, stored = settle_columns(columns, leveled, coded, weight)
    seed, callbacks = begin(given, X if found else stored, progress)
    return FitInputs(
        settings, X, (columns, leveled), settled, stored, targets, weight, classes, found, seed,
        callbacks, progress,
    )  # fmt: skip


def learn_columns(
    X: Any, settings: Mapping[str, Any], files: Dataset | None = None, *, labeled: bool = False
) -> tuple[Columns, Rows]:
    """(the columns of training rows, the rows as numbers on the device), checked.

    files: that X is a sample of. labeled: levels of categories await `settle_columns`.
    """
    columns, numbers = Columns.learn(
        X, labeled=labeled, **{name: settings[name] for name in COLUMNS}
    )
    device = device_of(numbers if files is None else files, settings["device"])
    stored = Rows.of(numbers, device, columns)
    return columns, stored.check_finite(columns.number_names, gaps=True)


def encode(
    settings: Settings, y: Any, stored: Rows, classes: NDArray[Any] | None, *,
    require_label: bool,
) -> Encoded:  # fmt: skip
    """Labels as indices and weights, with remarks on them if the classes are those of y."""
    coded = encode_labels(
        y, stored.n_rows, classes, unlabeled=settings.given["unlabeled"],
        smoothing=settings.smoothing, require_label=require_label, device=stored.device,
    )  # fmt: skip
    if classes is None:
        labeled = coded.index[coded.index >= 0]
        counts = torch.bincount(labeled, minlength=len(coded.classes)).cpu().numpy()
        weighted = settings.given["class_weight"] is not None
        for note in about_labels(coded.classes, counts, weighted=weighted):
            warn_user(note)
        if settings.n_memories is None:
            check_worth_it(len(coded.classes), len(labeled))
    return coded


def settle_columns(
    columns: Columns, stored: Rows, coded: Encoded | None, weight: Tensor | None
) -> tuple[Columns, Rows]:
    """Columns with what training rows have there, and these rows as `predict` would see them.

    With labels, levels of categories become the log-odds of the classes.
    """
    if stored.levels and coded is not None:
        odds = Odds.learn(stored, label_shares(coded.targets), weight)
        columns, stored = odds.columns(columns, coded.classes.tolist()), odds.of_others(stored)
    observed = stored.observed().cpu().numpy()
    never = np.isinf(observed[0])
    if never.any():
        name = repr((columns.number_names or range(len(never)))[never.argmax()])
        raise ValueError(f"column {name} of X is NaN in every row: drop it")
    return replace(columns, observed=observed), stored


def device_of(rows: Any, setting: str) -> torch.device:
    """Where to train: "auto" is where a tensor lies, else a GPU if there is one and rows are many."""
    if setting != "auto":
        return pick_device(setting)
    if isinstance(rows, Tensor) and on_gpu(rows):
        return rows.device
    shape = (rows.n_rows, rows.n_features) if isinstance(rows, Dataset) else rows.shape
    return pick_device("auto") if math.prod(shape) >= _WORTH_A_GPU else torch.device("cpu")


def work_on(X: Any, n_memories: int = _LEAST_WIDTH) -> int:
    """About how many multiplications a pass over rows X has, by their shape alone."""
    found: Any = (len(X) if isinstance(X, Sequence) else 0,)
    shape = (X.n_rows, X.n_features) if isinstance(X, Dataset) else getattr(X, "shape", found)
    return int(math.prod(shape)) * n_memories * (_WIDTH_OF_TEXT if len(shape) < 2 else 1)


def begin(
    settings: Mapping[str, Any], rows: Rows | Dataset, progress: Progress
) -> tuple[int, list[Callback]]:
    """The seed and the callbacks of a fit to these rows; one that goes on has its own seed."""
    given, seed = settings["callbacks"], draw_seed(settings["random_state"])
    if not isinstance(given, Sequence) or not all(isinstance(c, Callback) for c in given):
        raise TypeError(f"callbacks must be a list of Callback objects, got {given!r}")
    callbacks, group = [*([progress] if progress.shown else []), *given], current()
    told: dict[str, Any] = {k: repr(v) for k, v in settings.items() if k not in _NO_MATTER}
    told["random_state"] = None if settings["random_state"] is None else seed
    told |= {"rows": rows.n_rows, "features": rows.n_features}
    for own in callbacks if group.first else ():
        if isinstance(own, Checkpoint):
            seed = own.begin(told, seed)
    return group.broadcast(seed), callbacks


def check_alone(y: object, sample_weight: object) -> None:
    """ValueError if labels or weights are passed beside a `Dataset`."""
    if y is not None or sample_weight is not None:
        raise ValueError(
            "a Dataset has labels and weights of its own: leave y and sample_weight out, and name "
            "them in Dataset.open"
        )


def survey(source: Dataset, settings: Settings, progress: Progress, *, labeled: bool) -> Survey:
    """A random sample of the rows, and the classes of all; rank 0 looks for all processes."""
    if settings.given["encoder"] is not None:
        raise TypeError("encoder takes texts in memory, got a Dataset: encode its texts first")

    def look() -> Survey:
        parts, count = [], Counter[Any]()
        for piece, some in source.sampling(SAMPLED, 0):
            if labeled:
                count.update(_label_weights(piece, settings.given["unlabeled"]))
            parts.append(some)
            progress.show("reading rows", int(piece.number[-1]) + 1, source.n_rows)
        sample = Piece.join([part for part in parts if len(part.number)])
        if not labeled:
            return Survey(sample, np.empty(0), torch.empty(0, dtype=torch.float64), None)
        if not count:
            raise ValueError("every row is unlabeled: label some rows of each class")
        classes = class_index(list(count), None, _CPU)[0]
        mass = torch.tensor([count[name] for name in classes.tolist()], dtype=torch.float64)
        setting = settings.given["class_weight"]
        if setting is not None:
            each = class_weights(setting, classes, torch.arange(len(classes)), mass)
            setting = dict(zip(classes.tolist(), each.tolist(), strict=True))
        return Survey(sample, classes, mass, setting)

    return current().on_rank0(look)


def _label_weights(piece: Piece, unlabeled: object) -> dict[Any, float]:
    """The summed weight of each label."""
    if piece.y is None:
        raise ValueError("the Dataset has no labels: pass label= to Dataset.open")
    try:
        labels = Labels.of(piece.y, unlabeled=unlabeled)
    except ValueError as error:
        raise ValueError(f"from row {piece.number[0]} of the files on: {error}") from error
    names = [*labels.found.tolist(), *([OUT_OF_SCOPE] if labels.outside.any() else [])]
    place = np.where(labels.outside, len(labels.found), labels.place)
    each = np.ones(len(place)) if piece.weight is None else np.asarray(piece.weight, float)
    mass = np.bincount(place[place >= 0], each[place >= 0], minlength=len(names))
    return dict(zip(names, mass.tolist(), strict=True))

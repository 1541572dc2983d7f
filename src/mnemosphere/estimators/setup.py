"""What comes before and after training, whatever is trained: rows, seed, callbacks, the record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from mnemosphere.base.machine import pick_device
from mnemosphere.base.warnings import warn_user
from mnemosphere.estimators.choice import Sample, Settings
from mnemosphere.estimators.progress import Progress
from mnemosphere.fitted.exemplars import called_rows, find_exemplars
from mnemosphere.fitted.model import FittedModel, Record, draw_seed
from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import warn_set_aside
from mnemosphere.gpu import on_gpu
from mnemosphere.model import one_pass
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.soft_labels import label_shares
from mnemosphere.rows.batches import Dataset
from mnemosphere.rows.columns import Columns
from mnemosphere.rows.labels import Encoded
from mnemosphere.rows.odds import Odds
from mnemosphere.rows.rows import Rows, row_sketch
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.distributed import current

PASSES = {"exact": 50, "incremental": 6}  # of the fixed point if max_iter is None
_ENDED = ("converged", "stopped early", "grown", "stable")
FEW_NUMBERS = 50_000  # up to which precision is double
_STILL_FALLING = 0.03  # relative fall of the loss in the last pass that still matters
_LEAST_WIDTH, _WIDTH_OF_TEXT = 64, 256  # memories, as work is reckoned; numbers of a text or a list
_FEW_CLAIMED = 0.5  # share of the rows: with less, class frequencies decide most answers
_WORTH_A_GPU = 1_000_000  # numbers in X: with fewer, starting kernels takes longer than the work
COLUMNS = ("encoder", "categories", "min_frequency")  # settings of how columns are read
_PROBED = 8  # memories whose probabilities must be finite
# Settings that may change when a fit goes on: they change nothing, or only how long it takes.
_NO_MATTER = {"callbacks", "device", "encoder", "max_iter", "verbose"}


Chosen = TypeVar("Chosen")


class Ready(NamedTuple, Generic[Chosen]):
    """All that a fit knows before it trains: everything that is "auto" settled, rows on the sphere."""

    settings: Settings
    columns: Columns
    stored: Rows  # rows as given, or a sample of a data set
    weight: Tensor | None  # theirs
    classes: NDArray[Any]
    seed: int
    callbacks: list[Callback]
    dataset: ArrayDataset
    geometry: Geometry
    choice: Chosen


def learn_columns(
    X: Any, settings: Mapping[str, Any], *, encoded: bool = True, labeled: bool = False
) -> tuple[Columns, Rows]:
    """(the columns of training rows, the rows as numbers on the device), checked.

    labeled: levels of categories await `settle_columns`.
    """
    if isinstance(X, Dataset):
        raise TypeError("this takes rows in memory, got a Dataset: pass it to fit")
    how = {name: settings[name] for name in COLUMNS if name in settings}
    columns, numbers = Columns.learn(X, encoded=encoded, labeled=labeled, **how)
    stored = Rows.of(numbers, device_of(numbers, settings["device"]), columns)
    return columns, stored.check_finite(columns.number_names, gaps=encoded)


def settle_columns(
    columns: Columns, stored: Rows, coded: Encoded | None = None,
    weight: Tensor | None = None,
) -> tuple[Columns, Rows]:  # fmt: skip
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


def precision_of(setting: str, n_numbers: int) -> torch.dtype:
    """The precision of training; "auto" is double for few numbers."""
    if setting == "auto":
        return torch.float64 if n_numbers <= FEW_NUMBERS else torch.float32
    return torch.float64 if setting == "float64" else torch.float32


def place(
    kind: str, sample: Sample, given: Rows, weight: Tensor | None
) -> tuple[ArrayDataset, Geometry]:
    """(the rows on the sphere, how they were put there).

    given, weight: the rows of X that the sample was made of, which a warning names.
    """
    geometry = Geometry.learn(kind, sample.rows, sample.targets, sample.weight)
    rows, lost = sample.on_sphere(geometry)
    aside: float | Tensor = 0.0
    geometry.check_some_left(lost)
    if bool(lost.any()):
        warn_set_aside(geometry, given, weight)
        aside, rows = rows.take(lost).label_mass().double(), rows.take(~lost)
    dataset = ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)
    number = torch.tensor(sample.rows.row_ids((~lost).nonzero()[:, 0]))
    return replace(dataset, mass_set_aside=aside, number=number), geometry


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


def as_model(
    kind: Literal["classifier", "clusterer"], ready: Ready[Any], votes: Mixture, density: Mixture,
    result: Run, **more: Any,
) -> FittedModel:  # fmt: skip
    """The result of a training as a model."""
    settings, status = ready.settings, result.status
    record = Record(
        kept_settings(settings.given), [asdict(own) for own in result.history], status,
        status in _ENDED, list(ready.choice.trials),
    )  # fmt: skip
    return FittedModel(
        kind, votes, density, ready.geometry, ready.columns, ready.classes,
        smoothing=settings.smoothing, learns_beta=settings.beta is None,
        learns_weights=result.learns_weights, record=record, lineage=result.lineage, **more,
    )  # fmt: skip


def finished(model: FittedModel, ready: Ready[Any], X: Any) -> FittedModel:
    """The model, checked, with the training rows that its memories stand for.

    A warning says if training ended too early.
    """
    model, history, columns = sound(model), model.record.history, model.columns
    for own in ready.callbacks if current().first else ():
        ended = model.record.status != "interrupted" or ready.choice.interrupted
        if isinstance(own, Checkpoint) and ended:
            own.finish()
    losses = [own["loss"] for own in history if own["phase"] == history[-1]["phase"]][-2:]
    early = ready.settings.max_iter is None and model.record.status == "max_iter"
    if early and len(losses) == 2:
        fall = (losses[0] - losses[1]) / max(abs(losses[1]), 1e-300)
        if fall > _STILL_FALLING:
            warn_user(
                f"not converged in {len(history)} passes, the last lowered the loss by "
                f"{fall:.1%}: raise max_iter",
                ConvergenceWarning,
            )
    exemplars = find_exemplars(
        model.votes, model.geometry, ready.stored, ready.weight, ready.dataset.n_rows,
        None if columns.is_texts else columns,
    )  # fmt: skip
    if ready.settings.beta is not None:
        _warn_if_too_cold(ready, float(exemplars.support.sum()))
    record = replace(model.record, trained_rows=row_sketch(ready.stored))
    held, texts = model.held, columns.texts(X)
    exemplars = replace(exemplars, names=called_rows(exemplars.typical, texts, X))
    if held is not None:
        held = replace(held, names=called_rows(held.names, texts, X))
    return model.replace(exemplars=exemplars, held=held, record=record)


def _warn_if_too_cold(ready: Ready[Any], claimed: float) -> None:
    """Warn if memories answer for few of the rows: `claimed` of them."""
    stored, weight = ready.stored, ready.weight
    total = stored.n_rows if weight is None else float(weight.sum())
    share = claimed / (total * max(1.0, ready.dataset.n_rows / stored.n_rows))
    if share < _FEW_CLAIMED:
        warn_user(
            f"beta={ready.settings.beta:g} is too large for these rows: memories answer for "
            f"{share:.0%} of them, and class frequencies for the others: lower beta, or leave it out"
        )


def sound(model: FittedModel) -> FittedModel:
    """The model; ValueError if its probabilities are not finite numbers."""
    for mixture in (model.precise_votes, model.votes, model.density):
        if not bool(torch.isfinite(one_pass.log_joint(mixture, mixture.w[:_PROBED])).all()):
            raise ValueError(
                "training came to no model: probabilities of its own memories are not finite; scale X, or "
                "use other settings"
            )
    return model


def kept_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a model remembers: all but those that only watch its training."""
    return {k: v for k, v in settings.items() if k not in ("callbacks", "verbose")}

"""A fitted model: one frozen value, and the way of a row through it.

`fit` makes a `FittedModel`, model files hold one, and predictions, explanations and exports are
functions of one and of rows. A row goes through

    X → numbers (checked, encoded) → unit rows (geometry) → votes: classes, shares of memories
                                                             → density: novelty, samples, recall

chunk by chunk. A row without direction (all missing, all zeros, or constant where rows are centered) is
like none of the memories: its class is that of the prior, its novelty 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import (
    check_some_left,
    on_device,
    on_sphere,
    unit_chunks,
    warn_set_aside,
)
from mnemosphere.model import objectives, one_pass, retrieval
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import alike
from mnemosphere.model.gaps import has_gaps, overlaps
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.soft_labels import without_floor
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import log_area
from mnemosphere.rows.columns import Columns
from mnemosphere.rows.labels import Encoded, class_index, encode_labels, row_weights, sample_weights
from mnemosphere.rows.rows import Rows
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.solver import SolverState

Floats = NDArray[np.floating[Any]]
_NAMED = 10  # classes that a model names of itself
_FEW_HELD = 19  # held-out rows of a class, with fewer of which a rate of 5% promises nothing of it


class Placed(NamedTuple):
    """Rows on the sphere, for several answers."""

    x: Any  # unit rows (n, M)
    lost: Tensor  # (n,) which have no direction


@dataclass(frozen=True)
class HeldOut:
    """Some known rows, and what votes and density would say had they not seen them."""

    x: Tensor  # unit rows; 0: without direction
    column: Tensor  # of their classes; C: of none
    votes: Tensor  # to be added to the log of votes
    novelty: Tensor  # to be added to novelty scores
    temperature: float  # at which that is so
    row: Tensor  # (n,) their numbers in the rows of fit, −1 for none
    names: NDArray[Any]  # (n,) what they are called: numbers, −1 for none, or names
    scored: Tensor  # (n,) whether rates hold by them; the others are shown alone

    @staticmethod
    def difference(said: Tensor, own: Tensor) -> Tensor:
        """What to add to the log of votes (n, C+1), so that classes are as probable as others say."""
        return (said.double().log_softmax(1) - own.double().log_softmax(1)).nan_to_num(0.0)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return len(self.x)

    def take(self, rows: Tensor) -> HeldOut:
        """Some of them."""
        some: dict[str, Any] = {name: getattr(self, name)[rows] for name in _OF_ROWS}
        return replace(self, **some, names=self.names[as_numpy(rows)])

    def joined(self, others: HeldOut) -> HeldOut:
        """These and others."""
        both = ((name, [getattr(own, name) for own in (self, others)]) for name in _OF_ROWS)
        every: dict[str, Any] = {name: torch.cat(parts) for name, parts in both}
        names = [own.names.astype(object) for own in (self, others)]
        return replace(self, **every, names=np.concatenate(names))


_OF_ROWS = ("x", "column", "votes", "novelty", "row", "scored")


@dataclass(frozen=True)
class Tails:
    """How rare reasons for rejection are among known rows."""

    # values that a share of the rows reaches; shares fall evenly in their logarithm, from 1
    values: Floats
    level: float  # −log of the share at the last of them
    mean: Floats  # by how much the rows beyond exceed it


@dataclass(frozen=True)
class Calibration:
    """Scores of rows that were not trained on, by which rates, coverages and accuracies hold.

    Novelty and rejection are sorted.
    """

    tails: Tails  # of the reasons for rejection
    novelty: Floats  # novelty scores
    rejection: Floats  # rejection scores
    label: Floats  # −log P(y|x) of the labels that are known, in the order of rows
    # log-odds against the answers to these rows, then to rows out of scope; inf: no answer
    doubt: Floats
    right: NDArray[np.int64]  # whether these answers are right
    temperature: float = 1.0  # at which the scores were taken
    # of each memory, the rows in which it had the largest share, how many of them are right, and the
    # place of the class that it is confused with most, −1 for none
    record: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    fresh: bool = True  # of rows that no part of the model has seen; else cross-fitted

    @property
    def inside(self) -> Floats:
        """Rejection scores of the rows that are not more like rows out of scope than like any class."""
        return self.rejection[np.isfinite(self.rejection)]


@dataclass(frozen=True)
class Exemplars:
    """The training rows that memories answer for."""

    # numbers of rows, most typical first; −1 where there is none
    typical: NDArray[np.int64]
    # summed share in the votes, in units of rows
    support: Floats
    names: NDArray[Any] | None = None  # (P, 3) what the typical rows are called, "" for none
    # numbers of the rows that a memory stands for: medians, the commonest of a category; NaN: none
    values: Floats | None = None
    # (n, N) some of the training rows as numbers, if people can read them
    sample: Floats | None = None

    @property
    def shown(self) -> NDArray[Any]:
        """Names of the typical rows of each memory, or their numbers, (P, 3)."""
        return self.typical if self.names is None else self.names

    def as_lists(self) -> list[list[Any]]:
        """The same without places where there is no row."""
        return [[row for row in line if row not in (-1, "")] for line in self.shown.tolist()]

    def take(self, memories: NDArray[np.int64]) -> Exemplars:
        """Those of some memories; −1: of a new one, without typical rows."""
        new = (memories < 0)[:, None]
        names = None if self.names is None else np.where(new, "", self.names[memories])
        support = np.where(new[:, 0], 0.0, self.support[memories])
        values = None if self.values is None else np.where(new, np.nan, self.values[memories])
        typical = np.where(new, -1, self.typical[memories])
        return Exemplars(typical, support, names, values, self.sample)


@dataclass(frozen=True)
class Stream:
    """What `partial_fit` goes on from."""

    state: SolverState


@dataclass(frozen=True)
class Record:
    """How the model came about."""

    settings: dict[str, Any] = field(default_factory=dict)  # of the estimator
    history: list[dict[str, Any]] = field(default_factory=list)  # one dict per pass
    status: str = "given"
    converged: bool = False
    search: list[dict[str, Any]] = field(default_factory=list)  # trials behind "auto"
    # (k,) hashes of some training rows, so that they are not taken for held-out ones
    trained_rows: NDArray[np.int64] | None = field(default=None, compare=False)


@dataclass(frozen=True, repr=False)
class FittedModel:
    """A fitted model as one frozen value: what `fit` makes and model files hold.

    An estimator holds it as `model_`. Functions of `interpret` and `export` take it; those that change a
    model return another one. `mn.as_estimator(model)` makes an estimator of it.

    Attributes
    ----------
    kind : str
        "classifier" or "clusterer".
    votes : Mixture
        What decides: memories w (P, N), class weights p (P+1, C+1), slope, offset and temperature.
    density : Mixture
        Whether a row is known, and what a row looks like. A joint model was trained as this mixture, and
        its votes have the same memories.
    geometry : Geometry
        How raw rows become unit rows.
    columns : Columns
        Names, kinds and levels of the columns of X.
    classes : ndarray of shape (C,)
        Labels, or numbers of clusters.
    calibration : Calibration or None
        Scores of held-out rows.
    held : HeldOut or None
        Training rows by which an edited model is calibrated anew.
    smoothing : float
        ε of the soft labels in training.
    objective : str
        "joint" or "conditional".
    learns_beta : bool
        Whether β was learned.
    learns_weights : bool
        Whether the weights of memories were learned; else they were held.
    label_mass : tensor of shape (C+1,) or None
        Summed label weights of the training rows.
    labels : ndarray of int of shape (n,) or None
        Clusters of the training rows.
    exemplars : Exemplars or None
        Typical training rows and support of each memory.
    lineage : Lineage or None
        The tree of splits.
    stream : Stream or None
        What `partial_fit` continues from.
    record : Record
        Settings, history, status and trials of the search.

    Examples
    --------
    >>> model
    FittedModel: a classifier, converged after 8 passes
      3 classes: 0, 1, 2
      6 memories of 4 features, objective='joint', geometry='standard'
      temperature 1.19, calibrated by 60 fresh rows
    """

    kind: Literal["classifier", "clusterer"]
    votes: Mixture
    density: Mixture
    geometry: Geometry
    columns: Columns
    classes: NDArray[Any]
    calibration: Calibration | None = None
    held: HeldOut | None = None
    smoothing: float = 0.0
    objective: str = "joint"  # or "conditional"
    learns_beta: bool = True
    learns_weights: bool = False
    label_mass: Tensor | None = None
    labels: NDArray[np.int64] | None = None
    exemplars: Exemplars | None = None
    lineage: Lineage | None = None
    stream: Stream | None = None
    record: Record = Record()

    def __repr__(self) -> str:
        passes, names = len(self.record.history), map(str, self.classes[:_NAMED].tolist())
        more = ", …" if len(self.classes) > _NAMED else ""
        found = self.calibration
        by = "rows held out in the fit" if found is None or not found.fresh else "fresh rows"
        groups = "classes" if self.is_classifier else "clusters"
        return (
            f"FittedModel: a {self.kind}, {self.record.status} after {passes} passes\n"
            f"  {len(self.classes)} {groups}: {', '.join(names)}{more}\n"
            f"  {self.n_memories} memories of {self.columns.n_columns} features, "
            f"objective={self.objective!r}, geometry={self.geometry.name!r}\n"
            f"  temperature {self.votes.temperature:.3g}, "
            + ("not calibrated" if found is None else f"calibrated by {len(found.novelty)} {by}")
            + ("" if found is None or found.fresh else self._few_rows())
        )

    def _few_rows(self) -> str:
        """Which classes have too few of the rows by which rates hold to promise anything of each."""
        if self.held is None:
            return ""
        counts = torch.bincount(self.held.column[self.held.scored], minlength=len(self.classes))
        pairs = zip(self.classes.tolist(), counts.tolist(), strict=False)
        few = [f"{name} ({n})" for name, n in pairs if n < _FEW_HELD][:_NAMED]
        told = f"\n  rates and sets hold for all classes together, few rows are of {', '.join(few)}"
        return told if few else ""

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached

    def check_sizes(self) -> Self:
        """The model; ValueError unless its memories fit its rows and classes."""
        n_coordinates = self.geometry.n_coordinates(self.columns.n_numbers)
        for mixture in (self.votes, self.density):
            if (mixture.n_features, mixture.n_columns) != (n_coordinates, len(self.classes) + 1):
                raise ValueError(
                    f"memories of {mixture.n_features} coordinates and {mixture.n_columns - 1} classes "
                    f"do not fit rows of {n_coordinates} coordinates and {len(self.classes)} classes"
                )
        return self

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def at(self, temperature: float) -> Self:
        """The same with its votes at another temperature."""
        if temperature == self.votes.temperature:
            return self  # with all that it has computed once
        return replace(self, votes=self.votes.at(temperature))

    # What was trained.

    @property
    def is_joint(self) -> bool:
        """Whether votes and density have the same memories, trained by their likelihood, bool."""
        return self.objective == "joint"

    @property
    def trained(self) -> Mixture:
        """The parameters as training left them: the density, or votes of the conditional likelihood."""
        if self.is_joint:
            return self.density
        p = without_floor(self.votes.p, self.votes.p_q)
        own = self.votes.replace(p=p / p.sum()).at(1.0)  # an edit may leave less than the floor
        return own.with_classes(own.p)

    def changed(self, votes: Mixture, density: Mixture, **kept: Any) -> Self:
        """A copy with other parameters, without all that was found by the old ones but is not kept."""
        gone = dict.fromkeys(("calibration", "held", "exemplars", "lineage", "stream"))
        return replace(self, votes=votes, density=density, **{**gone, **kept})

    # What there is to read.

    @property
    def is_classifier(self) -> bool:
        """Whether the classes are labels and not clusters, bool."""
        return self.kind == "classifier"

    def called(self, label: object) -> str:
        """A class for people: by its name; one that is a number is "class 3"."""
        kind = "class" if self.is_classifier else "cluster"
        return str(label) if any(map(str.isalpha, str(label))) else f"{kind} {label}"

    @property
    def n_memories(self) -> int:
        """Number of memories P, int."""
        return self.votes.n_memories

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.votes.w.device

    @property
    def rule(self) -> LabelRule:
        """The objective that the model was trained by."""
        if not self.is_classifier:
            return objectives.marginal
        return objectives.BY_NAME[self.objective]

    @cached_property
    def memories(self) -> Floats:
        """Memories, in the features' units if rows are standardized or on circles, else unit vectors, ndarray of shape (P, N)."""
        return as_numpy(self.restore(self.votes.w))

    @cached_property
    def typical_values(self) -> Floats | None:
        """(P, N) what memories stand for, in the features' units: values of rows, else memories.

        Memories that tell classes apart point beyond the rows: they are taken back into the range of
        the columns. NaN where most of the rows lack a value. None if rows have lost their units.
        """
        known = None if self.exemplars is None else self.exemplars.values
        if self.geometry.units is None:
            return known
        found = self.columns.in_range(self.memories)
        if known is None:
            return found
        return np.where(np.isnan(known).all(1, keepdims=True), found, known)

    @cached_property
    def precise_votes(self) -> Mixture:
        """The votes as they are read: sharp memories need the digits."""
        return self.votes.precise

    @cached_property
    def precise_density(self) -> Mixture:
        """The density as it is read."""
        return self.density.precise

    @cached_property
    def standing(self) -> Tensor:
        """(P,) the memory that stands for each where a reader cannot distinguish them."""
        return alike(self.precise_votes)

    @cached_property
    def known_owners(self) -> Tensor:
        """The memory with the largest share in each known row, (n,)."""
        return self.standing[self.shares(self.held).argmax(1)]

    @property
    def distinct(self) -> Tensor:
        """The memories that stand for themselves, in order."""
        standing = self.standing
        return (standing == torch.arange(len(standing), device=standing.device)).nonzero()[:, 0]

    @cached_property
    def _forward(self) -> one_pass.Pass:
        """log_joint of the votes, with all that rows share computed once."""
        return one_pass.Pass(self.precise_votes)

    def columns_of(self, y: Any, n_rows: int | None = None) -> Tensor:
        """The columns of p that these classes, or clusters, have, (n,); n_rows: so many must be given."""
        return class_index(y, self.classes, self.device, n_rows)[1]

    def restore(self, points: Tensor) -> Tensor:
        """Points of the sphere (…, M) as rows, in the features' units if possible, (…, N)."""
        return self.geometry.restore(points, self.columns.categories)

    # Rows in.

    def stored(self, X: Any) -> Rows:
        """X as numbers, NaN where a feature is not known; ValueError for anything else."""
        if isinstance(X, Rows):  # of a data set that was checked
            return X.on(self.device)
        return Rows.encode(X, self.columns, self.device)

    def completed(self, X: Any) -> Rows:
        """X as numbers, with what the density expects in place of NaN.

        A row of nothing else gets neutral numbers.
        """
        stored = self.stored(X)
        values = stored.values
        if not values.is_floating_point() or not has_gaps(values):
            return stored
        values = values.to(stored.device).double()
        x, lost = on_sphere(stored, self.geometry, self.density.w.dtype)
        found = torch.where(lost[:, None], 0.0, x)
        found[~lost] = retrieval.expected_memory(self.density, x[~lost])
        restored = as_numpy(self.restore(found).double())
        full = torch.from_numpy(self.geometry.complete(as_numpy(values), restored))
        neutral = on_device(self.geometry, stored.device).fill(values)
        full = torch.where(lost[:, None], neutral, full.to(stored.device))
        return Rows(full, stored.device)

    def unit_rows(
        self, X: Any, dtype: torch.dtype | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(unit rows, which of them have no direction), chunk by chunk."""
        dtype = dtype or self.votes.w.dtype
        if isinstance(X, Placed):
            return iter([(X.x.to(dtype), X.lost)])
        if isinstance(X, HeldOut):
            x = X.x.to(self.device, dtype)
            norm = sphere.norms(x, keepdim=True)  # NaN with gaps
            return iter([(torch.where(norm > 0, x / norm, x), norm[:, 0] == 0)])
        return unit_chunks(self.stored(X), self.geometry, dtype)

    def on_sphere(self, X: Any, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """(all unit rows, which of them have no direction); ValueError if none has one."""
        x, lost = on_sphere(self.stored(X), self.geometry, dtype or self.votes.w.dtype)
        check_some_left(self.geometry, lost)
        return x, lost

    def labeled(self, X: Any, y: Any = None, sample_weight: Any = None) -> Batch:
        """Unit rows with label weights as training has them; a clusterer reads no y."""
        stored = self.stored(X)
        if self.is_classifier:
            coded = self.encoded(y, stored)
            class_weight = self.record.settings.get("class_weight")
            targets, weight = coded.targets, row_weights(coded, class_weight, sample_weight)
        else:  # one row of zeros stands for all of them
            targets = torch.zeros(1, len(self.classes) + 1, dtype=torch.float64)
            targets = targets.expand(stored.n_rows, -1)
            weight = sample_weights(sample_weight, stored.n_rows, stored.device)
        return self.batch(stored, targets, weight)

    def encoded(self, y: Any, stored: Rows) -> Encoded:
        """Labels as those of training were encoded; rows may have none."""
        return encode_labels(
            y, stored.n_rows, self.classes, unlabeled=self.record.settings.get("unlabeled"),
            smoothing=self.smoothing, require_label=False, device=stored.device,
        )  # fmt: skip

    def batch(self, stored: Rows, targets: Tensor, weight: Tensor | None) -> Batch:
        """Unit rows with these label weights; those without direction are left out, with a warning."""
        x, lost = self.on_sphere(stored)
        rows = Batch(x, targets.to(x), None if weight is None else weight.to(x))
        if not bool(lost.any()):
            return rows
        warn_set_aside(self.geometry, stored, weight)
        return rows.take(~lost)

    # Answers, as tensors on the device of the model.

    def class_log_joint(self, X: Any) -> Tensor:
        """Log of the votes for each class, up to a constant of the row, (n, C+1)."""
        votes, read = self.precise_votes, self._forward.log_joint
        prior = votes.p_q.clamp_min(torch.finfo(votes.p.dtype).tiny).log()
        return _over(
            self.unit_rows(X, votes.w.dtype),
            lambda x, lost: torch.where(lost[:, None], prior, read(x)),
        )

    def log_proba(self, X: Any) -> Tensor:
        """Log P(y | x, y is one of the C classes), (n, C)."""
        return self.class_log_joint(X)[:, :-1].double().log_softmax(1)

    def shares(self, X: Any) -> Tensor:
        """P(memory | x), the share of each memory in the votes, (n, P)."""
        votes = self.precise_votes

        def share(x: Tensor) -> Tensor:
            return one_pass.scores(votes, overlaps(votes, x)).softmax(1)[:, 1:]

        return _over(
            self.unit_rows(X, votes.w.dtype),
            lambda x, lost: torch.where(
                lost[:, None], 0.0, one_pass.in_chunks(share, x, votes.n_memories)
            ),
        )

    def log_density(self, X: Any) -> Tensor:
        """Log of the effective density on the sphere, labels summed out, (n,)."""
        params = self.precise_density
        alone = params.p_h[0].clamp_min(torch.finfo(params.p.dtype).tiny).log()
        found = self._of_density(X, retrieval.log_marginal, float(alone))
        return found - log_area(params.n_features)

    def novelty_score(self, X: Any) -> Tensor:
        """Minus the log of the memories' part of the density, (n,).

        A row without direction is as far as a row can be.
        """
        farthest = retrieval.largest_novelty_score(self.precise_density)
        return self._of_density(X, retrieval.novelty_score, farthest)

    def _of_density(
        self, X: Any, read: Callable[[Mixture, Tensor], Tensor], without: float
    ) -> Tensor:
        """What is read of the density at each row, (n,); without: of a row without direction."""
        params = self.precise_density
        return _over(
            self.unit_rows(X, params.w.dtype),
            lambda x, lost: torch.full_like(lost, without, dtype=torch.float64).masked_scatter(
                ~lost, read(params, x[~lost]).double()
            ),
        )


def _over(
    chunks: Iterator[tuple[Tensor, Tensor]], read: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    parts = [read(x, lost) for x, lost in chunks]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def like(X: Any, answer: Tensor) -> Any:
    """An answer where the question came from: a tensor for a tensor, else a NumPy array."""
    return answer.to(X.device) if isinstance(X, Tensor) else answer.cpu().numpy()


def as_numpy(values: Any) -> NDArray[Any]:
    """An answer as a NumPy array, wherever it lies."""
    if isinstance(values, Iterator):  # of a data set, batch by batch
        return np.concatenate([as_numpy(part) for part in values])
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def row_labels(X: Any, n_rows: int) -> list[int | str]:
    """What rows are called: as the index of a frame has them, else by their places."""
    index = getattr(X, "index", None)  # a list has a method of that name
    if index is None or callable(index) or len(index) != n_rows:
        return list(range(n_rows))
    return [int(name) if isinstance(name, Integral) else str(name) for name in index]


def row_names(X: Any, n_rows: int) -> list[str]:
    """The same as texts."""
    return [str(name) for name in row_labels(X, n_rows)]


def draw_seed(random_state: Any) -> int:
    """One whole number out of whatever scikit-learn calls a random state."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def check_whole(value: object, name: str, least: int | None = None) -> None:
    """Raise ValueError unless the value is a whole number, and at least `least`."""
    if not isinstance(value, Integral) or (least is not None and value < least):
        bound = "" if least is None else f" >= {least}"
        raise ValueError(f"{name} must be a whole number{bound}, got {value!r}")

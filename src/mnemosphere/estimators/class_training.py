"""How a classifier is trained: the choice of what is "auto", then the joint or the conditional likelihood.

rows as stored -> resolve(...)  what is "auto"; unit rows
-> train(...)    votes and density
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset
from mnemosphere.data.normalize import DENSE, SCALED, Normalizer
from mnemosphere.data.rows import StoredRows, in_order, merge_copies
from mnemosphere.estimators import choice
from mnemosphere.estimators.choice import Choice, Geometry, Sample, SearchTable
from mnemosphere.estimators.setup import SOLVERS, Trained, check_room, precision_of
from mnemosphere.fitted import trained_with
from mnemosphere.interpret.certify import warn_set_aside
from mnemosphere.model import objectives
from mnemosphere.model.class_reading import best_temperature, label_frequencies, net_class_weights
from mnemosphere.model.merge import merge_duplicates
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import inference
from mnemosphere.model.votes import Votes
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.conditional import fit_conditional
from mnemosphere.training.distributed import current
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import fit_joint, start_joint, start_memories
from mnemosphere.training.sgd import SGD

__all__ = ["ClassTraining"]

HELD_OUT_FROM = 20_000  # of so many rows, some are kept from training for the temperature
# A conditional model gets a density of its own: few memories, trained to distinguish classes, do not
# describe the rows. As many rows for each memory of it, at most so many memories.
_ROWS_OF_DENSITY, _MOST_OF_DENSITY = 5, 500
_FEW_NUMBERS = 50_000  # of rows, memories and classes, up to which precision is double
_FEW_MEMORIES = 200  # as many are counted for that: few models of small data have more


@dataclass(frozen=True)
class _Settings:
    """The settings of a classifier that its training needs; None stands for "auto"."""

    n_memories: int | None
    objective: str  # "auto", "joint" or "conditional"
    growth: int | None
    varsigma: float | None
    beta: float | None
    normalize: str
    solver: FixedPoint | SGD | Adam | None
    max_iter: int | None
    label_smoothing: float
    uniform_weight: float | None
    search: str | None = "auto"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From the settings of a `DAMClassifier`."""

        def known(name: str, auto: str = "auto") -> Any:
            return None if given[name] == auto else given[name]

        solver = given["solver"]
        return cls(
            known("n_memories"), given["objective"], given["growth"], known("varsigma"),
            known("beta", "learn"), given["normalize"],
            SOLVERS.get(solver) if isinstance(solver, str) else solver, given["max_iter"],
            trained_with(given)["smoothing"], known("uniform_weight"),
            given["search"],
        )  # fmt: skip

    def check(self) -> None:
        """Raise ValueError if the settings contradict each other."""
        conditional = "joint" not in self.objectives
        if conditional and self.growth is not None:
            raise ValueError(
                "growth splits memories of the joint likelihood: use objective='joint' or "
                "growth=None"
            )
        if conditional and isinstance(self.solver, FixedPoint):
            raise ValueError(
                "the fixed point needs non-negative label weights, which the conditional "
                "objective has not: use solver='auto', Adam() or SGD()"
            )
        if not conditional and isinstance(self.solver, Adam):
            raise ValueError(
                "Adam trains the conditional likelihood: use objective='conditional', or "
                "solver='auto' for the joint one"
            )

    @property
    def learn_beta(self) -> bool:
        """Whether β is trained."""
        return self.beta is None

    @property
    def adam(self) -> Adam:
        """The solver of the conditional likelihood."""
        return self.solver if isinstance(self.solver, Adam) else Adam()

    @property
    def fixed_point_or_sgd(self) -> FixedPoint | SGD | None:
        """The solver of the joint likelihood, if one is given."""
        return self.solver if isinstance(self.solver, FixedPoint | SGD) else None

    @property
    def objectives(self) -> tuple[str, ...]:
        """Those that may be chosen: a solver, or a tree of splits, belongs to one of them."""
        if self.objective != "auto":
            return (self.objective,)
        if isinstance(self.solver, Adam):
            return ("conditional",)
        if self.solver is not None or self.growth is not None:
            return ("joint",)
        return ("joint", "conditional")


class ClassTraining:
    """The training that the settings of a classifier ask for, on one set of rows."""

    normalizer: Normalizer  # set by `resolve`, as is the choice
    choice: Choice

    def __init__(self, settings: Mapping[str, Any], n_features: int, classes: NDArray[Any]) -> None:
        self.settings, self.classes_ = _Settings.of(settings), classes
        self._precision = settings["precision"]

    @property
    def trials(self) -> SearchTable:
        """The table of the search."""
        return self.choice.trials

    def precision_for(self, n_numbers: int) -> torch.dtype:
        """The precision of training, by how many numbers it works on."""
        return precision_of(self._precision, n_numbers, _FEW_NUMBERS)

    def resolve(
        self, stored: StoredRows, targets: Tensor, weight: Tensor | None, seed: int,
        *, streamed: bool = False, chosen: Choice | None = None,
    ) -> ArrayDataset:  # fmt: skip
        """Settle everything that is "auto"; return the rows on the sphere.

        streamed: they are the first batch of a stream, which the joint likelihood follows. chosen: what
        was settled on other rows.
        """
        settings = replace(self.settings, objective="joint") if streamed else self.settings
        if stored.n_features < 2 and settings.normalize not in ("auto", *SCALED, "circles"):
            raise ValueError(
                f"X has {stored.n_features} feature(s) after normalize={settings.normalize!r}, the "
                "sphere needs 2: use normalize='standard'"
            )
        given = stored, weight
        # The search takes copies for what they are: rows that come again.
        each = in_order(stored, targets, weight)
        stored, targets, weight = merge_copies(stored, targets, weight)
        most = settings.n_memories or min(stored.n_rows, choice.MOST_ROWS // choice.ROWS_PER_MEMORY)
        # A pass has two products with the features and three with the classes.
        numbers = stored.n_numbers + 3 * targets.numel() // 2
        dtype = self.precision_for(max(numbers, stored.n_rows * min(most, _FEW_MEMORIES)))
        check_room(stored, most, targets.shape[1], dtype)
        with inference(type(stored.values)):
            self.choice = chosen or current().on_rank0(partial(_choose, *each, settings))
        candidate = self.choice.candidate
        if settings.n_memories is None and candidate.n_memories > stored.n_rows:
            candidate = replace(candidate, n_memories=stored.n_rows)  # of distinct rows
            self.choice = replace(self.choice, candidate=candidate)
        labeled = targets.sum(1) > 0
        if not candidate.unlabeled and not bool(labeled.all()):
            kept = labeled.nonzero()[:, 0]
            stored, targets = stored.take(kept), targets[kept]
            weight = None if weight is None else weight[kept]
        geometry, rows, lost = Geometry.fit(
            candidate.normalize, Sample(stored, targets, weight, dtype)
        )
        self.normalizer = geometry.normalizer
        self.normalizer.check_some_left(lost)
        if bool(lost.any()):
            warn_set_aside(self.normalizer, *given)
            rows = rows.take(~lost)
        if geometry.metric is not None:
            self.normalizer = self.normalizer.with_metric(geometry.metric)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)

    def train(self, dataset: Dataset, seed: int, callbacks: Sequence[Callback]) -> Trained:
        """Train what was chosen."""
        settings, candidate = self.settings, self.choice.candidate
        generator = torch.Generator().manual_seed(seed)
        held: Dataset | None = None
        if dataset.n_rows > HELD_OUT_FROM and not dataset.has_unlabeled():
            dataset, held = dataset.split(choice.HELD / dataset.n_rows, generator=generator)
        given: dict[str, Any] = {
            "beta": settings.beta, "max_iter": settings.max_iter, "generator": generator,
            "callbacks": callbacks,
        }  # fmt: skip
        joint = candidate.objective == "joint"
        if joint or isinstance(settings.solver, SGD):
            result, counts = fit_joint(
                dataset, candidate.n_memories, solver=settings.fixed_point_or_sgd,
                rule=objectives.joint if joint else objectives.conditional, growth=settings.growth,
                unlabeled=candidate.unlabeled, varsigma=settings.varsigma,
                uniform_weight=settings.uniform_weight, **given,
            )  # fmt: skip
            p = net_class_weights(result.params, settings.label_smoothing, counts)
        else:
            result = fit_conditional(
                dataset, candidate.n_memories, solver=settings.adam, noise=candidate.noise,
                longer=candidate.longer, **given,
            )  # fmt: skip
            p = net_class_weights(result.params, 0.0)
        params, temperature = result.params, self.choice.temperature
        if held is not None and result.status != "interrupted":
            parts = (part.take(part.targets.sum(1) > 0) for part in held.batches(None))
            temperature = best_temperature([(params.replace(p=p), part) for part in parts])
        if result.lineage is None:
            params, own = merge_duplicates(params, p)
            p = p if own is None else own
        density = params if joint else _density(dataset, generator)
        frequencies = label_frequencies(dataset.label_mass(), settings.label_smoothing)
        votes = Votes.of(params, p, temperature, frequencies)
        return Trained(votes, density, result.history, result.status, result.lineage)

    def first_parameters(self, dataset: ArrayDataset, seed: int) -> Parameters:
        """Where a stream starts."""
        settings, candidate = self.settings, self.choice.candidate
        w, labels = start_memories(
            dataset.rows, candidate.n_memories, own_labels=True,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        return start_joint(
            w, labels, dataset.rows, varsigma=settings.varsigma, beta=settings.beta,
            uniform_weight=settings.uniform_weight, learned_weights=False,
        )  # fmt: skip


def _choose(
    rows: StoredRows, targets: Tensor, weight: Tensor | None, settings: _Settings
) -> Choice:
    """Decide what is "auto"."""
    settings.check()
    sample = Sample(rows, targets, weight, torch.float32)
    if sample.is_sparse and settings.normalize in DENSE:
        raise ValueError(
            f"normalize={settings.normalize!r} would fill sparse rows: pass normalize='unit' or "
            "dense rows"
        )
    noise = settings.adam.noise
    if sample.is_sparse and not isinstance(noise, str) and noise > 0:
        raise ValueError("noise would make sparse rows dense: pass Adam(noise=0)")
    shared = choice.Settings(
        settings.beta, settings.varsigma, settings.label_smoothing, settings.uniform_weight,
        settings.adam,
    )  # fmt: skip
    return choice.choose(
        sample,
        shared,
        normalize=settings.normalize,
        n_memories=settings.n_memories,
        objectives=settings.objectives,
        noise=None if isinstance(noise, str) else noise,
        search=settings.search is not None,
    )


def _density(dataset: Dataset, generator: torch.Generator) -> Parameters:
    """A joint model of some of the rows, ς = 1: what rows look like, and whether one is known."""
    rows = dataset.sample(_ROWS_OF_DENSITY * _MOST_OF_DENSITY, generator=generator)
    n_memories = max(1, rows.n_rows // _ROWS_OF_DENSITY)
    return fit_joint(ArrayDataset(rows), n_memories, varsigma=1.0, generator=generator)[0].params

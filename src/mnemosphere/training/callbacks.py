"""A fit in progress, and the callbacks that watch it, stop it or store it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from mnemosphere.model.mixture import Mixture
from mnemosphere.training.solver import SolverState


@dataclass(frozen=True)
class PassRecord:
    """One pass over the training data."""

    n_iter: int  # counted from 1, across resumptions
    loss: float  # mean training loss, each batch at the parameters it met
    validation_loss: float | None
    validation_accuracy: float | None
    beta: float  # after the pass
    residual: float | None  # of stationarity before the pass (exact fixed-point steps only)
    n_memories: int
    seconds: float  # wall time of the pass, validation included
    phase: int = 0  # of growth or of latent classes; 0 if there is one phase

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class SplitRecord:
    """One step of growth, between two phases."""

    phase: int  # the phase that ended, counted from 0
    n_memories: int  # before the split
    n_split: int  # memories duplicated; 0 where none is a saddle any more
    lambda_min: float  # the most negative curvature of all memories
    delta: float  # how far the copies were moved
    passes: float  # arithmetic of curvature and line search, in training passes at n_memories
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass
class Run:
    """A fit in progress: all that changes on the way."""

    params: Mixture  # after the last pass
    state: SolverState
    generator: torch.Generator
    max_iter: int
    stage: str = ""  # names a part of a longer training, such as a phase of growth
    best: Mixture | None = None  # by validation loss
    best_loss: float = math.inf
    waited: int = 0  # passes since the best
    history: list[PassRecord] = field(default_factory=list)
    status: str = "running"

    @property
    def n_iter(self) -> int:
        """Passes done."""
        return len(self.history)

    def add(self, record: PassRecord, params: Mixture, state: SolverState) -> None:
        """Take in a finished pass."""
        self.params, self.state = params, state
        self.history.append(record)
        if record.validation_loss is None:
            return
        if record.validation_loss < self.best_loss:
            self.best, self.best_loss, self.waited = params, record.validation_loss, 0
        else:
            self.waited += 1

    def converged(self, tol: float) -> bool:
        """Whether the last pass changed the mean loss by less than `tol` relative.

        Or an exact fixed-point step moved the parameters by less than that.
        """
        if len(self.history) < 2:
            return False
        last, before = self.history[-1], self.history[-2]
        small_step = last.residual is not None and last.residual < tol
        return small_step or abs(before.loss - last.loss) < tol * abs(last.loss)


class Callback:
    """Base class of callbacks, which watch a fit, stop it or store it.

    Override the methods of the events that you need. Only `stop_reason` changes training. A `Run` holds
    `params`, `history` (one `PassRecord` per pass), `max_iter` and `status`. All methods but
    `stop_reason` return None.

    Examples
    --------
    >>> class Losses(mn.Callback):
    ...     def on_pass(self, run):
    ...         losses.append(run.history[-1].loss)
    >>> losses = []
    >>> clf.set_params(callbacks=[Losses()]).fit(X_train, y_train).n_iter_ == len(losses)
    True
    """

    def on_start(self, run: Run) -> None:
        """Receive the run before the first pass.

        Parameters
        ----------
        run : Run
            The fit in progress; it takes at most `run.max_iter` passes.

        Examples
        --------
        >>> class Announce(mn.Callback):
        ...     def on_start(self, run):
        ...         print("passes at most:", run.max_iter)
        >>> _ = clf.set_params(callbacks=[Announce()], max_iter=5).fit(X_train, y_train)
        passes at most: 5
        """

    def on_batch(self, run: Run, share_done: float) -> None:
        """Receive the run after a batch.

        Parameters
        ----------
        run : Run
            The fit in progress.
        share_done : float in [0, 1]
            How much of this pass is done.

        Examples
        --------
        >>> class Watch(mn.Callback):
        ...     def on_batch(self, run, share_done):
        ...         shares.append(share_done)
        >>> shares = []
        >>> _ = clf.set_params(callbacks=[Watch()]).fit(X_train, y_train)
        >>> max(shares)
        1.0
        """

    def on_pass(self, run: Run) -> None:
        """Receive the run after a pass.

        Parameters
        ----------
        run : Run
            The fit in progress; `run.history[-1]` is the record of the pass.

        Examples
        --------
        >>> class Watch(mn.Callback):
        ...     def on_pass(self, run):
        ...         passes.append(run.history[-1].n_iter)
        >>> passes = []
        >>> _ = clf.set_params(callbacks=[Watch()], max_iter=3).fit(X_train, y_train)
        >>> passes[0]
        1
        """

    def stop_reason(self, run: Run) -> str | None:
        """Give a reason to stop after a pass, or before the first one.

        Parameters
        ----------
        run : Run
            The fit in progress.

        Returns
        -------
        str or None
            The reason, which becomes the status of the run; None to continue.

        Examples
        --------
        >>> class OnePass(mn.Callback):
        ...     def stop_reason(self, run):
        ...         return "one pass is enough" if run.n_iter == 1 else None
        >>> clf.set_params(callbacks=[OnePass()]).fit(X_train, y_train).status_
        'one pass is enough'
        """
        return None

    def on_split(self, split: SplitRecord, params: Mixture) -> None:
        """Receive the grown network between two phases of training, with `growth` only.

        Parameters
        ----------
        split : SplitRecord
            How many memories were split, and by how much curvature.
        params : Mixture
            The network after the split.

        Examples
        --------
        >>> class Watch(mn.Callback):
        ...     def on_split(self, split, params):
        ...         sizes.append((split.n_memories, params.n_memories))
        >>> sizes = []
        >>> _ = clf.set_params(callbacks=[Watch()], growth=3).fit(X_train, y_train)
        >>> sizes[0]
        (3, 6)
        """

    def on_end(self, run: Run) -> None:
        """Receive the run after the last pass.

        Parameters
        ----------
        run : Run
            The run; `run.status` says how it ended.

        Examples
        --------
        >>> class Report(mn.Callback):
        ...     def on_end(self, run):
        ...         print(run.n_iter <= run.max_iter)
        >>> _ = clf.set_params(callbacks=[Report()]).fit(X_train, y_train)
        True
        """

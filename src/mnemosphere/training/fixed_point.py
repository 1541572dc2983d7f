"""The fixed-point solver: each step maximizes an exact lower bound (Eq. (stationarity))."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.m_step import (
    bound,
    class_weights,
    fit_class_weights_free_prior,
    move_memories,
)
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import Statistics, log_joint
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import mean_resultant
from mnemosphere.training.distributed import current
from mnemosphere.training.solver import Solver, SolverState, check_tol

_FEW_ROWS = 2000  # fewer are taken in one step
_SHORTEST, _GROWING = 0.2, 0.3  # passes that a running mean holds: at first, and more with each
_SHORTEST_OF_WEIGHTS = 0.5  # if class weights wait for the end of a pass: less noise
_DEAD = 1e-3  # of a row
_RESEED_ROWS = 4096


def _window(passes: Tensor, shortest: float = _SHORTEST) -> Tensor:
    """How much of the past the running mean holds, in passes: a fifth, growing after 5/3 passes."""
    return (_GROWING * (passes - 1)).clamp_min(shortest)


@dataclass(frozen=True)
class FixedPoint(Solver):
    """Fixed-point iteration: no learning rate, no momentum, no schedule.

    A memory that answers for less than a thousandth of one row is dead: it is put on a row that
    the model explains worst, with that row's label; in an exact step, only where the loss is sure
    not to increase by it.

    Parameters
    ----------
    batch_size : int or "auto" or None, default "auto"
        None takes one exact step per pass, and the loss never increases. A number takes a step
        after every batch from a running mean of the statistics, whose memory is short at first
        and grows with the passes: many steps early, less and less noise later. "auto" is a
        twentieth of the rows from 2000 rows on (a tenth on a GPU or with several processes), else
        None; a classifier with default settings takes exact steps up to 10,000 rows.
    learn_beta : bool, default True
        Whether β is trained; the estimators decide by their `beta`.
    learn_weights : bool or None, default None
        Whether the weights p_h of memories are learned; the uniform component's and the class
        prior are held. False holds all, as the paper does. None: a classifier learns them if
        every row that it uses has a label and steps are exact; all else holds them.
    tol : float >= 0, default 1e-4
        Stop if a pass changes the loss by less than this, relative; 0 switches it off.
    by_pass : bool, default False
        Whether class weights are learned, and dead memories put on rows, at the end of a pass alone; `fit` decides:
        weights of memories that start with the labels of their rows hardly change within a pass, and the exact
        maximizer takes longer than the rest of a step.

    Examples
    --------
    >>> solver = mn.FixedPoint(batch_size=None, tol=1e-6)
    >>> clf.set_params(solver=solver, max_iter=50).fit(X_train, y_train).n_iter_ <= 50
    True
    """

    exact: ClassVar[bool] = True  # a step on all rows maximizes the bound
    batch_size: int | Literal["auto"] | None = "auto"
    learn_beta: bool = True
    learn_weights: bool | None = None
    tol: float = 1e-4
    by_pass: bool = False

    def __post_init__(self) -> None:
        check_tol(self.tol)
        size = self.batch_size
        if size is not None and size != "auto" and not (isinstance(size, int) and size >= 1):
            raise ValueError(f"batch_size must be >= 1, None or 'auto', got {size!r}")

    @property
    def rows_per_step(self) -> int | None:
        """Rows per step; None for all of them."""
        if self.batch_size == "auto":
            raise ValueError("batch_size is 'auto': call resolve(n_rows, ...) first")
        return self.batch_size

    def resolve(self, n_rows: int, *, learn_beta: bool, device: torch.device) -> Self:
        """Twenty steps per pass for large data; for few rows exact steps are cheap enough.

        Ten on a GPU, which is as fast with batches of twice the size, and where processes wait for
        each other after every step.
        """
        size = self.batch_size
        if size == "auto":
            steps = 10 if on_gpu(device) or current().size > 1 else 20
            size = None if n_rows < _FEW_ROWS else max(-(-n_rows // steps), 256)
        return replace(self, batch_size=size, learn_beta=learn_beta)

    def can_capture(self, params: Mixture) -> bool:
        """Whether no step within a pass needs a device-to-host synchronization."""
        return on_gpu(params.w) and self.by_pass and self.rows_per_step is not None

    def start(self, params: Mixture) -> SolverState:
        """Nothing seen yet."""
        return _means(params, torch.zeros_like(params.w), torch.zeros_like(params.p), 0.0)

    def resume(self, params: Mixture) -> SolverState:
        """The running mean that a fitted model stands for, as if one pass had been taken in.

        At the fixed point p̄ = p up to scale and Σ‖w̄‖ = Σ mass · A_N(β)/ς.
        """
        overlap = mean_resultant(params.beta, params.n_features) / params.varsigma
        w_bar = params.p_h[1:, None] * overlap * params.w
        return _means(params, w_bar, params.p.clone(), 1.0)

    def step(
        self, params: Mixture, state: SolverState, stats: Statistics, batch: Batch, share: float
    ) -> tuple[Mixture, SolverState]:
        """One step from the statistics of one batch, taken at `params`."""
        state = self._average(state, stats, share)
        if self.by_pass and share < 1.0:
            w_bar, p_bar = state["w_bar"], state["p_bar"]
            params = move_memories(params, w_bar, p_bar, learn_beta=self.learn_beta, exact=False)
            return params, state
        # The statistics may be those of more rows than this batch: of a pass that came in parts.
        n_rows = float(stats.count) * batch.n_rows / (batch.total_weight * share)
        return self._maximize(params, state, batch, n_rows, exact=share == 1.0)

    def end_pass(
        self, params: Mixture, state: SolverState, batch: Batch, n_rows: int
    ) -> tuple[Mixture, SolverState]:
        """Learn what waits for the end of a pass."""
        if not self.by_pass or self.rows_per_step is None:
            return params, state
        return self._maximize(params, state, batch, n_rows, exact=False)

    def _average(self, state: SolverState, stats: Statistics, share: float) -> SolverState:
        """The running means with a batch taken in, without a device-to-host synchronization.

        A batch that holds all rows forgets everything before it: the exact step.
        """
        passes, count = state["passes"] + share, stats.count.to(stats.w_bar.dtype)
        w_bar, p_bar = stats.w_bar / count, stats.p_bar / count
        if share < 1.0:
            of_weights = _SHORTEST_OF_WEIGHTS if self.by_pass else _SHORTEST
            windows = [_window(passes, least) for least in (_SHORTEST, of_weights)]
            rates = [share / torch.minimum(passes, window) for window in windows]
            rate, rate_p = (rate.clamp_max(1.0).to(w_bar) for rate in rates)
            w_bar = torch.lerp(state["w_bar"], w_bar, rate)
            p_bar = torch.lerp(state["p_bar"], p_bar, rate_p)
        return {**state, "w_bar": w_bar, "p_bar": p_bar, "passes": passes}

    def _maximize(
        self, params: Mixture, state: SolverState, batch: Batch, n_rows: float, *, exact: bool
    ) -> tuple[Mixture, SolverState]:
        """The exact step from the running mean, dead memories put on rows of the batch."""
        w_bar, p_bar, passes = state["w_bar"], state["p_bar"], state["passes"]
        if bool(passes >= _window(passes)):  # before that, an unused memory may just be unlucky
            seeded = _reseed(params, w_bar, p_bar, batch, n_rows)
            if seeded is not None:
                trial = self._bound_maximizer(
                    params, {**state, "w_bar": seeded[0], "p_bar": seeded[1]}
                )
                reached, before = (bound(q, w_bar, p_bar) for q in (trial[0], params))
                if not exact or reached >= before:
                    return trial
        return self._bound_maximizer(params, state)

    def _bound_maximizer(self, params: Mixture, state: SolverState) -> tuple[Mixture, SolverState]:
        """The step, its multipliers kept as a start for those of the next."""
        p_bar = state["p_bar"]
        params = move_memories(params, state["w_bar"], p_bar, learn_beta=self.learn_beta)
        if self.learn_weights:
            return fit_class_weights_free_prior(params, p_bar), state
        before = state["row_multipliers"], state["col_multipliers"]
        params, found = class_weights(params, p_bar, before)
        rows, cols = (
            torch.where(new.isfinite(), new, 0.0).to(old)
            for new, old in zip(found, before, strict=True)
        )
        return params, {**state, "row_multipliers": rows, "col_multipliers": cols}

    def label_counts(self, state: SolverState, n_rows: float) -> Tensor:
        """Label weights of the rows that each component answers for, (P+1, C+1), in rows."""
        p_bar = state["p_bar"]
        return p_bar * (n_rows / p_bar.sum().clamp_min(torch.finfo(p_bar.dtype).tiny))

    def expand_state(self, state: SolverState, params: Mixture, source: Tensor) -> SolverState:
        """Copies share what their memory answered for, each turned to where it now is.

        Left as they were, the statistics of two copies would pull both back to the one place
        they come from. They weigh as much as one short window of rows.
        """
        p, p_bar = params.p[1:], state["p_bar"]
        whole = torch.zeros_like(p_bar[1:]).index_add_(0, source, p)  # of the memory split
        share = p / whole.clamp_min(torch.finfo(p.dtype).tiny)[source]  # (P, C+1)
        norm = sphere.norms(state["w_bar"])[source] / torch.bincount(source)[source]
        p_bar = torch.cat([p_bar[:1], p_bar[1:][source] * share])
        return _means(params, norm[:, None] * params.w, p_bar, _SHORTEST)


def _means(params: Mixture, w_bar: Tensor, p_bar: Tensor, passes: float) -> SolverState:
    """Running means of so many passes; multipliers of the class weights are not known yet."""
    return {
        "w_bar": w_bar,
        "p_bar": p_bar,
        "col_multipliers": torch.zeros_like(params.p_q, dtype=torch.float64),
        "row_multipliers": torch.zeros_like(params.p_h, dtype=torch.float64),
        "passes": params.w.new_full((), passes, dtype=torch.float64),
    }


def _reseed(
    params: Mixture, w_bar: Tensor, p_bar: Tensor, batch: Batch, n_rows: float
) -> tuple[Tensor, Tensor] | None:
    """Give dead memories the rows of the batch that the model explains worst; None if all live."""
    one_row = float(p_bar.sum()) / n_rows
    dead = (p_bar[1:].sum(1) < _DEAD * one_row).nonzero()[:, 0]
    if dead.shape[0] == 0:
        return None
    x = fill_neutrally(batch.x[:_RESEED_ROWS])
    q = batch.targets[:_RESEED_ROWS]
    worst = log_joint(params, x).logsumexp(1).argsort()[: dead.shape[0]]
    dead = dead[: worst.shape[0]]
    w_bar, p_bar = w_bar.clone(), p_bar.clone()
    w_bar[dead] = one_row * x[worst]
    p_bar[dead + 1] = one_row * torch.where(
        q[worst].sum(1, keepdim=True) > 0, q[worst], params.p_q / params.p_q.sum()
    )
    return w_bar, p_bar

"""What `"auto"` means: the number of memories, the normalization and ς, chosen from the data.

The rule, in full. Memories: a fifth of the distinct rows, at least two a class, at most 1000.
Normalization and ς: by the log-loss of the class on held-out rows. A pilot on at most 1000 rows
tries every normalization that gives all rows a direction, each with twelve ς at once. Where there
are more rows than that, the full model with the full number of memories then tries that ς and its
neighbours on at most 5000 rows, as long as the loss falls: the best ς grows with the number of
memories. Between normalizations within 5% of each other the paper's (center) goes first.
Where some rows have no label, the first stage is that of `few_labels`: ς from the rows themselves,
the normalization judged by labels left out, if there are 20 (else the first of center, unit and
standard that gives all rows a direction); as many labelled rows as others are taken, if there are
that many. With 500 labels the second stage goes on from there; fewer would judge too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.estimators import few_labels
from mnemosphere.estimators.preparation import (
    NORMALIZATIONS,
    Floats,
    Normalizer,
    usable_normalizations,
)
from mnemosphere.model import initialize
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.numerics.bessel import log_omega_ratio, mean_resultant
from mnemosphere.training import semi_supervised
from mnemosphere.training.batches import Data
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.loop import train

MAX_MEMORIES = 1000
ROWS_PER_MEMORY = 5
PILOT_ROWS = 1000
FINE_ROWS = 5000
_OCTAVES = torch.arange(0.0, 11.5, 1.0)  # log2 of β_eff: 1 to 2048
_PILOT_STEPS = 5
_SMALL = 600  # rows below which one held-out set is too small to trust and folds are used
_FOLDS = 3
_LEAST_VARSIGMA = 0.05
_NEARLY = 1.05  # log-losses on a few hundred rows are not told apart more finely
_FINE_STEP = 1.19
_PILOT_LABELS, _FINE_LABELS = 20, 500  # fewer tell nothing; only where other rows have no label


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the table it was chosen from."""

    normalize: str
    varsigma: float
    trials: tuple[dict[str, Any], ...]


def choose_n_memories(n_rows: int, n_classes: int) -> int:
    """A fifth of the rows, at least two a class, at most 1000 and at most one a row."""
    return max(1, min(max(n_rows // ROWS_PER_MEMORY, 2 * n_classes), MAX_MEMORIES, n_rows))


def default_batch_size(n_rows: int) -> int | None:
    """Twenty steps a pass for large data; below 2000 rows exact full steps are cheap enough."""
    return None if n_rows < 2000 else max(n_rows // 20, 256)


def initial_parameters(
    x: torch.Tensor,
    targets: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    n_memories: int,
    varsigma: float,
    beta: float | None,
    uniform_weight: float,
    generator: torch.Generator,
) -> Parameters:
    """Memories on training rows, class weights that know nothing yet, β that fits the memories."""
    w = initialize.from_data(x, n_memories, generator=generator)
    start = (
        initialize.estimate_beta(w, x, varsigma, generator=generator)
        if beta is None
        else torch.tensor(beta)
    )
    return from_memories(
        w,
        class_prior(targets, weight),
        beta=start,
        varsigma=varsigma,
        uniform_weight=uniform_weight,
    )


def class_prior(targets: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """p_q: the proportions of the classes among labelled rows."""
    q = targets.double() if weight is None else targets.double() * weight.double()[:, None]
    total = q.sum(0)
    return (total / total.sum()).to(targets)


def choose(
    x: Floats,
    targets: Floats,
    index: NDArray[np.intp],
    sample_weight: Floats | None,
    *,
    normalize: str,
    varsigma: float | None,
    beta: float | None,
    n_memories: int,
    uniform_weight: float,
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Choice:
    """Choose what is 'auto' (normalize) or None (varsigma); what is given stays as it is.

    `index` holds the class of each row, −1 where it is not known; only labelled rows are judged.
    """
    kinds = usable_normalizations(x) if normalize == "auto" else [normalize]
    if len(kinds) == 1 and varsigma is not None:
        return Choice(kinds[0], varsigma, ())

    n_labelled = int((index >= 0).sum())
    partly = n_labelled < index.size
    if partly and n_labelled < _PILOT_LABELS:  # too few to judge by
        kinds = [next(kind for kind in NORMALIZATIONS if kind in kinds)]

    def tensors(z: Floats, rows: NDArray[np.intp]) -> Data:
        weight = None if sample_weight is None else torch.from_numpy(sample_weight[rows])
        return Data(
            torch.from_numpy(np.ascontiguousarray(z)).to(device, dtype),
            torch.from_numpy(targets[rows]).to(device, dtype),
            None if weight is None else weight.to(device, dtype),
        )

    order = np.random.default_rng(seed).permutation(x.shape[0])
    if partly:
        order = _labelled_in_turn(order, index)
    rows = order[:PILOT_ROWS]
    pilot_memories = max(2, round(n_memories * rows.size / x.shape[0]))
    trials: list[dict[str, Any]] = []
    for kind in kinds:
        normalizer = Normalizer.fit(kind, x, sample_weight)
        data = tensors(normalizer(x[rows]), rows)
        if partly:
            more = order[:FINE_ROWS]
            z = tensors(normalizer(x[more]), more).x
            found = [
                _pilot_partly(data, z, index[rows], n_memories, uniform_weight, varsigma, seed)
            ]
        else:
            found = _pilot(data, index[rows], pilot_memories, uniform_weight, varsigma, seed)
        trials += [{"stage": "pilot", "normalize": kind, **trial} for trial in found]
    best = _preferred(trials)
    if varsigma is not None:
        return Choice(best["normalize"], varsigma, tuple(trials))
    if x.shape[0] > PILOT_ROWS and not (partly and n_labelled < _FINE_LABELS):
        rows = order[:FINE_ROWS]
        normalizer = Normalizer.fit(best["normalize"], x, sample_weight)
        data = tensors(normalizer(x[rows]), rows)

        def trial(vs: float) -> dict[str, Any]:
            loss = _held_out_loss(data, index[rows], vs, beta, n_memories, uniform_weight, seed)
            trials.append(
                {"stage": "fine", "normalize": best["normalize"], "varsigma": vs, "log_loss": loss}
            )
            return trials[-1]

        best = _climb(trial, best["varsigma"])
    return Choice(best["normalize"], float(best["varsigma"]), tuple(trials))


def _labelled_in_turn(order: NDArray[np.intp], index: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows in that order, labelled ones and others by turns until one kind runs out."""
    labelled = index[order] >= 0
    turn = np.where(labelled, np.cumsum(labelled), np.cumsum(~labelled) + 0.5)
    return order[np.argsort(turn, kind="stable")]


def _preferred(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """The best trial; of normalizations that do nearly as well, the paper's first."""
    best = {}
    for kind in ("center", "unit", "standard", "none"):
        mine = [t for t in trials if t["normalize"] == kind]
        if mine:
            # Rounded, so that where the loss is flat the smoothest wins and not the last bit.
            best[kind] = min(mine, key=lambda t: round(float(t["log_loss"]), 3))
    limit = _NEARLY * min(float(t["log_loss"]) for t in best.values())
    return next(t for t in best.values() if t["log_loss"] <= limit)


def _climb(trial: Callable[[float], dict[str, Any]], start: float) -> dict[str, Any]:
    """Follow a falling loss upwards in ς, or downwards if it rises at once, by steps of 19%."""
    best = trial(start)
    for step in (_FINE_STEP, 1 / _FINE_STEP):
        moved = False
        while _LEAST_VARSIGMA < best["varsigma"] < 1.0 or not moved:
            vs = min(1.0, max(_LEAST_VARSIGMA, round(step * best["varsigma"], 4)))
            if vs == best["varsigma"]:
                break
            other = trial(vs)
            if not other["log_loss"] < best["log_loss"]:
                break
            best, moved = other, True
        if moved:
            break
    return best


def _held_out_rows(index: NDArray[np.intp], fold: int, seed: int) -> torch.Tensor:
    """A mask of a fifth of the rows, each class in proportion; none without label."""
    order = np.random.default_rng(seed).permutation(index.size)
    dealt = order[np.argsort(index[order], kind="stable")]  # class after class, dealt out in turn
    held = np.zeros(index.size, dtype=bool)
    held[dealt[fold::5]] = True
    return torch.from_numpy(held & (index >= 0))


def _pilot(
    data: Data,
    index: NDArray[np.intp],
    n_memories: int,
    uniform_weight: float,
    varsigma: float | None,
    seed: int,
) -> list[dict[str, float]]:
    """Held-out log-loss for many β_eff at once, each with the ς that would lead to it.

    A stripped mixture (no uniform component, equal weights, β_eff held) takes a few fixed-point
    steps for all β_eff in one batch. At the fixed point of the full model A_N(β) = ς·m̄, so a
    β_eff with mean overlap m̄ belongs to the ς that solves ς·A_N⁻¹(ς·m̄) = β_eff. Held-out rows
    are judged with the uniform component, which speaks for rows that no memory reaches.
    """
    folds = _FOLDS if data.n_rows < _SMALL else 1
    octaves = _OCTAVES.to(data.x)
    losses, overlaps = [], []
    for fold in range(folds):
        held = _held_out_rows(index, fold, seed).to(data.x.device)
        if not bool(held.any()) or bool(held.all()):
            held = torch.zeros_like(held)
            held[0] = True  # one row, or none labelled: judge on what there is
        fitted = data.take(~held) if data.n_rows > 1 else data
        judged = data.take(held)
        generator = torch.Generator().manual_seed(seed)
        memories = min(n_memories, fitted.n_rows)
        picked = torch.randperm(fitted.n_rows, generator=generator)[:memories].to(data.x.device)
        truth = torch.from_numpy(np.maximum(index, 0)).to(data.x.device)[held]
        loss, overlap = _batched_mixture(
            fitted, judged, truth, fitted.x[picked], 2.0**octaves, uniform_weight
        )
        losses.append(loss)
        overlaps.append(overlap)
    loss, overlap = torch.stack(losses).mean(0), torch.stack(overlaps).mean(0)
    varsigmas = _varsigma_for(2.0**octaves, overlap, data.x.shape[1])
    out = [
        {"varsigma": round(float(vs), 4), "beta_eff": float(b), "log_loss": float(value)}
        for vs, b, value in zip(varsigmas, 2.0**octaves, loss, strict=True)
    ]
    if varsigma is not None:
        out = [min(out, key=lambda trial: abs(trial["varsigma"] - varsigma))]
    return out


def _pilot_partly(
    data: Data,
    more: torch.Tensor,
    index: NDArray[np.intp],
    n_memories: int,
    uniform_weight: float,
    varsigma: float | None,
    seed: int,
) -> dict[str, float]:
    """The trial where some rows have no label: ς as the rows (more of them) have it."""
    order = torch.randperm(more.shape[0], generator=torch.Generator().manual_seed(seed))
    beta_eff, overlap = few_labels.sharing(more[order.to(more.device)], n_memories)
    if varsigma is None:
        pair = torch.tensor([[beta_eff], [overlap]], dtype=torch.float64)
        varsigma = round(float(_varsigma_for(pair[0], pair[1], more.shape[1])), 4)
    folds = [_held_out_rows(index, fold, seed).to(data.x.device) for fold in range(5)]
    truth = torch.from_numpy(np.maximum(index, 0)).to(data.x.device)
    initial = initial_parameters(
        data.x, data.targets, data.sample_weight,
        n_memories=min(n_memories, max(2, data.n_rows // ROWS_PER_MEMORY)), varsigma=varsigma,
        beta=None, uniform_weight=uniform_weight, generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    loss = few_labels.held_out_loss(initial, data, truth, folds, seed=seed)
    return {"varsigma": varsigma, "beta_eff": beta_eff, "log_loss": loss}


def _batched_mixture(
    fitted: Data,
    judged: Data,
    truth: torch.Tensor,
    w: torch.Tensor,
    betas: torch.Tensor,
    uniform_weight: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(held-out log-loss (K,), mean overlap (K,)) of K mixtures that differ in β_eff (K,)."""
    k = betas.shape[0]
    w = w.expand(k, -1, -1)  # (K, P, N)
    prior = class_prior(fitted.targets, fitted.sample_weight)
    profile = prior.expand(k, w.shape[1], -1)  # (K, P, C+1)
    q = fitted.targets
    if fitted.sample_weight is not None:
        q = q * fitted.sample_weight[:, None]
    overlap = betas.new_zeros(k)

    def exponents(x: torch.Tensor) -> torch.Tensor:
        return betas[:, None, None] * torch.einsum("bn,kpn->kbp", x, w)

    for _ in range(_PILOT_STEPS):
        h = exponents(fitted.x)  # (K, B, P)
        e = (h - h.amax(2, keepdim=True)).exp()
        tiny = torch.finfo(e.dtype).tiny
        s = q / (e @ profile).clamp_min(tiny)  # (K, B, C+1)
        r = e * (s @ profile.mT)  # (K, B, P)
        w_bar = torch.einsum("kbp,bn->kpn", r, fitted.x)
        norms = w_bar.norm(dim=2, keepdim=True)
        w = torch.where(norms > tiny, w_bar / norms.clamp_min(tiny), w)
        p_bar = profile * (e.mT @ s)  # (K, P, C+1)
        mass = p_bar.sum(2, keepdim=True)
        profile = torch.where(mass > tiny, p_bar / mass.clamp_min(tiny), profile)
        overlap = norms.sum((1, 2)) / mass.sum((1, 2)).clamp_min(tiny)
    n = fitted.x.shape[1]
    beta = betas / _varsigma_for(betas, overlap, n)
    h = exponents(judged.x) - log_omega_ratio(beta, n).to(betas)[:, None, None]
    shift = h.amax(2, keepdim=True).clamp_min(0)  # 0 is the exponent of the uniform component
    joint = (h - shift).exp() @ profile + uniform_weight * (-shift).exp() * prior
    log_proba = joint[:, :, :-1].clamp_min(tiny).log().log_softmax(2)  # (K, B, C)
    rows = torch.arange(truth.shape[0], device=truth.device)
    own = log_proba[:, rows, truth]
    if judged.sample_weight is None:
        return -own.mean(1), overlap
    return -(own @ judged.sample_weight) / judged.sample_weight.sum(), overlap


def _varsigma_for(beta_eff: torch.Tensor, overlap: torch.Tensor, n: int) -> torch.Tensor:
    """The ς in [0.05, 1] with ς·A_N⁻¹(ς·m̄) = β_eff.

    In β that is β·A_N(β) = m̄·β_eff with ς = A_N(β)/m̄. With Amos' lower bound on A_N the root is
    known in closed form, and a few Newton steps from there are exact to rounding.
    """
    m = overlap.double().clamp(1e-3, 1 - 1e-6)
    target = m * beta_eff
    beta = (target * (target + n)).sqrt()
    for _ in range(4):
        a = mean_resultant(beta, n)
        slope = a + beta * (1 - a * a) - (n - 1) * a  # A_N' = 1 − A_N² − (N−1)A_N/β
        beta = beta - (beta * a - target) / slope
    return (mean_resultant(beta, n) / m).clamp(_LEAST_VARSIGMA, 1.0)


def _held_out_loss(
    data: Data,
    index: NDArray[np.intp],
    varsigma: float,
    beta: float | None,
    n_memories: int,
    uniform_weight: float,
    seed: int,
) -> float:
    """Mean −log P(class | x) of the full model over rows that were not fitted."""
    held = _held_out_rows(index, 0, seed).to(data.x.device)
    fitted, judged = data.take(~held), data.take(held)
    generator = torch.Generator().manual_seed(seed)
    params = initial_parameters(
        fitted.x, fitted.targets, fitted.sample_weight,
        n_memories=min(n_memories, fitted.n_rows), varsigma=varsigma, beta=beta,
        uniform_weight=uniform_weight, generator=generator,
    )  # fmt: skip
    solver = FixedPoint(batch_size=max(fitted.n_rows // 10, 1), learn_beta=beta is None)
    if semi_supervised.applies(fitted):
        params = semi_supervised.start(
            params, fitted, batch_size=solver.batch_size, learn_beta=beta is None,
            generator=generator,
        ).params  # fmt: skip
    result = train(params, fitted, solver, max_epochs=2, generator=generator)
    scores = log_joint(result.params, judged.x)[:, :-1].double().log_softmax(1)
    truth = torch.from_numpy(index).to(data.x.device)[held]
    own = scores[torch.arange(truth.shape[0], device=truth.device), truth]
    if judged.sample_weight is None:
        return -float(own.mean())
    weight = judged.sample_weight.double()
    return -float((own * weight).sum() / weight.sum())

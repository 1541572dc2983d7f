"""Class probabilities read from a trained memory: soft labels net of smoothing, shares tempered.

With a share s_γ of every component in a row and a soft label g_γ of each,

    P(y|x) = Σ_γ s_γ(x) g_γ,y,    s ∝ p_h exp(h/T).

Trained on labels (1−ε)·onehot + ε/(C+1), soft labels hold a part ε/(C+1) of every class that no
row asked for: net of it, g' = (g − ε/(C+1))/(1−ε). The temperature T says how many memories have a
say: β is what suits the density of the rows, which need not be what suits their classes. And soft
labels of few rows each are surer than they should be, or less sure: g'^a, scaled to sum to 1. All
keep the probabilities a sum over memories, so that shares times soft labels explain them exactly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.densities import exponentials
from mnemosphere.model.gaps import split
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics.bessel import log_omega_ratio, mean_resultant

__all__ = [
    "Reading", "at_temperature", "best_reading", "net_class_weights", "precise", "sharpen",
    "tempered_log_loss",
]  # fmt: skip

_FLOOR = 3e-3  # of the class prior in every soft label: no class is ever impossible
_PSEUDO_ROWS = 0.02
_COLDEST, _HOTTEST = 0.1, 50.0
_ENDS = (math.log(0.06), math.log(80.0))  # of finer trials
_GRID, _GRID_ROWS = 16, 500  # trials of log T first, on about so many rows
_STEPS, _FAR = (0.35, 0.07), 3.0  # of log T and log a around the best; the most by parabola
_LEAST_ROWS = 300  # fewer do not tell how sure soft labels should be as well
_SHARPEST = 1.0  # of log a
_MOST_ROWS = 4096
_MANY_CLASSES = 40
_NEWTON = 100
_FEW_TEMPERATURES = (-1.5, -0.75, 0.0, 0.5, 1.0, 1.75, 2.5)  # their logarithms


def net_class_weights(params: Parameters, smoothing: float, counts: Tensor | None = None) -> Tensor:
    """P (P+1, C+1) with the part taken off that label smoothing put there; row sums stay p_h.

    counts (P+1, C+1): the label weights of the rows that each component answers for, in rows.
    Where they are known, soft labels are theirs: with its row sums held, p may have to give a
    memory classes that none of its rows has. A fiftieth of a row of the prior is added to each.
    """
    p = params.p.double()
    p_h = p.sum(-1, keepdim=True)
    prior = p.sum(-2, keepdim=True)
    prior = torch.cat([prior[..., :-1], torch.zeros_like(prior[..., -1:])], -1)
    prior = prior / prior.sum(-1, keepdim=True)
    soft = p / torch.where(p_h > 0, p_h, 1.0) if counts is None else counts.double()
    total = soft.sum(-1, keepdim=True)
    net = (soft - smoothing / p.shape[-1] * total).clamp_min(0.0) / (1 - smoothing)
    if counts is not None:
        net = net + _PSEUDO_ROWS * prior
    # A soft label with nothing but smoothing in it says as much as the prior.
    left = net.sum(-1, keepdim=True)
    net = torch.where(left > 0, net / torch.where(left > 0, left, 1.0), prior)
    return (p_h * ((1 - _FLOOR) * net + _FLOOR * prior)).to(params.p)


def precise(params: Parameters) -> Parameters:
    """The same in double precision, on a processor.

    In a product of single precision the many equal terms of a blank border are rounded alike,
    which costs probabilities their fifth digit.
    """
    return params.to(dtype=torch.float64) if params.w.device.type == "cpu" else params


def at_temperature(params: Parameters, temperature: float) -> Parameters:
    """Parameters whose exponents are h/T: β_eff/T, and a β with the log-ratio of Ω over T too."""
    if temperature == 1.0:
        return params
    n = params.n_features
    beta_eff = float(params.beta_eff) / temperature
    target = float(log_omega_ratio(params.beta.double().cpu(), n)) / temperature
    beta = params.beta.double().cpu()
    for _ in range(_NEWTON):  # convex and increasing: steps come down on the root from above
        step = (log_omega_ratio(beta, n) - target) / mean_resultant(beta, n)
        beta = beta - step
        if float(step.abs()) <= 1e-14 * float(beta):
            break
    beta = beta.to(params.beta)
    return params.replace(beta=beta, varsigma=beta_eff / float(beta))


class Reading(NamedTuple):
    """How class probabilities are read from a trained memory."""

    temperature: float = 1.0
    power: float = 1.0  # a, of soft labels


def sharpen(p: Tensor, power: float) -> Tensor:
    """P (P+1, C+1) with soft labels to that power; row sums stay."""
    if power == 1.0:
        return p
    p_h = p.sum(-1, keepdim=True)
    soft = (p / torch.where(p_h > 0, p_h, 1.0)) ** power
    total = soft.sum(-1, keepdim=True)
    return p_h * soft / torch.where(total > 0, total, 1.0)


def best_reading(judged: Sequence[tuple[Parameters, Batch]], *, powers: bool = True) -> Reading:
    """The T and the power with the least log-loss of the classes of rows not trained on.

    judged: (parameters with the class weights of `net_class_weights`, labeled rows they have not
    seen), one pair or several. 1 where no other is better; the power is 1 for few rows.
    """
    some = [(params, rows.take(slice(0, _MOST_ROWS))) for params, rows in judged]
    every = max(1, sum(rows.n_rows for _, rows in some) // _GRID_ROWS)
    roughly, loss = (
        _mean_loss([(params, rows.take(slice(None, None, k))) for params, rows in some])
        for k in (every, 1)
    )
    low, high = math.log(_COLDEST), math.log(_HOTTEST)
    grid = [(0.0, 0.0), *((low + k * (high - low) / (_GRID - 1), 0.0) for k in range(_GRID))]
    best = min(grid, key=roughly)
    powers = powers and sum(rows.n_rows for _, rows in judged) >= _LEAST_ROWS
    for step in _STEPS:
        before = best = _along(loss, best, (step, 0.0))
        if powers:
            best = _along(loss, best, (0.0, step))
            best = _along(loss, best, (step, 0.0))
            # Along the valley, if there is one.
            best = _along(loss, best, (best[0] - before[0], best[1] - before[1]))
    best = min((0.0, 0.0), best, key=loss)
    return Reading(math.exp(best[0]), math.exp(best[1]))


def _mean_loss(pairs: Sequence[tuple[Parameters, Batch]]) -> Callable[[tuple[float, float]], float]:
    """The mean log-loss of all rows at (log T, log a)."""
    trials = [(rows.total_weight, _tempered_loss(params, rows)) for params, rows in pairs]
    whole = sum(weight for weight, _ in trials)

    @functools.cache
    def loss(at: tuple[float, float]) -> float:
        total = sum(weight * float(trial(*at)) for weight, trial in trials)
        return round(total / whole, 12)  # rounding is no gain

    return loss


def _along(
    loss: Callable[[tuple[float, float]], float],
    best: tuple[float, float],
    step: tuple[float, float],
) -> tuple[float, float]:
    """The best of this place, those a step away both ways, and where their parabola is lowest."""

    def at(steps: float) -> tuple[float, float]:
        log_t, log_a = (x + steps * by for x, by in zip(best, step, strict=True))
        return min(max(log_t, _ENDS[0]), _ENDS[1]), min(max(log_a, -_SHARPEST), _SHARPEST)

    tried = [best, at(-1.0), at(1.0)]
    down, up = (loss(other) - loss(best) for other in tried[1:])
    if down + up > 0:  # convex
        steps = 0.5 * (down - up) / (down + up)
        tried.append(at(min(max(steps, -_FAR), _FAR)))
    return min(tried, key=loss)


def tempered_log_loss(params: Parameters, rows: Batch, smoothing: float, n_rows: int) -> Tensor:
    """Mean log-loss of the classes of labeled rows at each of a few temperatures, (..., T).

    Parameters whose class weights were learned from n_rows with that smoothing, freely; a leading
    axis of them and of the rows holds several problems.
    """
    net = params.replace(p=net_class_weights(params, smoothing, params.p * n_rows))
    loss = _tempered_loss(net, rows)
    return torch.stack([loss(log_t) for log_t in _FEW_TEMPERATURES], -1)


def _tempered_loss(params: Parameters, rows: Batch) -> Callable[..., Tensor]:
    """Mean −log P(class | x) of labeled rows as a function of log T, log a; overlaps once."""
    truth = rows.targets[..., :-1].argmax(-1, keepdim=True)
    x, gaps = split(params.see(rows.x))
    log_ratio = log_omega_ratio(params.beta, params.n_features)[..., None, None]
    h = params.beta_eff[..., None, None] * (x @ params.w.mT.contiguous()) - log_ratio
    h = torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)  # (B, P+1)
    tiny = torch.finfo(h.dtype).tiny
    log_prior = params.p.sum(-1).log()[..., None, :]  # −inf for a component without weight
    prior = params.p.sum(-1).clamp_min(tiny)

    @functools.lru_cache(1)
    def labels(log_a: float) -> Tensor:  # (P+1, C)
        return sharpen(params.p, math.exp(log_a))[..., :-1] / prior[..., None]

    @functools.lru_cache(1)
    def own_labels(log_a: float) -> Tensor:  # (B, P+1), of the class of each row
        by_class = labels(log_a).mT  # (C, P+1), for each problem
        firsts = torch.arange(by_class[..., 0, 0].numel(), device=h.device) * by_class.shape[-2]
        chosen = (truth[..., 0] + firsts.view(*truth.shape[:-2], 1)).flatten()
        return by_class.reshape(-1, h.shape[-1]).index_select(0, chosen).view_as(h)

    score = torch.empty_like(h)

    @functools.lru_cache(1)  # trials of log a are at one log T; there is room for one
    def shares(log_t: float) -> Tensor:  # (B, P+1), up to a factor per row
        torch.add(log_prior, h, alpha=math.exp(-log_t), out=score)
        if gaps is not None:
            beta_eff = params.beta_eff[..., None, None] * math.exp(-log_t)
            score[..., 1:].index_add_(-2, gaps.rows, gaps.over(params.w, beta_eff)[0])
        return exponentials(score, score.amax(-1))

    def loss(log_t: float, log_a: float = 0.0) -> Tensor:
        if params.n_columns <= _MANY_CLASSES:
            classes = shares(log_t) @ labels(log_a)  # (B, C)
            own, total = classes.gather(-1, truth)[..., 0], classes.sum(-1)
        else:  # most of that product would be of classes that no row asks for
            own = (shares(log_t) * own_labels(log_a)).sum(-1)
            total = (shares(log_t) @ labels(log_a).sum(-1, keepdim=True))[..., 0]
        own = (own / total.clamp_min(tiny)).clamp_min(tiny).log().double()
        if rows.sample_weight is None:
            return -own.mean(-1)
        weight = rows.sample_weight.double()
        return -(own * weight).sum(-1) / weight.sum(-1)

    return loss

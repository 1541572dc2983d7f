"""Steps of both solvers and the noise on rows as a few GPU kernels, where Triton can build them.

A step is some hundred operations on little: launched one by one, even from a graph, they take
several times as long as the products of a batch.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mnemosphere.model.kernel import Statistics
from mnemosphere.model.m_step import LEAST_RESULTANT, LEAST_SLOPE
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics.bessel import mean_resultant
from mnemosphere.numerics.blocks import power_of_two
from mnemosphere.numerics.debye import for_kernel

if TYPE_CHECKING:
    from mnemosphere.training.adam import Adam
    from mnemosphere.training.solver import SolverState

_MAX_FEATURES = 1 << 13
_BLOCK, _ROWS = 1024, 64
_FEW = 1 << 17
_MAX_COLUMNS, _ENTRIES = 256, 4096  # of a block of class weights
_TINY = torch.finfo(torch.float32).tiny


def usable(w: Tensor) -> bool:
    """Whether steps of these memories, or noise on these rows, can be taken here."""
    return (
        w.is_cuda and w.dtype == torch.float32 and w.ndim == 2
        and w.shape[1] <= _MAX_FEATURES and _works()
    )  # fmt: skip


def takes_means(params: Parameters) -> bool:
    """Whether `average` is quick: it goes through the class weights by one block of threads."""
    return usable(params.w) and params.p.numel() <= _FEW


def takes_weights(params: Parameters) -> bool:
    """Whether its class weights are few enough for one block of threads."""
    return takes_means(params) and params.n_columns <= _MAX_COLUMNS


def lay_noise(x: Tensor, normal: Tensor, length: float, overlap: float) -> Tensor:
    """`SphereNoise.lay`: rows x (B, N) turned towards numbers drawn, (B, N)."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _kernels().noise_kernel[(len(x),)](
        x, normal, out, x.shape[1], length, overlap, BLOCK_N=power_of_two(x.shape[1]), TINY=_TINY
    )
    return out


def turn(
    solver: Adam, params: Parameters, state: SolverState, stats: Statistics
) -> tuple[Tensor, Tensor, Tensor]:
    """The step of the memories, and their running means."""
    w, (n_memories, n) = params.w.contiguous(), params.w.shape
    new, mean, square = (torch.empty_like(t) for t in (w, w, state["w_square"]))
    block, weight = power_of_two(n), params.p_h[1:]
    _kernels().mean_kernel[(n_memories,)](
        w, stats.w_bar.contiguous(), stats.overlap, state["w"], state["w_square"], params.beta,
        stats.count, mean, square, n, params.varsigma, *solver.decay, BLOCK_N=block,
    )  # fmt: skip
    typical = _typical(square, weight)
    _kernels().turn_kernel[(n_memories,)](
        w, mean, square, weight, typical, state["step"], new, n, solver.angle,
        solver.floor, *_schedule(solver), BLOCK_N=block, TINY=_TINY,
    )  # fmt: skip
    return new, mean, square


def reweigh(
    solver: Adam, params: Parameters, state: SolverState, stats: Statistics
) -> tuple[Tensor, Tensor, Tensor]:
    """The step of the class weights, and their running means."""
    p, p_h = params.p.contiguous(), params.p_h
    mean, square, new = (torch.empty_like(t) for t in (p, p_h, p))
    shape, columns = p.shape, power_of_two(p.shape[1])
    rows = min(power_of_two(len(p)), _ROWS)
    _kernels().slope_kernel[(math.ceil(len(p) / rows),)](
        p, stats.p_bar.contiguous(), p_h, state["p"], state["p_square"], stats.count, mean, square,
        *shape, *solver.decay, BLOCK_R=rows, BLOCK_C=columns, TINY=_TINY,
    )  # fmt: skip
    _kernels().weights_kernel[(1,)](
        p, p_h, params.p_q, mean, square, _typical(square, p_h), state["step"], new, *shape,
        solver.learning_rate, solver.floor, *_schedule(solver), solver.sweeps,
        BLOCK_R=max(16, _ENTRIES // columns), BLOCK_C=columns, TINY=_TINY, num_warps=8,
    )  # fmt: skip
    return new, mean, square


def rescale_beta(
    solver: Adam, params: Parameters, state: SolverState, stats: Statistics, rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The step of β, and its running means."""
    beta, mean, square = params.beta, state["beta"], state["beta_square"]
    new = torch.empty_like(beta), torch.empty_like(mean), torch.empty_like(square)
    _kernels().beta_kernel[(1,)](
        beta, mean, square, stats.p_bar.contiguous(), stats.overlap,
        mean_resultant(beta, params.n_features), stats.count, state["step"], *new,
        *params.p[1:].shape, rate, params.varsigma, *solver.decay, *_schedule(solver),
        BLOCK=_BLOCK, TINY=_TINY,
    )  # fmt: skip
    return new


def average(
    params: Parameters, state: SolverState, stats: Statistics, share: float,
    *, learn_beta: bool, shortest: tuple[float, float], growing: float,
) -> tuple[Parameters, SolverState]:  # fmt: skip
    """`FixedPoint`'s running means, and the memories and β they lead to; class weights stay.

    shortest: windows of the means of w̄ and p̄; growing: how they grow.
    """
    w, (n_memories, n) = params.w.contiguous(), params.w.shape
    old = {name: state[name].contiguous() for name in ("w_bar", "p_bar", "passes")}
    # While a graph is recorded all of them are its own, and stay where they are.
    captured = w.is_cuda and torch.cuda.is_current_stream_capturing()
    made = (lambda t: t) if captured else torch.empty_like
    new = {name: made(t) for name, t in old.items()}
    unit, beta, norms = made(w), made(params.beta), w.new_empty(n_memories)
    _kernels().direction_kernel[(n_memories,)](
        w, old["w_bar"], stats.w_bar.contiguous(), old["passes"], stats.count, unit, new["w_bar"],
        norms, n, *_in_two(share), SHORTEST=shortest[0], GROWING=growing, BLOCK_N=power_of_two(n),
    )  # fmt: skip
    ratio, resultant, start = for_kernel(params.n_features, w.device)
    _kernels().rest_kernel[(1,)](
        old["p_bar"], stats.p_bar.contiguous(), norms, old["passes"], stats.count, params.beta,
        new["p_bar"], beta, new["passes"], ratio, resultant, len(ratio), len(resultant), start,
        params.n_features, n_memories, params.n_columns, *_in_two(share),
        *_in_two(params.varsigma), SHORTEST=shortest[1], GROWING=growing, LEAST=LEAST_RESULTANT,
        SLOPE=LEAST_SLOPE, LEARN=learn_beta, BLOCK=4 * _BLOCK, num_warps=8,
    )  # fmt: skip
    return params.replace(w=unit, beta=beta), {**state, **new}


def _in_two(number: float) -> tuple[float, float]:
    """In single precision, which arguments of a kernel have, and what that leaves over."""
    high = float(np.float32(number))
    return high, number - high


def _typical(square: Tensor, weight: Tensor) -> Tensor:
    """What `Adam._size` takes for typical."""
    out = square.new_empty(())
    _kernels().typical_kernel[(1,)](square, weight, out, len(square), BLOCK=_BLOCK, TINY=_TINY)
    return out


def _schedule(solver: Adam) -> tuple[float, float, float]:
    """What the kernel's `schedule` takes; a decay of 0 has forgotten all after one step."""
    a, b = (math.log2(d) if d > 0 else -1e4 for d in solver.decay)
    return float(solver.steps), a, b


@functools.cache
def _works() -> bool:
    """Whether kernels can be built and run; tried once."""
    try:
        one = torch.ones(2, 2, device="cuda")
        return bool(torch.isfinite(lay_noise(one / math.sqrt(2), one, 0.1, 0.9)).all())
    except Exception:  # no Triton, no compiler, a GPU too old: plain operations do it
        return False


@functools.cache
def _kernels() -> Any:
    from mnemosphere.training import step_kernels

    return step_kernels

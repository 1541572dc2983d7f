"""Steps of Adam and the noise on rows as a few GPU kernels, where Triton is there to build them.

A step is some hundred operations on little: launched one by one, even from a graph, they take
several times as long as the products of a batch.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mnemosphere.model.kernel import Statistics
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sweep_gpu
from mnemosphere.numerics.bessel import mean_resultant
from mnemosphere.numerics.blocks import power_of_two

if TYPE_CHECKING:
    from mnemosphere.training.adam import Adam
    from mnemosphere.training.solver import SolverState

_MAX_FEATURES = 1 << 13
_BLOCK, _ROWS = 1024, 64
_TINY = torch.finfo(torch.float32).tiny


def usable(w: Tensor) -> bool:
    """Whether steps of these memories, or noise on these rows, can be taken here."""
    return (
        w.is_cuda and w.dtype == torch.float32 and w.ndim == 2
        and w.shape[1] <= _MAX_FEATURES and _works()
    )  # fmt: skip


def takes_weights(params: Parameters) -> bool:
    """Whether its class weights fit a block of threads."""
    return usable(params.w) and sweep_gpu.usable(*params.p.shape)


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
    block, shape = sweep_gpu.blocks(*p.shape), p.shape
    rows = min(block[0], _ROWS)
    _kernels().slope_kernel[(math.ceil(shape[0] / rows),)](
        p, stats.p_bar.contiguous(), p_h, state["p"], state["p_square"], stats.count, mean, square,
        *shape, *solver.decay, BLOCK_R=rows, BLOCK_C=block[1], TINY=_TINY,
    )  # fmt: skip
    _kernels().weights_kernel[(1,)](
        p, p_h, params.p_q, mean, square, _typical(square, p_h), state["step"], new, *shape,
        solver.learning_rate, solver.floor, *_schedule(solver), solver.sweeps,
        BLOCK_R=block[0], BLOCK_C=block[1], TINY=_TINY, num_warps=sweep_gpu.warps(block),
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

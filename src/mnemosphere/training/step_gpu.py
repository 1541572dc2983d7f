"""Steps of the fixed point and noise on rows as a few GPU kernels, if Triton can build them.

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
from mnemosphere.numerics.blocks import power_of_two
from mnemosphere.numerics.debye import for_kernel

if TYPE_CHECKING:
    from mnemosphere.training.solver import SolverState

_MAX_FEATURES = 1 << 13
_BLOCK = 1024
_FEW = 1 << 17
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


def lay_noise(x: Tensor, normal: Tensor, length: float, overlap: float) -> Tensor:
    """`SphereNoise.lay`: rows x (B, N) turned towards numbers drawn, (B, N)."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _kernels().noise_kernel[(len(x),)](
        x, normal, out, x.shape[1], length, overlap, BLOCK_N=power_of_two(x.shape[1]), TINY=_TINY
    )
    return out


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

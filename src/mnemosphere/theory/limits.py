"""Limits of the saddle-point equations, and what they say about ς.

ϱ → ∞ turns Eq. (saddle-point) into the stationarity conditions of the effective loss,
Eq. (effective_loss), with ς = ς(2υ); υ → ∞ as well gives those of the plain likelihood,
Eq. (stationarity). So a trained model is a saddle-point problem, and an estimate of the noise in
data is a suggestion for ς.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import bessel, sphere
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters

# Rows of a block of overlaps: 1,000 x 60,000 doubles are half a gigabyte.
_BLOCK = 512


def varsigma_of_noise(upsilon: float) -> float:
    """ς(2υ) = 2υ/(√(4υ² + 1) + 1), the ς that teacher noise 1/υ turns into; ς(∞) = 1."""
    if math.isnan(upsilon) or upsilon <= 0.0:
        raise ValueError(f"upsilon must be positive, got {upsilon}")
    return 1.0 if math.isinf(upsilon) else 2.0 * upsilon / (math.hypot(2.0 * upsilon, 1.0) + 1.0)


def noise_of_varsigma(varsigma: float) -> float:
    """υ = ς/(1 − ς²), the inverse of varsigma_of_noise; infinite at ς = 1."""
    if not 0.0 < varsigma <= 1.0:
        raise ValueError(f"varsigma must lie in (0, 1], got {varsigma}")
    return math.inf if varsigma == 1.0 else varsigma / ((1.0 - varsigma) * (1.0 + varsigma))


def from_parameters(params: Parameters, batch: Batch) -> tuple[SaddlePointProblem, OrderParameters]:
    """The saddle-point problem whose solutions are the stationary points of the model's loss.

    The patterns and soft labels are those of the batch, whose rows all weigh the same; ϱ = ∞, υ
    such that ς(2υ) = ς; the state carries the model's overlaps m = x wᵀ and class weights. A
    trained model is a solution, and stability.spectrum, split_temperature and the rest apply to it.
    """
    problem = SaddlePointProblem(
        patterns=batch.x,
        targets=batch.targets,
        p_h=params.p_h,
        p_q=params.p_q,
        beta=float(params.beta),
        rho=math.inf,
        upsilon=noise_of_varsigma(params.varsigma),
        n_features=params.n_features,
        uniform_teacher=False,
    )
    w = params.w.to(torch.float64)
    return problem, OrderParameters(problem.patterns @ w.T, params.p.to(torch.float64))


def single_memory_overlap(problem: SaddlePointProblem) -> Tensor:
    """Overlap law (P*,) of one memory without uniform component at finite N: the vMF posterior.

    With P = 1 the posterior of w is von Mises–Fisher around Σ_c x^c. That sum concentrates on
    ϱ N A_N(β*) Σ_b x_b, so E[m_b] = A_N(β ϱ N A_N(υN) ‖Σ x‖) ⟨x_b, Σ x⟩/‖Σ x‖. As N → ∞
    A_N(Nκ) → ς(2κ), and the law becomes Eq. (saddle-point) with m_hat = 1.
    """
    if problem.n_student != 1 or float(problem.p_h[0]) != 0.0:
        raise ValueError("the law holds for a single memory without uniform component")
    if math.isinf(problem.rho):
        raise ValueError("rho must be finite: at rho = inf the overlap is that of the mean")
    n = problem.n_features
    resultant = 1.0
    if not math.isinf(problem.upsilon):
        resultant = float(bessel.mean_resultant(_double(problem.upsilon * n), n))
    total = problem.patterns.sum(0)  # (D,)
    norm = total.norm()
    kappa = problem.beta * problem.rho * n * resultant * norm
    direction: Tensor = problem.patterns @ (total / norm)  # (P*,)
    return direction * bessel.mean_resultant(kappa, n)


def _double(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@dataclass(frozen=True)
class NoiseEstimate:
    """Noise in data read as teacher noise: ς with its standard error, and υ with ς(2υ) = ς.

    varsigma is the mean overlap of a row with the clean direction behind it, A_N(β*) ≈ ς(2υ).
    """

    varsigma: float
    standard_error: float
    upsilon: float


def _estimate(squared: Tensor) -> NoiseEstimate:
    """ς from samples whose mean is ς²; the error follows by the chain rule."""
    mean = float(squared.mean())
    if not mean > 0.0:
        raise ValueError(
            f"rows that should share a direction have mean overlap {mean:.3g}: the noise hides "
            "the signal, or the pairs are wrong"
        )
    varsigma = min(1.0, math.sqrt(mean))
    error = float(squared.std()) / math.sqrt(len(squared)) / (2.0 * varsigma)
    return NoiseEstimate(varsigma, error, noise_of_varsigma(varsigma))


def suggest_varsigma_from_overlap(noisy: Tensor, clean: Tensor) -> NoiseEstimate:
    """Suggest ς from noisy rows (n, N) and their clean directions (n, N): ς = mean ⟨x, w*⟩."""
    _check_pair(noisy, clean, "noisy", "clean")
    overlap = (sphere.project(noisy) * sphere.project(clean)).sum(-1).double()  # (n,)
    mean = float(overlap.mean())
    if not mean > 0.0:
        raise ValueError(f"noisy rows have mean overlap {mean:.3g} with the clean ones: check them")
    varsigma = min(1.0, mean)
    error = float(overlap.std()) / math.sqrt(len(overlap))
    return NoiseEstimate(varsigma, error, noise_of_varsigma(varsigma))


def suggest_varsigma_from_repeats(first: Tensor, second: Tensor) -> NoiseEstimate:
    """Suggest ς from two independent noisy copies (n, N) of the same patterns.

    Their noises are independent, so ⟨x, x'⟩ has mean A_N(β*)² and ς is its square root.
    """
    _check_pair(first, second, "first", "second")
    return _estimate((sphere.project(first) * sphere.project(second)).sum(-1).double())


def suggest_varsigma_from_neighbors(x: Tensor, *, generator: torch.Generator) -> NoiseEstimate:
    """Suggest ς from data (n, N) alone, taking nearest neighbors for repeats of one pattern.

    The nearest row is nearest partly because its noise happens to agree. So features are cut into
    random halves: a neighbor chosen on one half is measured on the other, and the two measures
    add up to one overlap. Right for clusters of noisy copies with noise independent between
    features; where every row is its own pattern, or noise is smooth over features as in images,
    it reads high: take it as an upper bound and scan below it.
    """
    if x.ndim != 2 or x.shape[0] < 3 or x.shape[1] < 4:
        raise ValueError(f"x needs at least 3 rows and 4 features, got {tuple(x.shape)}")
    x = sphere.project(x)
    order = torch.randperm(x.shape[1], generator=generator).to(x.device)
    one, two = x[:, order[::2]], x[:, order[1::2]]
    squared = _cross_overlap(one, two) + _cross_overlap(two, one)  # (n,)
    return _estimate(squared.double())


def _cross_overlap(choose: Tensor, measure: Tensor) -> Tensor:
    """⟨measure_i, measure_j⟩ (n,) for j the row most aligned with i on the features of choose."""
    unit = choose / choose.norm(dim=1, keepdim=True).clamp_min(1e-30)
    parts = []
    for start in range(0, len(unit), _BLOCK):
        overlap = unit[start : start + _BLOCK] @ unit.T  # (b, n)
        rows = torch.arange(len(overlap), device=unit.device)
        overlap[rows, rows + start] = -math.inf
        nearest = overlap.argmax(1)
        parts.append((measure[start : start + _BLOCK] * measure[nearest]).sum(1))
    return torch.cat(parts)


def _check_pair(a: Tensor, b: Tensor, name_a: str, name_b: str) -> None:
    if a.ndim != 2 or a.shape != b.shape or a.shape[0] < 2:
        raise ValueError(
            f"{name_a} and {name_b} must be matrices of one shape with at least 2 rows, got "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )

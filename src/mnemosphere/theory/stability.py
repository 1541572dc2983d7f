"""Duplication of fixed points, the Jacobian of the fixed-point map, and its spectrum.

The map of Eq. (saddle-point) in the coordinates x_bar (P, D) at fixed class weights p is
x_bar → w(x_bar) → m → x_bar', so its Jacobian is a product of two symmetric factors,

    J[μ,ν] = β_eff · K[μ,ν] · B[ν],
    K[μ,ν] = Σ_b x_b x_bᵀ Σ_y q r[μ] (δ_μν − r[ν])          curvature of the log-likelihood
    B[ν]   = dw/dx_bar = (ς(z)/s)(I − t tᵀ) + 2 β_eff ϱ ς'(z) t tᵀ

with s = ‖x_bar[ν]‖, t = x_bar[ν]/s and z = 2 β_eff ϱ s. Both factors are positive semidefinite: the
spectrum of J is real and non-negative, and a fixed point is a local maximum of the free entropy
exactly when no eigenvalue exceeds 1. docs/research/theory-derivations.md has the proofs.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters, conjugate, respond, responsibilities


def duplicate(
    problem: SaddlePointProblem, state: OrderParameters, memories: Sequence[int]
) -> tuple[SaddlePointProblem, OrderParameters]:
    """Copy memories, halving their p and p_h, as in Eq. (fixed_point).

    At ϱ = ∞ a fixed point stays one. At finite ϱ the norms ‖x_bar‖ halve inside ς, and the copy is off by
    O(1/ϱ).

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    state : OrderParameters
        A state m (P*, P), p (P+1, C+1).
    memories : sequence of int
        Memories to copy, counted from 0.

    Returns
    -------
    problem : SaddlePointProblem
        The equations with more memories; the copies come last.
    state : OrderParameters
        The state with the copies.

    Examples
    --------
    >>> larger, doubled = mn.theory.duplicate(problem, state, [0])
    >>> larger.n_student, doubled.m.shape
    (3, torch.Size([2, 3]))
    """
    index = list(memories)
    if len(set(index)) != len(index) or any(not 0 <= i < problem.n_student for i in index):
        raise ValueError(
            f"memories must be distinct and in 0..{problem.n_student - 1}, got {index}"
        )
    rows = torch.tensor(index, dtype=torch.int64) + 1
    halved_p, halved_h = state.p.clone(), problem.p_h.clone()
    halved_p[..., rows, :] /= 2.0
    halved_h[rows] /= 2.0
    p = torch.cat([halved_p, halved_p[..., rows, :]], dim=-2)
    m = torch.cat([state.m, state.m[..., rows - 1]], dim=-1)
    return problem.replace(p_h=torch.cat([halved_h, halved_h[rows]])), OrderParameters(m, p)


def response(problem: SaddlePointProblem, x_bar: Tensor, *, power: float = 1.0) -> Tensor:
    """B (..., P, D, D) = dw/dx_bar, the response of the mean memories w to x_bar (..., P, D).

    power: of the matrix, ½ for its square root.
    """
    norm = x_bar.norm(dim=-1)  # (..., P)
    safe = norm.clamp_min(1e-300)
    if math.isinf(problem.rho):
        across, along = torch.where(norm > 0, 1.0 / safe, 0.0), torch.zeros_like(norm)
    else:
        k = problem.gain
        root = torch.hypot(k * norm, torch.ones_like(norm))
        across, along = k / (root + 1.0), k / (root * (root + 1.0))
    across, along = across**power, along**power
    t = x_bar / safe.unsqueeze(-1)  # (..., P, D)
    radial = t.unsqueeze(-1) * t.unsqueeze(-2)  # (..., P, D, D)
    eye = torch.eye(x_bar.shape[-1], dtype=x_bar.dtype)
    b: Tensor = across[..., None, None] * (eye - radial) + along[..., None, None] * radial
    return b


def curvature(problem: SaddlePointProblem, state: OrderParameters) -> Tensor:
    """K (..., P, D, P, D) = Σ_b x_b x_bᵀ Σ_y q r[μ] (δ_μν − r[ν])."""
    shares, _ = responsibilities(problem, state)
    r = shares[..., 1:]  # (..., P*, C+1, P)
    q = problem.targets.unsqueeze(-1)  # (P*, C+1, 1)
    covariance = torch.diag_embed((q * r).sum(-2)) - (q * r).mT @ r  # (..., P*, P, P)
    x = problem.patterns
    return torch.einsum("...bmn,bj,bl->...mjnl", covariance, x, x)


def antisymmetric_matrix(
    problem: SaddlePointProblem, state: OrderParameters, memory: int
) -> Tensor:
    """Jacobian (D, D) in the direction (u, −u) of a memory and its twin, made symmetric.

    β_eff B^½ (Σ_b r[b,μ] x_b x_bᵀ) B^½, at any temperature and for soft assignments. At ϱ = ∞ it
    is (β_eff/‖x_bar[μ]‖) Σ_b r x_⊥ x_⊥ᵀ, the same before and after duplication: `state` may be the
    narrow fixed point. At finite ϱ the state must hold the twin already.
    """
    c = conjugate(problem, state)
    weighted = problem.patterns * c.m_hat[:, memory, None]  # (P*, D)
    second = problem.patterns.T @ weighted  # (D, P*) @ (P*, D)
    root = response(problem, c.x_bar[memory], power=0.5)
    block: Tensor = problem.beta_eff * root @ second @ root
    return block


def antisymmetric_spectrum(
    problem: SaddlePointProblem, state: OrderParameters, memory: int
) -> Tensor:
    """Eigenvalues (D,) of the antisymmetric block, largest first; above 1: the twins part."""
    values: Tensor = torch.linalg.eigvalsh(antisymmetric_matrix(problem, state, memory))
    return values.flip(0)


def split_temperature(problem: SaddlePointProblem, state: OrderParameters) -> Tensor:
    """Compute β_split: at fixed class weights, a memory is a saddle of the grown network iff β_eff > β_split.

    It is ‖x_bar[μ]‖ / λ_max(Σ_b r[b,μ] x_⊥ x_⊥ᵀ) at ϱ = ∞, and β_eff over the largest antisymmetric
    eigenvalue in general.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    state : OrderParameters
        A solution m (P*, P), p (P+1, C+1).

    Returns
    -------
    tensor of shape (P,)
        β_split; infinite for a memory that holds a single pattern.

    Examples
    --------
    >>> mn.theory.split_temperature(*mn.theory.from_parameters(params, batch)).shape
    torch.Size([2])
    """
    top = torch.stack(
        [antisymmetric_spectrum(problem, state, mu)[0] for mu in range(problem.n_student)]
    )
    # Rounding leaves 1e-16 where the exact value is zero.
    return torch.where(top > 1e-14, problem.beta_eff / top.clamp_min(1e-300), math.inf)


def linearize(
    problem: SaddlePointProblem, x_bar: Tensor, p_bar: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Factors (K, L, scale) of the Jacobian of the full map z = (x_bar, p_bar) → (x_bar', p_bar').

    J = diag(scale) K L Lᵀ diag(1/scale) with K (..., Z, Z) symmetric and positive semidefinite and
    L (..., Z, R), at x_bar (..., P, D) and p_bar (..., P+1, C+1). L Lᵀ takes changes of z to changes
    of θ = (β_eff w, log p), K takes those back; p_bar is measured in units of its square root,
    scale = (1, √p_bar), so that class weights near zero do no harm. Z = P D without labels (p is then
    fixed), P D + (P+1)(C+1) with labels.
    """
    state = respond(problem, x_bar, p_bar)
    batch, size = x_bar.shape[:-2], x_bar.shape[-2:].numel()
    k_x = curvature(problem, state).reshape(*batch, size, size)
    l_x = math.sqrt(problem.beta_eff) * response(problem, x_bar, power=0.5)
    l_x = _block_diagonal(list(l_x.unbind(-3)))
    ones = torch.ones(*batch, size, dtype=x_bar.dtype)
    if problem.n_columns == 1:
        return k_x, l_x, ones
    root = p_bar.clamp_min(1e-300).sqrt().flatten(-2)  # (..., (P+1)(C+1))
    k_xp, k_p = _label_curvature(problem, state)
    k_xp, k_p = k_xp / root.unsqueeze(-2), k_p / root.unsqueeze(-2) / root.unsqueeze(-1)
    k = torch.cat([torch.cat([k_x, k_xp], -1), torch.cat([k_xp.mT, k_p], -1)], -2)
    # u = d log p = √p_bar-scaled change minus what restores the marginals Σ p u = 0: a projector.
    n_rows, n_cols = p_bar.shape[-2:]
    rows = torch.eye(n_rows, dtype=p_bar.dtype).repeat_interleave(n_cols, 1)
    cols = torch.eye(n_cols, dtype=p_bar.dtype).repeat(1, n_rows)
    ratio = state.p.flatten(-2) / root
    normal = torch.cat([rows, cols]) * ratio.unsqueeze(-2)  # (..., P+1 + C+1, (P+1)(C+1))
    used = slice(0 if float(problem.p_h[0]) > 0 else 1, None)  # a uniform component without weight
    if bool((p_bar[..., used, :] > 0).all()):
        # Its factor is a basis of what is left. One of the constraints follows from the others.
        weights = slice(used.start * n_cols, None)
        basis = torch.linalg.qr(normal[..., used, weights][..., :-1, :].mT, mode="complete").Q
        free = basis[..., n_rows - used.start + n_cols - 1 :]
        l_p = torch.cat([free.new_zeros(*batch, weights.start, free.shape[-1]), free], -2)
    else:
        inside = torch.diag_embed((p_bar.flatten(-2) > 0).to(p_bar.dtype))
        l_p = inside - torch.linalg.pinv(normal) @ normal  # its own square
    return k, _block_diagonal([l_x, l_p]), torch.cat([ones, root], -1)


def _label_curvature(problem: SaddlePointProblem, state: OrderParameters) -> tuple[Tensor, Tensor]:
    """Blocks of K: x_bar against log p (..., P D, (P+1)(C+1)), and p_bar against log p."""
    shares, _ = responsibilities(problem, state)  # (..., P*, C+1, P+1)
    weighted = shares * problem.targets.unsqueeze(-1)
    # Covariance of components given (b, y): entries of p_bar couple within their column alone.
    inner = torch.diag_embed(weighted) - weighted.unsqueeze(-1) * shares.unsqueeze(-2)
    k_xp = torch.einsum("...bygk,bd->...gdky", inner[..., 1:, :], problem.patterns)
    columns = torch.eye(problem.n_columns, dtype=shares.dtype)
    k_p = torch.einsum("...bygk,yz->...gykz", inner, columns)
    n_weights = state.p.shape[-2:].numel()
    batch = shares.shape[:-3]
    return k_xp.reshape(*batch, -1, n_weights), k_p.reshape(*batch, n_weights, n_weights)


def _block_diagonal(blocks: list[Tensor]) -> Tensor:
    height, width = (sum(block.shape[axis] for block in blocks) for axis in (-2, -1))
    whole = torch.zeros(*blocks[0].shape[:-2], height, width, dtype=blocks[0].dtype)
    row = column = 0
    for block in blocks:
        below, right = row + block.shape[-2], column + block.shape[-1]
        whole[..., row:below, column:right] = block
        row, column = below, right
    return whole


def spectrum(problem: SaddlePointProblem, state: OrderParameters) -> Tensor:
    """Compute the eigenvalues of the Jacobian of the full map (m, p) → (m, p) at a solution.

    They are real and non-negative. Above 1: the solution is not a local maximum of the free entropy.
    Exactly 1: a flat direction, such as the split of labels among memories that coincide. Zeros of
    directions that the marginals of p forbid are left out.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    state : OrderParameters
        A solution m (P*, P), p (P+1, C+1).

    Returns
    -------
    tensor of shape (R,)
        Eigenvalues, largest first.

    Examples
    --------
    >>> bool(mn.theory.spectrum(problem, state)[0] < 1)
    True
    """
    reduced = problem.compressed()
    c = conjugate(reduced, state)
    k, factor, _ = linearize(reduced, c.x_bar, c.p_bar)
    values: Tensor = torch.linalg.eigvalsh(factor.mT @ k @ factor)
    return values.flip(0)

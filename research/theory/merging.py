"""The ς below which memories merge, with β learned, and the ς that fits fresh rows best.

docs/research/theory-derivations.md, section 7b.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import brentq
from sklearn.cluster import KMeans
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from torch import Tensor

import mnemosphere as mn
from mnemosphere.numerics import bessel
from research.field import sets
from research.report import Json

GRID = tuple(k / 10 for k in range(2, 11))  # values of ς that are tried


def merging_varsigma(x: Tensor, group: Tensor | None = None) -> Tensor:
    """Compute the ς below which the memories of a group of rows merge, with β learned.

    Let one memory hold each group: it is the direction of the rows' mean, and a mean overlap m̄ over all
    rows makes β = A_N⁻¹(ς m̄). Copies of the memory part if β_eff = ςβ exceeds its

        β_split = ‖Σ x‖/λ_max(Σ x_⊥ x_⊥ᵀ),

    so they merge below the ς with ς A_N⁻¹(ς m̄) = β_split. With one group for all rows that is where a
    whole network collapses into one memory. Exact for rows that belong to one memory each.

    x (n, N) unit rows; group (n,): the number of each row's group, from 0; None: one. Of each group: infinite if
    no rows leave the memory's direction, above 1 if they merge at every ς.
    """
    x = x.to(torch.float64)
    group = torch.zeros(len(x), dtype=torch.long) if group is None else group
    total = x.new_zeros(int(group.max()) + 1, x.shape[1]).index_add(0, group, x)  # (G, N)
    length = total.norm(dim=1)
    overlap = float(length.sum()) / len(x)  # m̄
    found = []
    for k, w in enumerate(total / length[:, None]):
        own = x[group == k]
        across = own - (own @ w)[:, None] * w
        widest = float(torch.linalg.matrix_norm(across, 2)) ** 2
        target = overlap * float(length[k]) / widest if widest > 1e-12 * len(own) else math.inf
        found.append(_resultant_at(target, x.shape[1]) / overlap)
    return torch.tensor(found, dtype=torch.float64)


def _resultant_at(target: float, n: int) -> float:
    """A_N(β) at the β with β A_N(β) = target."""
    if math.isinf(target):
        return math.inf
    # β²/(N + β) < β A_N(β) < β brackets the root.
    high = target + math.sqrt(target * (target + n)) + 1.0
    beta = brentq(lambda b: b * float(bessel.mean_resultant(b, n)) - target, 0.0, high, xtol=1e-12)
    return float(bessel.mean_resultant(beta, n))


def study_merging(memories: int, splits: int) -> list[Json]:
    """Merging ς, ς of "auto" and the best ς on fresh rows, and what "auto" costs, on scikit-learn's four sets."""
    rows: list[Json] = []
    for name in sets.BUNDLED:
        table = sets.load(name, "bundled", None)
        found = [_on_split(table, memories, seed) for seed in range(splits)]
        columns = {key: [one[key] for one in found] for key in found[0]}
        excess = columns.pop("excess")
        middle = {key: float(np.median(values)) for key, values in columns.items()}
        error = float(np.std(excess, ddof=1) / splits**0.5)
        rows.append({"set": name, **middle, "excess": float(np.mean(excess)), "error": error})
    return rows


def _on_split(table: sets.Table, memories: int, seed: int) -> dict[str, float]:
    """All values of one split: collapse is of all rows as one group, merging the median of P/2 groups."""
    x, fresh, y, truth = train_test_split(
        table.x, table.y, test_size=0.4, stratify=table.y, random_state=seed
    )
    models = [
        mn.DAMClassifier(
            memories, objective="joint", geometry="standard", varsigma=varsigma, random_state=seed
        ).fit(x, y)
        for varsigma in ("auto", *GRID)
    ]
    auto, *tried = (float(log_loss(truth, model.predict_proba(fresh))) for model in models)
    unit = models[0].model_.geometry.place(torch.from_numpy(x))[0].double()
    group = KMeans(memories // 2, n_init=3, random_state=seed).fit(unit.numpy()).labels_
    return {
        "collapse": float(merging_varsigma(unit)),
        "merging": float(merging_varsigma(unit, torch.from_numpy(group).long()).median()),
        "auto": float(models[0].varsigma_), "best": GRID[int(np.argmin(tried))],
        "excess": auto - min(tried),
    }  # fmt: skip

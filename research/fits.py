"""Rows, starts and trainings that several studies share.

The paper's experiments call the trainers of the package here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.geometry import Center, base
from mnemosphere.images.windows import Windows
from mnemosphere.model import initialize, memory_graph, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.one_pass import evaluate, log_joint
from mnemosphere.numerics import sphere
from mnemosphere.rows.named import NamedData
from mnemosphere.rows.rows import Rows
from mnemosphere.training import Run, Solver, fit, grow, latent
from mnemosphere.training.dataset import ArrayDataset

SMOOTHING = 0.1
VARSIGMA = 0.25
_GRAPH_ROWS = 1 << 17  # enough for a graph of memories


# --- rows


def unit_rows(
    images: NDArray[Any], device: str | torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Images (n, N) on the sphere: minus the row mean, over the row norm."""
    stored = Rows.of(images, torch.device(device))
    return base.on_sphere(stored, Center(), dtype)[0]


def on_sphere(
    stored: NamedData,
    device: str | torch.device,
    smoothing: float = SMOOTHING,
    *,
    dtype: torch.dtype = torch.float32,
) -> tuple[Batch, Batch]:
    """(training, test) rows with soft labels."""

    def rows(images: NDArray[Any], classes: NDArray[np.int64]) -> Batch:
        y, n_classes = torch.from_numpy(classes).to(device), len(stored.class_names)
        targets = objectives.soft_labels(y, n_classes, smoothing, dtype=dtype)
        return Batch(unit_rows(images, device, dtype), targets)

    return rows(stored.x_train, stored.y_train), rows(stored.x_test, stored.y_test)


def split_tail(rows: Batch, fraction: float) -> tuple[Batch, Batch]:
    """(all but the tail, the last `fraction` of the rows): the paper's validation split."""
    cut = rows.n_rows - round(fraction * rows.n_rows)
    if not 0 < cut < rows.n_rows:
        raise ValueError(
            f"validation fraction {fraction} of {rows.n_rows} rows leaves one side empty: "
            "pass more rows or another fraction"
        )
    return rows.take(slice(0, cut)), rows.take(slice(cut, None))


def unit_patches(
    images: NDArray[Any], size: int, stride: int, device: str | torch.device = "cpu"
) -> Tensor:
    """Patches that are not blank as unit rows (n, size²)."""
    windows = Windows((*images.shape[1:], 1), (size, size), (stride, stride))
    patches = windows.cut(torch.from_numpy(images).flatten(1)).flatten(0, 1)
    return unit_rows(patches[(patches != patches[:, :1]).any(1)].numpy(), device)


def unlabeled(x: Tensor, columns: int) -> Batch:
    """Rows without labels: one row of zeros stands for all targets."""
    return Batch(x, x.new_zeros(1, columns).expand(len(x), -1))


# --- starts


class Start(NamedTuple):
    """Memories (P, N) and β before the first step."""

    w: Tensor
    beta: Tensor | float


def uniform_start(
    rows: Batch, n_memories: int, *, beta: float = 1.0, generator: torch.Generator
) -> Start:
    """The authors': memories uniform on the sphere."""
    w = sphere.sample_uniform(
        n_memories, rows.x.shape[1], generator=generator, device=rows.x.device
    )
    return Start(w, beta)


def data_start(
    rows: Batch,
    n_memories: int,
    *,
    varsigma: float = VARSIGMA,
    beta: float | None = None,
    generator: torch.Generator,
) -> Start:
    """Memories on training rows; β estimated from them unless it is given."""
    w = initialize.from_data(rows.x, n_memories, generator=generator)
    if beta is not None:
        return Start(w, beta)
    probe = ArrayDataset(rows).sample(initialize.PROBE_ROWS, generator=generator)
    return Start(w, initialize.estimate_beta(w, probe.x, varsigma))


# --- trainings


def begin(start: Start, p_q: Tensor, *, varsigma: float, shares: Tensor | None = None) -> Mixture:
    """A model at its start, with these class frequencies; shares (P,) of the memories in p_h."""
    params = from_memories(start.w, p_q, beta=start.beta, varsigma=varsigma)
    if shares is None:
        return params
    p_h = params.p_h.clone()
    p_h[1:] = (1 - p_h[0]) * (shares / shares.sum()).to(p_h)
    return replace(params, p_h=p_h, p=p_h[:, None] * params.p_q)


def begin_growth(start: Start, p_q: Tensor, *, max_memories: int, varsigma: float) -> Mixture:
    """A model at its start that will grow to `max_memories`.

    Splitting leaves p_h(0) alone: with P_0 = P/P_max the uniform component weighs as much as a
    memory in the end.
    """
    weight = start.w.shape[0] / max_memories
    return from_memories(start.w, p_q, beta=start.beta, varsigma=varsigma, uniform_weight=weight)


def group_classes(
    params: Mixture,
    rows: Batch,
    class_prior: Tensor,
    smoothing: float,
    *,
    generator: torch.Generator,
) -> Mixture:
    """Latent classes in these proportions, from groups of memories that share rows."""
    some = ArrayDataset(rows).sample(_GRAPH_ROWS, generator=generator)
    graph = memory_graph.share_graph(params.w, some)
    groups = memory_graph.group(graph.edges, len(class_prior), generator=generator)
    return latent.start_classes(params, groups, class_prior, smoothing)


def continue_training(
    params: Mixture,
    rows: Batch,
    solver: Solver,
    *,
    passes: int,
    validation: Batch | None = None,
    **options: Any,
) -> Run:
    """At most so many passes; `options` are those of `fit`."""
    return fit(
        params,
        ArrayDataset(rows),
        solver,
        max_iter=passes,
        validation=None if validation is None else ArrayDataset(validation),
        **options,
    )


def train_from(
    start: Start,
    rows: Batch,
    solver: Solver,
    *,
    passes: int,
    varsigma: float = VARSIGMA,
    shares: Tensor | None = None,
    **options: Any,
) -> Run:
    """Train memories from their start."""
    params = begin(start, rows.targets.mean(0), varsigma=varsigma, shares=shares)
    return continue_training(params, rows, solver, passes=passes, **options)


def grow_from(
    start: Start,
    rows: Batch,
    solver: Solver,
    *,
    max_memories: int,
    passes: int,
    final_passes: int,
    varsigma: float = VARSIGMA,
    validation: Batch | None = None,
    **options: Any,
) -> Run:
    """Train and split memories from their start until there are `max_memories`.

    passes: at most, in all phases but the last, which has `final_passes`. `options` are those of
    `grow`.
    """
    params = begin_growth(start, rows.targets.mean(0), max_memories=max_memories, varsigma=varsigma)
    return grow(
        params,
        ArrayDataset(rows),
        solver,
        max_memories=max_memories,
        phase_iter=passes,
        max_iter=final_passes,
        validation=None if validation is None else ArrayDataset(validation),
        **options,
    )


def accuracy(params: Mixture, rows: Batch) -> float:
    """Share of labeled rows whose class is right."""
    labeled = (rows.targets.sum(1) > 0) & (rows.targets.argmax(1) < params.n_columns - 1)
    best = log_joint(params, rows.x[labeled])[:, :-1].argmax(1)
    return float((best == rows.targets[labeled, :-1].argmax(1)).double().mean())


def mean_loss(params: Mixture, rows: Batch) -> float:
    """Of the joint likelihood."""
    return evaluate(params, rows, objectives.joint)

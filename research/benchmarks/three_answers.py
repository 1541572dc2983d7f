"""Three answers with half of the classes known: a class at 95% accuracy, "ask", or nothing.

    python -m research three_answers --vectors DIR --jobs 16

--vectors holds the npz files of `open_world`. Half of the test rows calibrate the default fit, those of unknown
classes as out of scope; the others are asked about.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mnemosphere as mn
from research.benchmarks._options import run_parts
from research.benchmarks.open_world import OPEN, load, split
from research.report import Json

SETS = ("banking-minilm", "banking-wordllama", "clinc-minilm", "clinc-wordllama")
KNOWN, ACCURACY = 0.5, 0.95


def measure(vectors: Path, name: str, seed: int) -> Json:
    """Shares of answers of each kind, and what is in them; nothing if the accuracy is refused."""
    data = split(load(vectors / f"{name}.npz"), KNOWN, seed)
    held = np.random.default_rng(seed).random(len(data.x_test)) < 0.5
    truth = np.where(data.y_test == OPEN, mn.OUT_OF_SCOPE, data.y_test)
    clf = mn.DAMClassifier(random_state=seed).fit(data.x, data.y)
    clf.calibrate(data.x_test[held], truth[held])
    try:
        said = clf.predict_or_reject(data.x_test[~held], accuracy=ACCURACY, ask=True)
    except ValueError:
        return {}
    truth, known = data.y_test[~held], data.y_test[~held] != OPEN
    asked, none = said == "ask", np.equal(said, None)
    given = ~(asked | none)
    return {
        "answered": float(given.mean()), "right": float(np.mean(said[given] == truth[given])),
        "asked": float(asked.mean()), "asked_known": float(known[asked].mean()),
        "none": float(none.mean()), "none_open": float((~known)[none].mean()),
    }  # fmt: skip


def main(argv: list[str]) -> None:
    """Measure all parts, several at a time, and gather them."""
    run_parts(argv, __doc__, "three_answers", measure, SETS, 10)

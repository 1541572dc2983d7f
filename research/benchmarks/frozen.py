"""Figures of a version that deletions must not move: default fits, explanations, ONNX, rejection, the paper.

    python -m research frozen --data DIR --out now.json --jobs 2
    python -m research frozen --compare research/results/benchmarks/frozen.json now.json

Default fits on 20 tables, digits and the vectors of BANKING77, one split each: log-loss, accuracy, settings,
share of rejected rows, coverage of sets, largest difference of the ONNX graph, and the printed explanation
of the first test row of twelve of them; then the measured values of the paper's quick runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import mnemosphere as mn
from research import jobs, report
from research.benchmarks._options import parser
from research.field import frames, sets

TABLES = (
    "iris", "wine", "breast-cancer", "digits", "votes", "pima", "sonar", "crabs", "olive", "vertebral",
    "ts_coffee", "penguins", "biopsy", "glass", "cars93", "carseats", "diabetes", "titanic", "chile",
    "hsb2", "stagec",
)  # fmt: skip
VECTORS = "banking-minilm"
N_EXPLAINED = 12
MOST_ROWS = 1500
TOLERANCE = 1e-6  # relative, of numbers
PAPER = (
    "fig1", "fig2", "capacity", "hierarchy", "table1", "regularizer", "prior", "fig3", "fig4", "fig5", "fig6",
)  # fmt: skip


def load(name: str, data: Path) -> tuple[Any, ...]:
    """Training rows, test rows, labels of both."""
    if name == VECTORS:
        with np.load(data / "texts" / f"{name}.npz") as stored:
            return tuple(stored[key] for key in ("x_train", "x_test", "y_train", "y_test"))
    known = frames if name in frames.SETS else sets
    table = known.load(name, known.kinds(data)[name], data)
    x, y = table.at(np.random.default_rng(0).permutation(len(table.y))[:MOST_ROWS])
    return tuple(train_test_split(x, y, test_size=0.4, random_state=0, stratify=y))


def largest_difference(model: mn.DAMClassifier, x: Any) -> float | None:
    """Between probabilities of the ONNX graph and of the model; None for categories."""
    import onnxruntime

    if hasattr(x, "select_dtypes") and x.shape != x.select_dtypes("number").shape:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        mn.to_onnx(model, path)
        session = onnxruntime.InferenceSession(path.read_bytes())
    (rows, *_), names = session.get_inputs(), [out.name for out in session.get_outputs()]
    values = np.asarray(x, np.float32 if "float)" in rows.type else np.float64)
    found = dict(zip(names, session.run(None, {rows.name: values}), strict=True))
    return float(np.abs(found["probabilities"] - model.predict_proba(values)).max())


def _sets(model: mn.DAMClassifier, x: Any) -> Any:
    try:
        return model.predict_set(x, coverage=0.9)
    except ValueError:  # too few rows for this coverage
        return None


def measure(name: str, data: Path) -> dict[str, Any]:
    """All figures of one default fit."""
    warnings.simplefilter("ignore")  # of rare classes
    x, x_test, y, y_test = load(name, data)
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    proba = model.predict_proba(x_test)
    contained = _sets(model, x_test)
    return {
        "log_loss": float(log_loss(y_test, proba, labels=model.classes_)),
        "accuracy": float(np.mean(model.classes_[proba.argmax(1)] == y_test)),
        "temperature": float(model.temperature_),
        "settings": f"{model.n_memories_} {model.geometry_} {model.objective_}",
        "rejected": float(np.mean([c is None for c in model.predict_or_reject(x_test).tolist()])),
        "covered": contained
        and float(np.mean([c in own for c, own in zip(y_test, contained, strict=True)])),
        "onnx": largest_difference(model, x_test),
        "explanation": str(model.explain(x_test[:1])) if name in TABLES[:N_EXPLAINED] else None,
    }


def paper() -> dict[str, Any]:
    """The measured values of the paper's quick runs, less seconds."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "research", "reproduce", *PAPER, "--quick"]
        subprocess.run([*command, "--device", "cpu", "-o", folder], check=True)
        for path in sorted(Path(folder).rglob("result.json")):
            found[path.parts[-3]] = report.read_json(path, "run it again")["measured"]
    return found


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value of a report with the way to it."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, f"{name}/{key}")
    elif "seconds" not in name:
        yield name, value


def compare(before: Path, after: Path) -> int:
    """Print what differs by more than the tolerance, relatively; the number of such values."""
    old, new = (
        dict(leaves(report.read_json(path, "run it again")["figures"])) for path in (before, after)
    )
    moved = 0
    for name in sorted(old | new):
        a, b = old.get(name), new.get(name)
        both = isinstance(a, float | int) and isinstance(b, float | int)
        same = (
            abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b)) if both else a == b  # type: ignore[operator]
        )
        if not same and not name.endswith("/onnx"):
            moved += 1
            print(f"{name}: {a} -> {b}")
    print(f"{moved} of {len(old)} values moved")
    return moved


def main(argv: list[str]) -> None:
    """Measure all figures, or compare two reports."""
    made = parser(__doc__, "frozen")
    made.add_argument("--data", type=Path, help="folder with tables/ and texts/")
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    made.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    args = made.parse_args(argv)
    if args.compare:
        raise SystemExit(int(compare(*args.compare) > 0))
    if args.data is None:
        made.error("--data is missing: the folder with tables/ and texts/")
    work = [(name, args.data) for name in (VECTORS, *TABLES)]  # the longest first
    figures: dict[str, Any] = {}
    for (name, _), found in jobs.finished(measure, work, args.jobs):
        figures[name] = found
        print(f"{len(figures)} of {len(work)} {name}: {found['log_loss']:.4f}", flush=True)
    figures["paper"] = paper()
    command = report.command_line(["frozen", *argv])
    report.write(args.out, {**report.head(command), "figures": figures})

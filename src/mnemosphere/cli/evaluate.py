"""`mnemosphere evaluate`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from mnemosphere import plots
from mnemosphere.cli import report
from mnemosphere.cli.options import Selection
from mnemosphere.cli.output import PICTURES, check_file
from mnemosphere.cli.rows import Opened, Rows, open_model, rows_for
from mnemosphere.cli.shell import Terminal, cell, cells

_SHOWN = 10  # memories of a certificate, classes where there are many
_CLASSES = 30


def run(
    terminal: Terminal, columns: Selection, model: Path, data: list[str], novel: str | None,
    reject: float | None, certify: bool, out: Path | None, max_memory: float | None,
) -> None:  # fmt: skip
    """Measure a model on labeled rows."""
    check_file(out, PICTURES, terminal.overwrite, model, *data)
    opened = open_model(model, columns.encoder, labeled=True)
    whole = replace(columns, split="all")
    every = rows_for(opened, data, whole, memory=max_memory, labels=True, measured=True)
    rows, trained = every.part(columns.split), every.part(columns.split, "train")
    if columns.split is None and len(rows) < len(every):
        terminal.note(f"{len(rows)} held-out rows of {len(every)} (--split all for every row)")
    found = {"model": opened.path, "data": every.name, **report.score(opened.model, rows)}
    if found["unknown_labels"]:
        terminal.note(f"{found['unknown_labels']} rows have labels the model does not know: they "
                      "count as wrong, and are left out of log-loss and tables")  # fmt: skip
    if novel is not None:
        found["novelty"] = _novelty(opened, rows, novel)
    answered = None if reject is None else report.answers(opened.model, rows, reject)
    if answered is not None:
        found["rejection"] = answered.as_dict()
    if certify:
        some = trained.y is not None and trained.y.dtype == object  # have no label
        opened.model.unlabeled = math.nan if some else None
        proof = opened.model.certify(trained.x, trained.y)
        found["certificate"] = {
            "rows": len(trained),
            "counts": proof.counts,
            "at_rest": proof.at_rest,
        }
    if out is not None:
        drawn = plots.confusion_matrix(
            found["confusion"] if answered is None else answered.confusion,
            opened.classes if answered is None else answered.truths,
            answers=None if answered is None else answered.answers,
        )
        plots.save(drawn, out)
    terminal.result(found)
    _show(terminal, opened, found)
    if certify:
        terminal.say("", *str(proof).splitlines())
    if answered is not None:
        terminal.say("", f"with --reject {reject:g}", *str(answered).splitlines())
    if out is not None:
        terminal.say("", f"wrote {out}")


def _novelty(opened: Opened, rows: Rows, other: str) -> dict[str, Any]:
    """How well novelty tells rows of another kind apart."""
    scores = [
        np.concatenate([opened.model.novelty_score(part.x) for part in given.batches()])
        for given in (rows, rows_for(opened, other, Selection()))
    ]
    truth = np.repeat([0, 1], [len(s) for s in scores])
    auroc = float(roc_auc_score(truth, np.concatenate(scores)))
    return {"other": other, "rows": len(scores[1]), "auroc": auroc}


def _show(terminal: Terminal, opened: Opened, found: dict[str, Any]) -> None:
    facts = {
        "accuracy": f"{found['accuracy']:.2%} of {found['rows']} rows",
        "log-loss": cell(found["log_loss"]),
        "calibration error": cell(found["calibration_error"]),
        **report.ranks(found),
    }
    if "novelty" in found:
        told = found["novelty"]
        facts["AUROC of novelty"] = f"{told['auroc']:.4f} against {told['rows']} rows"
    terminal.facts(facts)
    report.remark(terminal, opened.model, found)
    classes, title = found["per_class"], "classes"
    if len(classes) > _CLASSES:
        known = [line for line in classes if line["recall"] is not None]
        classes = sorted(known, key=lambda line: float(line["recall"]))[:_SHOWN]
        title = f"lowest recall of {len(known)} classes (--json for all)"
    terminal.table(cells(classes), f"\n{title}")
    _show_confusion(terminal, opened.classes, found["confusion"])
    terminal.table(cells(found["worst_rows"]), "\nworst rows")


def _show_confusion(terminal: Terminal, names: list[str], confusion: Any) -> None:
    """The matrix where it fits; the classes say what they are most mistaken for."""
    corner = "true \\ predicted"
    if len(corner) + sum(2 + max(len(name), 4) for name in names) <= terminal.width:
        counts = ([str(n or "·") for n in row] for row in confusion.tolist())
        rows = [{corner: name, **dict(zip(names, row, strict=True))}
                for name, row in zip(names, counts, strict=True)]  # fmt: skip
        terminal.table(rows, "\nconfusion")

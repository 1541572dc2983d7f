"""`mnemosphere cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from mnemosphere import plots
from mnemosphere.base.text import short_text
from mnemosphere.cli import report
from mnemosphere.cli.build import build
from mnemosphere.cli.options import Selection
from mnemosphere.cli.output import CHECKPOINT, MODEL, Folder
from mnemosphere.cli.rows import Opened, Rows, about_data, open_rows, parse_shape
from mnemosphere.cli.settings import Clusterer, Training, typed
from mnemosphere.cli.shell import Terminal, cells
from mnemosphere.cli.table_writer import counted, write_table
from mnemosphere.cli.train import fit, interrupted, set_text_encoder
from mnemosphere.plots.fitted import memories_of

_LABELS = 3  # that are named of a cluster


def run(
    terminal: Terminal, data: list[str], columns: Selection, settings: Clusterer, training: Training,
    folder: Folder, seed: int, max_memory: float | None, image_shape: str | None,
    category: list[str] | None,
) -> None:  # fmt: skip
    """Find clusters, and write them with their rows."""
    model = build("DAMClusterer", typed(settings, training))
    rows = open_rows(data, columns, max_memory, labels=columns.label is not None)
    rows = rows.part(columns.split, "train")
    shape = parse_shape(image_shape, rows.n_features) or rows.image_shape
    if columns.text is not None:
        set_text_encoder(model, columns, rows)
    model.random_state = seed
    model.categories = category or ()
    with folder.writing() as draft:
        seconds = fit(model, rows, terminal, draft / CHECKPOINT)
        interrupted(Opened(model, {}, draft / MODEL), folder)
        sure, labels = _look(model, rows, terminal, draft / "rows.csv")
        agreement = None
        if labels is not None:
            known = [label is not None for label in labels]
            found = adjusted_rand_score(labels[known].astype(str), model.labels_[known])
            agreement = float(found)
        content = {
            "clusters": _told(model, sure, labels),
            "agreement": agreement,
            "seconds": seconds,
            "seed": seed,
            "command": terminal.command,
            **report.about_model(model),
            "data": {**about_data(rows, rows=len(rows)), "image_shape": shape},
        }
        model.save(draft / MODEL)
        plots.save(memories_of(model.model_, shape), draft / "clusters.png")
        wrote = folder.finish(content)
    terminal.result(content)
    terminal.prose(wrote, "")
    facts = report.model_facts(model) | {"time": f"{seconds:.1f} s"}
    if agreement is not None:
        facts["agreement"] = f"{agreement:.3f} with the labels (adjusted Rand index)"
    terminal.facts(facts)
    terminal.table(cells(content["clusters"]), "\nclusters")


def _typical(model: Any, cluster: int) -> str:
    """A text like the memory that most rows of a cluster resemble."""
    own = np.where(model.memory_labels_ == cluster, model.support_, -1.0)
    texts = model.model_.exemplars.as_lists()[int(own.argmax())]
    return short_text(texts[0] if texts else None)


def _told(model: Any, sure: Any, labels: Any) -> list[dict[str, Any]]:
    """Size, memories and, where there are labels, the most frequent of them, per cluster."""
    found = []
    for k in range(len(model.classes_)):
        own = model.labels_ == k
        line: dict[str, Any] = {
            "cluster": k,
            "rows": int(own.sum()),
            "share": float(own.mean()),
            "memories": int((model.memory_labels_ == k).sum()),
            "probability": float(np.mean(sure[own])) if own.any() else None,
        }
        if model.model_.features.encoder is not None:
            line["typical"] = _typical(model, k)
        if labels is not None:
            share = pd.Series(labels[own]).value_counts(normalize=True)[:_LABELS]
            line["labels"] = ", ".join(f"{name} {part:.0%}" for name, part in share.items())
        found.append(line)
    return found


def _look(model: Any, rows: Rows, terminal: Terminal, path: Path) -> tuple[Any, Any]:
    """(probabilities of the clusters, labels or None) of all rows.

    Goes over them once more, and writes the cluster of each as it goes.
    """
    probability, labels = [], []

    def parts() -> Iterator[pd.DataFrame]:
        first = 0
        for part in rows.batches():
            own = model.labels_[first : first + len(part)]
            first += len(part)
            probability.append(model.predict_proba(part.x).max(axis=1))
            if part.y is not None:
                labels.append(part.y.astype(object))
            told = {part.kind: part.names, "cluster": own, "probability": probability[-1]}
            yield pd.DataFrame(told)

    write_table(path, counted(terminal, "finding clusters of rows", rows, parts()))
    return np.concatenate(probability), np.concatenate(labels) if labels else None

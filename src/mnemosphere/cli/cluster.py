"""`mnemosphere cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mnemosphere.cli.options import Data, ImageShape, Overwrite, Request, Seed, command, option
from mnemosphere.cli.output import MODEL, Folder
from mnemosphere.cli.settings import given_settings
from mnemosphere.cli.shell import Interrupted, cells, command_line

if TYPE_CHECKING:
    from mnemosphere.data.columns import Rows

_OUT = option("Folder for model, rows with their clusters, record, picture.", "--out", "-o")


@command(rows=True, split=True)
def cluster(
    request: Request,
    data: Data,
    out: Annotated[Path | None, _OUT] = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    image_shape: ImageShape = None,
) -> None:
    """Find clusters in rows without labels, each held by a few memories you can look at.

    A label column (--label, or one called label, target, class or y, never just the last) is not
    trained on: it only tells how far the clusters agree with it.
    """
    from mnemosphere import plots
    from mnemosphere.cli import report
    from mnemosphere.cli.rows import about_data, load_rows
    from mnemosphere.cli.train import fit
    from mnemosphere.data.columns import parse_shape
    from mnemosphere.estimators.settings import build, resolve
    from mnemosphere.plots.fitted import memories_of

    terminal = request.terminal
    folder = None if out is None else Folder(out, overwrite=overwrite)
    settings = resolve("DAMClusterer", given_settings(request.ctx))
    rows = load_rows(data, request.columns, "named").part(request.split, "train")
    shape = parse_shape(image_shape, rows.x.shape[1]) or rows.table.image_shape
    model = build("DAMClusterer", settings)
    model.random_state = seed
    seconds = fit(model, rows, terminal)
    sure = model.predict_proba(rows.x).max(axis=1)
    content = {
        "clusters": _clusters(model, rows, sure),
        "agreement": _agreement(model, rows),
        "mean_log_density": model.score(rows.x),
        "bic": model.bic(rows.x) if model.varsigma_ == 1 else None,
        "seconds": seconds,
        "seed": seed,
        "settings": settings,
        "command": command_line(request.ctx),
        **report.about_model(model),
        "data": {**about_data(rows, rows=len(rows)), "image_shape": shape},
    }
    if folder is not None:
        import pandas as pd

        from mnemosphere.data.table_writer import write_table

        frame = pd.DataFrame({rows.kind: rows.names, "cluster": model.labels_, "probability": sure})
        with folder.writing() as draft:
            model.save(draft / MODEL)
            write_table(frame, draft / "rows.csv")
            plots.save(memories_of(model, shape), draft / "clusters.png")
            folder.finish(content)
    terminal.result(content)
    facts = report.model_facts(model) | {"time": f"{seconds:.1f} s"}
    if content["agreement"] is not None:
        facts["agreement"] = f"{content['agreement']:.3f} with the labels (adjusted Rand index)"
    terminal.facts(facts)
    terminal.table(cells(content["clusters"]), "\nclusters")
    if folder is not None:
        terminal.say("", folder.told())
    if model.status_ == "interrupted":
        raise Interrupted("interrupted: the clusters are those of the memories so far")


def _clusters(model: Any, rows: Rows, sure: Any) -> list[dict[str, Any]]:
    """Size, memories and, where there are labels, the most frequent of them, per cluster."""
    import numpy as np

    found = []
    for k in model.classes_.tolist():
        mine = model.labels_ == k
        line = {
            "cluster": k,
            "rows": int(mine.sum()),
            "share": float(mine.mean()),
            "memories": int((model.memory_labels_ == k).sum()),
            "probability": float(sure[mine].mean()) if mine.any() else None,
        }
        if rows.y is not None:
            labels, counts = np.unique(rows.y[mine & rows.labeled].astype(str), return_counts=True)
            best = np.argsort(-counts, kind="stable")[:3]
            line["labels"] = ", ".join(f"{labels[j]} {counts[j] / counts.sum():.0%}" for j in best)
        found.append(line)
    return found


def _agreement(model: Any, rows: Rows) -> float | None:
    """Adjusted Rand index between clusters and labels: 0 for chance, 1 for the same."""
    from sklearn.metrics import adjusted_rand_score

    labeled = rows.labeled
    if rows.y is None or not labeled.any():
        return None
    return float(adjusted_rand_score(rows.y[labeled].astype(str), model.labels_[labeled]))

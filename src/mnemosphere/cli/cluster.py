"""`mnemosphere cluster`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mnemosphere.cli.options import (
    Files,
    ImageShape,
    MaxMemory,
    Overwrite,
    Request,
    Seed,
    command,
    option,
)  # fmt: skip
from mnemosphere.cli.output import CHECKPOINT, MODEL, Folder
from mnemosphere.cli.settings import given_settings
from mnemosphere.cli.shell import Interrupted, Terminal, cells, command_line

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Rows

_OUT = option("Folder for model, rows with their clusters, record, picture.", "--out", "-o")
_LABELS = 3  # that are named of a cluster


@command(rows=True, split=True)
def cluster(
    request: Request,
    data: Files,
    out: Annotated[Path | None, _OUT] = None,
    resume: Annotated[bool, option("Go on with OUT.partial.", "--resume")] = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    max_memory: MaxMemory = None,
    image_shape: ImageShape = None,
) -> None:
    """Find clusters in rows without labels, each held by a few memories you can look at.

    A label column (--label, or one called label, target, class or y, never just the last) is not
    trained on: it only tells how far the clusters agree with it. Files that memory does not hold
    are read again in every pass. Ctrl-C or a kill leave OUT.partial, from which the same command
    with --resume goes on.
    """
    from mnemosphere import plots
    from mnemosphere.cli import report
    from mnemosphere.cli.estimator_settings import build, settings_of
    from mnemosphere.cli.rows import about_data, open_rows, parse_shape, text_encoder
    from mnemosphere.cli.train import fit
    from mnemosphere.data.texts import PACKAGED
    from mnemosphere.plots.fitted import memories_of

    terminal = request.terminal
    if resume and out is None:
        raise ValueError("--resume needs the folder that was written to: name it with --out")
    folder = None if out is None else Folder(out, overwrite=overwrite, resume=resume)
    if folder is not None and folder.finished:
        terminal.note(f"{out} was finished before the fault")
        return
    model, columns = build("DAMClusterer", given_settings(request.ctx)), request.columns
    named = columns.id is not None and columns.label is None
    rows = open_rows(data, columns, max_memory, guess="named", named=named)
    rows = rows.part(request.split, "train")
    shape = parse_shape(image_shape, rows.n_features) or rows.image_shape
    settings = settings_of(model)
    if request.columns.text is not None:
        model.encoder = text_encoder(request.columns.encoder or PACKAGED)
    model.random_state = seed
    with contextlib.nullcontext() if folder is None else folder.writing() as draft:
        seconds = fit(model, rows, terminal, None if draft is None else draft / CHECKPOINT)
        if draft is not None and model.status_ == "interrupted":
            model.save(draft / MODEL)
            raise Interrupted(
                f"interrupted after {model.n_iter_} passes: the model so far is in {out}.partial, "
                "go on with the same command and --resume"
            )
        told = None if folder is None or not folder.writes else folder.draft / "rows.csv"
        found = _look(model, rows, terminal, told)
        content = {
            "clusters": found.clusters(model),
            "agreement": found.agreement(),
            "mean_log_density": found.log_density / len(rows),
            "bic": model.bic(rows.x) if model.varsigma_ == 1 else None,
            "seconds": seconds,
            "seed": seed,
            "settings": settings,
            "command": command_line(request.ctx),
            **report.about_model(model),
            "data": {**about_data(rows, rows=len(rows)), "image_shape": shape},
        }
        if folder is not None and draft is not None:
            if folder.writes:
                model.save(draft / MODEL)
                plots.save(memories_of(model.model_, shape), draft / "clusters.png")
            folder.finish(content)
    terminal.result(content)
    facts = report.model_facts(model) | {"time": f"{seconds:.1f} s"}
    if content["agreement"] is not None:
        facts["agreement"] = f"{content['agreement']:.3f} with the labels (adjusted Rand index)"
    terminal.facts(facts)
    terminal.table(cells(content["clusters"]), "\nclusters")
    if folder is not None:
        terminal.prose("", folder.told())
    if model.status_ == "interrupted":
        raise Interrupted("interrupted: the clusters are those of the memories so far")


def _typical(model: Any, cluster: int) -> str:
    """A text like the memory that most rows of a cluster resemble."""
    import numpy as np

    from mnemosphere.text import short_text

    own = np.where(model.memory_labels_ == cluster, model.support_, -1.0)
    texts = model.model_.exemplars.as_lists()[int(own.argmax())]
    return short_text(texts[0] if texts else None)


@dataclass
class _Found:
    """What a look at all rows tells of the clusters."""

    rows: Any  # (C,) how many each has
    probability: Any  # (C,) summed over them
    labels: dict[str, Any] = field(default_factory=dict)  # (C,) how many rows of each have it
    log_density: float = 0.0  # summed

    def clusters(self, model: Any) -> list[dict[str, Any]]:
        """Size, memories and, where there are labels, the most frequent of them, per cluster."""
        found = []
        for k, n in enumerate(self.rows.tolist()):
            line = {
                "cluster": k,
                "rows": n,
                "share": n / int(self.rows.sum()),
                "memories": int((model.memory_labels_ == k).sum()),
                "probability": float(self.probability[k]) / n if n else None,
            }
            if model.model_.features.encoder is not None:
                line["typical"] = _typical(model, k)
            if self.labels:
                known = sorted(
                    ((int(c[k]), name) for name, c in self.labels.items() if c[k]),
                    key=lambda pair: (-pair[0], pair[1]),
                )
                total = sum(n for n, _ in known)
                line["labels"] = ", ".join(f"{name} {n / total:.0%}" for n, name in known[:_LABELS])
            found.append(line)
        return found

    def agreement(self) -> float | None:
        """Adjusted Rand index between clusters and labels: 0 for chance, 1 for the same."""
        import numpy as np

        if not self.labels:
            return None
        counts = np.stack(list(self.labels.values())).astype(float)
        sums = counts, counts.sum(0), counts.sum(1), counts.sum()
        both, ours, theirs, every = (float((n * (n - 1) / 2).sum()) for n in sums)  # pairs
        chance, most = ours * theirs / max(every, 1), (ours + theirs) / 2
        return 1.0 if most == chance else (both - chance) / (most - chance)


def _look(model: Any, rows: Rows, terminal: Terminal, path: Path | None) -> _Found:
    """Go over all rows once more, and write the cluster of each as it goes."""
    import numpy as np
    import pandas as pd

    from mnemosphere.cli.table_writer import table_writer
    from mnemosphere.estimators.progress import track

    n_clusters, n_bytes = len(model.classes_), 0 if rows.in_memory else rows.x.n_bytes
    found = _Found(np.zeros(n_clusters, dtype=np.int64), np.zeros(n_clusters))
    first = 0
    with (
        contextlib.nullcontext() if path is None else table_writer(path, len(rows)) as write,
        track("clusters of", len(rows), n_bytes, shown=terminal.live) as done,
    ):
        for part in rows.batches():
            own = model.labels_[first : first + len(part)]
            first += len(part)
            sure = model.predict_proba(part.x).max(axis=1)
            found.rows += np.bincount(own, minlength=n_clusters)
            found.probability += np.bincount(own, sure, minlength=n_clusters)
            found.log_density += float(model.score_samples(part.x).sum())
            if part.y is not None:
                names = part.y[part.labeled].astype(str)
                for name in np.unique(names):
                    here = np.bincount(own[part.labeled][names == name], minlength=n_clusters)
                    found.labels[name] = found.labels.get(name, 0) + here
            if write is not None:
                write(pd.DataFrame({part.kind: part.names, "cluster": own, "probability": sure}))
            done(len(part))
    return found

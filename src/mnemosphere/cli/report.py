"""Figures about a model, and tables of them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from mnemosphere.cli.rows import Part, Source
from mnemosphere.estimators import DAMClassifier, Explanation
from mnemosphere.plots import letters
from mnemosphere.theory.stationarity import Certificate

_MAX_CONFUSION = 15  # classes of a confusion matrix that fits a terminal


@dataclass(frozen=True)
class Scores:
    """How well a model does on labelled rows. Rows of a class it does not know are wrong."""

    classes: NDArray[Any]
    n_rows: int
    n_unknown: int  # rows whose label the model does not know; not in log_loss and confusion
    accuracy: float
    log_loss: float
    confusion: NDArray[np.int64]  # (C, C), rows true, columns predicted

    def per_class(self) -> list[dict[str, Any]]:
        """Rows, recall, precision and the commonest mistake of each class."""
        right = np.diag(self.confusion)
        rows, predicted = self.confusion.sum(axis=1), self.confusion.sum(axis=0)
        wrong = self.confusion - np.diag(right)
        return [
            {
                "class": label,
                "rows": int(rows[k]),
                "recall": float(right[k] / rows[k]) if rows[k] else None,
                "precision": float(right[k] / predicted[k]) if predicted[k] else None,
                "most_mistaken_for": self.classes[wrong[k].argmax()] if wrong[k].any() else None,
            }
            for k, label in enumerate(self.classes.tolist())
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "accuracy": self.accuracy,
            "log_loss": self.log_loss,
            "rows": self.n_rows,
            "unknown_labels": self.n_unknown,
            "classes": self.classes,
            "per_class": self.per_class(),
            "confusion": self.confusion,
        }


def score(model: DAMClassifier, part: Part) -> Scores:
    """Judge a model on the labelled rows of a part."""
    part = part.judged()
    classes, y = model.classes_, part.labels
    if (classes.dtype.kind in "US") != (y.dtype.kind in "US"):
        raise ValueError(
            f"the labels are {'text' if y.dtype.kind in 'US' else 'numbers'}, such as "
            f"{y[0].item()!r}, but the model's are like {classes[0].item()!r}: "
            "choose another column with --label"
        )
    log_proba = model.predict_log_proba(part.x)
    known = np.isin(y, classes)
    index = np.searchsorted(classes, y[known])
    best = log_proba[known].argmax(axis=1)
    n_classes = len(classes)
    counts = np.bincount(index * n_classes + best, minlength=n_classes**2)
    own = log_proba[known][np.arange(index.size), index]
    return Scores(
        classes=classes,
        n_rows=len(part),
        n_unknown=int((~known).sum()),
        accuracy=float((index == best).sum() / len(part)),
        log_loss=max(0.0, float(-own.mean())) if own.size else np.nan,  # never −0
        confusion=counts.reshape(n_classes, n_classes).astype(np.int64),
    )


def versions() -> dict[str, str]:
    """What was installed."""
    names = ("mnemosphere", "torch", "numpy", "scipy", "scikit-learn", "safetensors")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def device_name(model: DAMClassifier) -> str:
    """Where the model was trained."""
    import torch

    device = model.params_.w.device
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def chosen(model: DAMClassifier) -> dict[str, Any]:
    """What was learned or chosen from the data."""
    return {
        "memories": model.n_memories_,
        "varsigma": model.varsigma_,
        "normalize": model.normalize_,
        "beta": model.beta_,
    }


def pairs_table(title: str, pairs: dict[str, str]) -> Table:
    """A name and a value a line."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in pairs.items():
        table.add_row(name, Text(value))
    return table


def model_table(title: str, model: DAMClassifier, more: dict[str, str]) -> Table:
    """What a fitted model is, and what became of it."""
    asked = model.get_params()

    def how(name: str, word: str) -> str:
        return f"  ({word} from the data)" if asked[name] in ("auto", "learn") else ""

    ended = {"max_epochs": "as many as allowed", "stable": "no memory is a saddle any more"}
    status = ended.get(model.status_, model.status_)
    pairs = {
        "memories": f"{model.n_memories_}{how('n_memories', 'chosen')}",
        "regulariser ς": f"{model.varsigma_:.3g}{how('varsigma', 'chosen')}",
        "normalization": f"{model.normalize_}{how('normalize', 'chosen')}",
        "inverse temperature β": f"{model.beta_:.4g}{how('beta', 'learned')}",
        "passes over the data": f"{len(model.history_)}  ({status})",
    }
    return pairs_table(title, pairs | more)


def class_table(scores: Scores, source: Source) -> Table:
    """One row per class."""
    table = Table(title="class by class", title_justify="left")
    table.add_column("class")
    for name in ("rows", "recall", "precision"):
        table.add_column(name, justify="right")
    table.add_column("most mistaken for")
    for row in scores.per_class():
        mistake = row["most_mistaken_for"]
        table.add_row(
            Text(source.label(row["class"])),
            str(row["rows"]),
            _percent(row["recall"]),
            _percent(row["precision"]),
            Text("" if mistake is None else source.label(mistake)),
        )
    table.caption = "recall: share of the class that was recognized\n"
    table.caption += "precision: share of its verdicts that was right"
    table.caption_justify = "left"
    return table


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def confusion_table(scores: Scores, source: Source) -> Table:
    """The confusion matrix where it fits, else the commonest confusions."""
    names = [source.label(label) for label in scores.classes.tolist()]
    if len(names) <= _MAX_CONFUSION and max(map(len, names)) <= 12:
        table = Table(title="true class (rows), verdict (columns)", title_justify="left")
        table.add_column("")
        for name in names:
            table.add_column(Text(name), justify="right")
        for k, (name, row) in enumerate(zip(names, scores.confusion, strict=True)):
            cells = [
                Text(str(count) if count else "·", style="bold" if j == k else "")
                for j, count in enumerate(row)
            ]
            table.add_row(Text(name, style="dim"), *cells)
        return table
    table = Table(title="commonest confusions", title_justify="left")
    for name in ("true class", "verdict"):
        table.add_column(name)
    table.add_column("rows", justify="right")
    wrong = scores.confusion - np.diag(np.diag(scores.confusion))
    for flat in np.argsort(-wrong, axis=None, kind="stable")[:_MAX_CONFUSION]:
        row, column = divmod(int(flat), len(names))
        if wrong[row, column]:
            table.add_row(Text(names[row]), Text(names[column]), str(wrong[row, column]))
    return table


def explanation_table(explanation: Explanation, row: int, source: Source, title: str) -> Table:
    """The memories that decided about one row."""
    table = Table(title=Text(title), title_justify="left")
    for name in ("memory", "share", "overlap"):
        table.add_column(name, justify="right")
    table.add_column("soft label")
    for reason in explanation[row]:
        label = "none of them" if reason.label is None else source.label(reason.label)
        table.add_row(
            f"#{reason.memory}",
            f"{reason.share:.1%}",
            f"{reason.overlap:.3f}",
            Text(f"{label} ({reason.label_weight:.0%})"),
        )
    rest = 1 - float(explanation.share[row].sum()) - float(explanation.uniform_share[row])
    table.add_row("others", f"{max(rest, 0.0):.1%}", "", "", style="dim")
    table.add_row("uniform", f"{float(explanation.uniform_share[row]):.1%}", "", "", style="dim")
    table.caption = "share: P(memory | row)\noverlap: cosine with the row"
    table.caption_justify = "left"
    return table


def representative(model: DAMClassifier, count: int) -> NDArray[np.intp]:
    """Memories to show: of each class in turn the next one, in the order of the model."""
    owner = model.class_weights_[1:].argmax(axis=1)
    turn = np.empty(len(owner), dtype=np.int64)  # how many of its class come before it
    for label in np.unique(owner):
        mine = np.flatnonzero(owner == label)
        turn[mine] = np.arange(len(mine))
    shown: NDArray[np.intp] = np.lexsort((owner, turn))[:count]
    return shown


def soft_label_lines(
    model: DAMClassifier, indices: NDArray[np.intp], source: Source, ncols: int
) -> str:
    """The letters of a gallery, each with the class its memory stands for."""
    soft = model.class_weights_[1:] / np.maximum(model.memory_prior_[1:, None], 1e-30)
    names = [*(source.label(c) for c in model.classes_.tolist()), "none"]
    parts = [
        f"{letter}: {names[soft[k].argmax()]} ({soft[k].max():.0%})"
        for letter, k in zip(letters(len(indices)), indices, strict=True)
    ]
    width = max(map(len, parts)) + 3
    lines = [parts[k : k + ncols] for k in range(0, len(parts), ncols)]
    return "\n".join("".join(part.ljust(width) for part in line).rstrip() for line in lines)


def verdict_line(
    explanation: Explanation, place: int, source: Source, row: int, truth: object
) -> str:
    """What a row was taken for, and whether that is right."""
    verdict = explanation.verdict[place]
    text = f"row {row}: {source.label(verdict)} ({float(explanation.probability[place]):.1%})"
    if truth is not None:
        text += ", right" if verdict == truth else f", wrong: it is {source.label(truth)}"
    return text


def certificate(model: DAMClassifier, part: Part, tol: float) -> Certificate:
    """Residual and curvature of every memory under the objective the model was trained with."""
    model.unlabeled = part.unlabeled
    return model.certify(part.x, part.labels, tol=tol)


def verdicts(found: Certificate) -> dict[str, Any]:
    """A certificate as plain values, for JSON."""
    own = np.maximum(found.residual.w.cpu().numpy(), found.residual.p[1:].cpu().numpy())
    columns = {
        "verdict": found.verdicts,
        "rows": found.mass.tolist(),
        "residual": own.tolist(),
        "lambda_min": found.lambda_min.tolist(),
        "beta_split": found.beta_split.tolist(),
    }
    return {
        "counts": found.counts,
        "converged": found.converged,
        "tol": found.tol,
        "largest_residual": found.residual.largest,
        "beta_residual": float(found.residual.beta),
        "beta_eff": found.beta_eff,
        "memories": [
            {"memory": k, **dict(zip(columns, values, strict=True))}
            for k, values in enumerate(zip(*columns.values(), strict=True))
        ],
    }


def certificate_parts(
    found: Certificate, model: DAMClassifier, source: Source, max_rows: int
) -> list[Any]:
    """The verdicts for people: how many of each, then the memories nearest to splitting."""
    content = verdicts(found)
    names = [*(source.label(c) for c in model.classes_.tolist()), "none"]
    owner = model.class_weights_[1:].argmax(axis=1)
    colors = {"minimum": "green", "saddle": "yellow", "not converged": "red"}
    counts = Text()
    for verdict, count in found.counts.items():
        counts.append(f"{count} {verdict}", style=colors[verdict] if count else "dim")
        counts.append("   ")
    table = Table(title="memories nearest to splitting", title_justify="left")
    for name in ("memory", "class", "rows", "residual", "λ_min", "β_split/β_eff", "verdict"):
        table.add_column(name, justify="left" if name in ("class", "verdict") else "right")
    order = sorted(content["memories"], key=lambda row: row["beta_split"])
    for row in order[:max_rows]:
        table.add_row(
            f"#{row['memory']}",
            Text(names[owner[row["memory"]]]),
            f"{row['rows']:.4g}",
            f"{row['residual']:.1e}",
            f"{row['lambda_min']:.2e}",
            f"{row['beta_split'] / found.beta_eff:.3f}",
            Text(row["verdict"], style=colors[row["verdict"]]),
        )
    if len(order) > max_rows:
        table.caption = f"and {len(order) - max_rows} more with a higher β_split"
        table.caption_justify = "left"
    summary = (
        f"largest residual {found.residual.largest:.1e} (tolerance {found.tol:.1e}), "
        f"β_eff {found.beta_eff:.4g}"
    )
    if not found.converged:
        summary += "\nnot at rest: train longer (--epochs, a smaller --tol), or judge by a larger "
        summary += "--tol here"
    return [counts, summary, table]


def shrink(model: DAMClassifier, part: Part, n_memories: int) -> DAMClassifier:
    """A copy of the model with fewer memories."""
    model.unlabeled = part.unlabeled
    return model.shrink(part.x, part.labels, n_memories)

"""Figures about a model, in words and pictures."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mnemosphere.base.machine import device_name, versions
from mnemosphere.base.text import middle_cut, short_text
from mnemosphere.cli.rows import Rows
from mnemosphere.cli.shell import Terminal
from mnemosphere.fitted import pulls
from mnemosphere.interpret import ClassificationReport, classification_report, evaluate
from mnemosphere.rows.features import readable

_WORST = 10  # rows that are listed
_TRIALS = 5  # of the search that are shown
_COLUMNS = 3  # that matter most, in a line of a terminal
_ENDED = {"max_iter": "as many as allowed", "stable": "no memory is a saddle any more"}


def score(model: Any, rows: Rows) -> dict[str, Any]:
    """What `interpret.evaluate` finds on the labeled rows, with the worst of them by name."""
    labeled = (part.take(part.labeled) for part in rows.batches())
    parts = ((part.x, part.y, part.names) for part in labeled if part.y is not None and len(part))
    found = evaluate(model.model_, parts, _WORST)
    texts = dict(zip(rows.names, rows.texts, strict=False))
    for k, row in enumerate(found["worst_rows"]):
        name = str(row.pop("row"))
        said = {"text": short_text(texts[name])} if rows.text else {}
        found["worst_rows"][k] = {rows.kind: name, **said, **row}
    return found


def answers(model: Any, rows: Rows, rate: float) -> ClassificationReport:
    """Answers and rejections of the labeled rows."""
    labeled = [part.take(part.labeled) for part in rows.batches()]
    parts = [(part.y, model.predict_or_reject(part.x, rate)) for part in labeled if len(part)]
    truth, said = ([value for part in each for value in part] for each in zip(*parts, strict=True))
    return classification_report(truth, said, model.classes_)


def remark(terminal: Terminal, model: Any, found: dict[str, Any]) -> None:
    """Tell if always saying the most frequent class would be right as often.

    With weights of classes accuracy is not what was asked for.
    """
    accuracy, most = found["accuracy"], found["most_frequent"]
    if accuracy <= most < 1 and model.class_weight is None:
        terminal.note(
            f"note: accuracy {accuracy:.1%} is no better than always answering the most frequent class "
            f"({most:.1%}): the features may not tell the classes, or --class-weight balanced may help"
        )


def ranks(found: dict[str, Any]) -> dict[str, str]:
    """How well the rarer of two classes is ranked, in words; nothing for other numbers of classes."""
    told = found["ranking"]
    return {} if told is None else {
        f"ranking of {told['class']}": f"AUROC {told['auroc']:.4f}, "
        f"average precision {told['average_precision']:.4f}",
        "equal recall": f"at P({told['class']}) > {told['threshold']:.3g}",
    }  # fmt: skip


def importance(model: Any, X: Any) -> dict[str, float]:
    """Mean absolute pull of each column, the largest first; empty without columns people can read."""
    fitted = model.model_
    if len(fitted.classes) < 2 or not readable(fitted.features.shown_names):
        return {}
    size = pulls.importance(fitted, fitted.stored(X))
    order = (-size).argsort(kind="stable").tolist()
    return {fitted.features.lines[j].name: float(size[j]) for j in order}


def strongest(found: dict[str, Any]) -> dict[str, str]:
    """The columns that matter most, in words."""
    names = [middle_cut(name, 17) for name in found["importance"]]
    return {"strongest columns": ", ".join(names[:_COLUMNS])} if names else {}


def about_model(model: Any) -> dict[str, Any]:
    """What was chosen from the data and learned, and what that depended on: for a record."""
    names = ("mnemosphere", "scipy", "scikit-learn", "pandas", "safetensors")
    settings, others = model.get_params(deep=False), ("callbacks", "encoder", "verbose")
    return {
        "settings": {k: v for k, v in settings.items() if k not in others},
        "chosen": {
            "memories": model.n_memories_,
            "varsigma": model.varsigma_,
            "geometry": model.geometry_,
            "objective": model.model_.objective,
            "beta": model.beta_,
        },
        "passes": model.n_iter_,
        "status": model.status_,
        "history": model.history_,
        "device": device_name(model.model_.device),
        "versions": versions() | {name: version(name) for name in names},
    }


def model_facts(model: Any) -> dict[str, str]:
    """What a fitted model is, in words."""
    asked = model.get_params()

    def how(name: str, word: str) -> str:
        return f"  ({word} from the data)" if asked.get(name) in ("auto", "learn") else ""

    encoder, objective = model.model_.features.text_encoder, model.model_.objective
    facts = {} if encoder is None else {"encoder": f"{encoder.name}, {encoder.n_numbers} numbers"}
    facts |= {"memories": f"{model.n_memories_}{how('n_memories', 'chosen')}"}
    if model.model_.is_classifier:
        facts["objective"] = f"{objective}{how('objective', 'chosen')}"
    if objective != "conditional":  # which does not depend on ς
        facts["regularizer ς"] = f"{model.varsigma_:.3g}{how('varsigma', 'chosen')}"
    return facts | {
        "geometry": f"{model.geometry_}{how('geometry', 'chosen')}",
        "inverse temperature β": f"{model.beta_:.4g}{how('beta', 'learned')}",
        "passes over the data": f"{model.n_iter_}  ({_ENDED.get(model.status_, model.status_)})",
    }


def best_trials(model: Any) -> list[dict[str, str]]:
    """The best trials of the search on most rows, the chosen one among them, for people."""
    trials = list(model.search_)
    if len(trials) < 2:
        return []  # nothing was compared
    last = [t for t in trials if t["rows"] == trials[-1]["rows"]]
    last.sort(key=lambda trial: (float(trial["log_loss"]), not trial["chosen"]))
    return [
        {
            "geometry": trial["geometry"],
            "memories": str(trial["n_memories"]),
            "objective": trial["objective"] + (" + unlabeled" if trial["unlabeled"] else ""),
            "noise": f"{trial['noise']:g}" if trial["objective"] == "conditional" else "",
            "log-loss": f"{trial['log_loss']:.4f} ± {trial['error']:.4f}",
            "": "chosen" if trial["chosen"] else "",
        }
        for place, trial in enumerate(last)
        if place < _TRIALS or trial["chosen"]
    ]

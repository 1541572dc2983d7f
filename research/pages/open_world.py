"""The page of the open world: embeddings, rejection, classes added later."""

from __future__ import annotations

import statistics

from research.pages.marks import markdown
from research.pages.stored import Table, read, source
from research.report import Json

NAMES = {
    "banking-minilm": "BANKING77, MiniLM",
    "banking-wordllama": "BANKING77, wordllama",
    "clinc-minilm": "CLINC150, MiniLM",
    "clinc-wordllama": "CLINC150, wordllama",
    "cifar10-features": "CIFAR-10, EfficientNet",
}
OPEN = ("0.25", "0.5", "0.75")
# Macro F1 at 25, 50 and 75% of the classes known, mean of ten seeds: fine-tuned BERT in TEXTOIR
# (Zhang et al. 2021) and DA-ADB (Zhang et al. 2023); a frozen sentence encoder in Lorenc et al. 2022.
PUBLISHED = {
    "BANKING77": {
        "ADB, fine-tuned BERT": (71.6, 81.3, 86.1), "DA-ADB, fine-tuned BERT": (73.7, 82.5, 85.7),
        "Lorenc et al., frozen encoder": (78.9, 84.9, 88.4),
    },
    "CLINC150": {
        "ADB, fine-tuned BERT": (78.2, 85.2, 88.9), "DA-ADB, fine-tuned BERT": (79.9, 85.6, 88.4),
        "Lorenc et al., frozen encoder": (85.9, 89.2, 92.2),
    },
}  # fmt: skip


LABELS = {"ours": "`DAMClassifier`"}  # in tables


def _mean(values: list[float], scale: float = 100.0, digits: int = 1) -> str:
    return f"{scale * statistics.fmean(values):.{digits}f}"


def _cell(own: Json, key: str, scale: float = 100.0, digits: int = 1) -> str:
    return _mean(own[key], scale, digits) if key in own else "–"


def known_table() -> Table:
    """Known classes only."""
    run = read("open_world")
    head = ["vectors", "method", "accuracy, %", "log-loss", "calibration error, %",
            "answered at 95% accuracy, %", "seconds"]  # fmt: skip
    rows = [
        [NAMES[data["name"]], LABELS.get(method, method), _cell(own, "known_accuracy"), _cell(own, "log_loss", 1, 3),
         _cell(own, "calibration_error"), _cell(own, "coverage"), _cell(own, "seconds", 1)]
        for data in run["sets"]
        for method, own in data["results"]["1"]["methods"].items()
    ]  # fmt: skip
    return Table(f"{markdown(head, rows)}\n\n{source(run)}, one thread per fit", [run])


def open_table() -> Table:
    """F1, AUROC and accuracy with a share of the classes known, beside the published ones."""
    run = read("open_world")
    head = ["vectors", "method", "F1 at 25 / 50 / 75% known", "AUROC", "accuracy",
            "answered at 95% accuracy"]  # fmt: skip
    rows = []
    texts = [NAMES[data["name"]].partition(",")[0] for data in run["sets"]]
    for data, texts_name, following in zip(run["sets"], texts, [*texts[1:], ""], strict=True):
        for method in data["results"]["0.25"]["methods"]:
            parts = [data["results"][share]["methods"][method] for share in OPEN]
            rows.append([NAMES[data["name"]], LABELS.get(method, method)] + [
                " / ".join(_cell(own, key) for own in parts)
                for key in ("f1", "auroc", "accuracy", "open_coverage")
            ])  # fmt: skip
        if texts_name != following:  # once for each set of texts
            rows += [
                [f"{texts_name}, published", name,
                 " / ".join(f"{v:.1f}" for v in figures), "–", "–", "–"]
                for name, figures in PUBLISHED.get(texts_name, {}).items()
            ]  # fmt: skip
    return Table(markdown(head, rows), [run])


def new_class_table() -> Table:
    """Classes from five examples."""
    run = read("open_world")
    rows = []
    for data in run["sets"]:
        own = data["results"]["0.75"]["new_class"]
        rows.append([
            NAMES[data["name"]], _cell(own, "recall"), _cell(own, "centroid_recall"),
            _cell(own, "change", 100, 2).replace("-", "−"), _cell(own, "seconds", 1000),
        ])  # fmt: skip
    head = ["vectors", "recall of the new class, %", "of a nearest centroid, %",
            "change for the others, points", "milliseconds"]  # fmt: skip
    return Table(markdown(head, rows), [run])


SETS = {
    "digits": "digits", "banking": "BANKING77, MiniLM", "satellite": "satellite, 6 classes",
    "olive": "olive oils, 9 classes",
}  # fmt: skip


def examples_table() -> Table:
    """Examples of known classes."""
    run = read("add_examples")
    rows = []
    for name, runs in run["sets"].items():
        line = [SETS[name], _mean([own["before"] for own in runs])]
        for count in ("1", "5", "20", "fit again"):
            after, lost = ([own[count][key] for own in runs] for key in ("after", "lost"))
            line.append(f"{_mean(after)}, {_mean(lost)}")
        rows.append(line)
    head = ["rows", "accuracy before, %", "after one example, and lost", "five", "twenty",
            "fit again"]  # fmt: skip
    return Table(f"{markdown(head, rows)}\n\n{source(run)}", [run])


WAYS = ("ours", "logistic regression", "nearest centroid")
# Fine-tuned encoders, at 5 examples (FastFit, Yehudai and Bandel 2024) and 10 (CPFT, Zhang et al. 2021).
FEW_PUBLISHED = {
    ("banking", 5): "82.4 (FastFit)",
    ("banking", 10): "87.2 (CPFT)",
    ("clinc", 10): "94.2 (CPFT)",
}


def few_examples_table() -> Table:
    """Few examples of each class."""
    run = read("few_examples")
    rows = []
    for own in run["results"]:
        texts = own["set"].partition("-")[0], own["shots"]
        found = [_mean([each[way] for each in own["accuracy"]]) for way in WAYS]
        line = [NAMES[own["set"]], str(own["shots"]), *found, FEW_PUBLISHED.get(texts, "–")]
        rows.append(line)
    head = ["vectors", "examples", "`DAMClassifier`, %", "logistic regression, tuned C", "nearest centroid",
            "published, other encoder"]  # fmt: skip
    return Table(f"{markdown(head, rows)}\n\n{source(run)}", [run])


def _by_set(run: Json) -> dict[str, list[Json]]:
    """The runs of each set of vectors, named; empty ones were refused."""
    sets = dict.fromkeys(own["set"] for own in run["results"])
    return {NAMES[n]: [own for own in run["results"] if own["set"] == n] for n in sets}


def resplit_table() -> Table:
    """Log-loss on the split of a set and on random ones."""
    run = read("resplit")
    rows = []
    for name, runs in _by_set(run).items():
        line = [name]
        for some in (
            [own for own in runs if not own["seed"]],
            [own for own in runs if own["seed"]],
        ):
            line += [_mean([own[way]["log_loss"] for own in some], 1, 3) for way in WAYS[:2]]
        rows.append(line)
    head = ["vectors", "own split: `DAMClassifier`", "logistic regression", "random splits: `DAMClassifier`",
            "logistic regression"]  # fmt: skip
    return Table(f"{markdown(head, rows)}\n\n{source(run)}", [run])


def promises_table() -> Table:
    """What was promised, and what came of it."""
    run = read("promises")
    rows = []
    for name, values in run["results"].items():
        found = sorted(value for value in values if value is not None)
        cut = [found[round(q * (len(found) - 1))] for q in (0.05, 0.5, 0.95)]
        rows.append([name, *(f"{100 * value:.1f}" for value in cut)])
    head = ["promise", "5% of the repetitions are below", "median", "95% are below"]
    return Table(f"{markdown(head, rows)}\n\n{source(run)}", [run])


TABLES = {
    "open world few examples": few_examples_table,
    "open world resplit": resplit_table,
    "open world promises": promises_table,
    "open world known": known_table,
    "open world open": open_table,
    "open world new class": new_class_table,
    "open world examples": examples_table,
}

"""The tables on two layers, on operands in bfloat16 and on processors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from research.pages.marks import markdown
from research.pages.stored import average, conditional_runs, device, read, source
from research.report import Json

SETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
_PROCESSORS = ("processor_amx", "processor_arm")
_AUTO = "bfloat16"  # what "auto" takes on a GPU


def _line(name: str, found: Callable[[str], Iterable[float]]) -> list[str]:
    """Means of both data sets; nothing where there is none."""
    means = [list(found(data)) for data in SETS]
    return [name, *(f"{statistics.fmean(values):.2f}%" if values else "" for values in means)]


def _accuracies(rows: Iterable[Json], **wanted: object) -> list[float]:
    return [r["accuracy"] for r in rows if all(r.get(k) == v for k, v in wanted.items())]


def two_layers_table() -> str:
    peers, ours = read("patches_peers"), conditional_runs()
    lines = [
        _line(f"{p} memories{shown}", lambda d, p=p, end=end: _accuracies(
            ours.get(d + end, {"fits": []})["fits"], memories=p))
        for end, shown in (("-patches", ", two layers"), ("", " of pixels")) for p in (1000, 100)
    ]  # fmt: skip
    for name, shown in {
        "convolutional network": "convolutional network, two convolutions and two dense layers",
        "SVM, radial": "SVM, radial kernel, pixels of 10,000 rows",
        "3 nearest neighbors": "3 nearest neighbors, pixels",
    }.items():
        lines.append(_line(shown, lambda d, n=name: _accuracies(peers["results"], data=d, what=n)))
    kept = {r["what"]: r for r in peers["results"]}["convolutional network"]
    told = f"the network made {kept['passes']:.0f} passes in that time"
    commands = "\n".join(dict.fromkeys(map(source, (*ours.values(), peers))))
    return f"{markdown(['', *SETS.values()], lines)}\n\n{commands}; {told}"


def beyond_table() -> str:
    """What else was tried, judged by the last training rows, beside the same without it."""
    study, deeper = read("patches_study_1000"), read("patches_deeper")
    base = [r for r in study["results"] if r["patch_memories"] == 160]
    lines = [_line("1000 memories, three seeds (one of Fashion-MNIST)",
                   lambda d: _accuracies(base, data=d, what="defaults"))]  # fmt: skip
    lines.append(_line("256 patch memories", lambda d: _accuracies(
        study["results"], data=d, patch_memories=256, what="defaults")))  # fmt: skip
    lines.append(_line("1000 memories, another run, one seed", lambda d: _accuracies(
        deeper["results"], data=d, what="two layers", memories=1000)))  # fmt: skip
    for what, memories, shown in (
        ("two layers, at once", 4000, "4000 memories"),
        (
            "two layers, shifted rows too",
            1000,
            "rows shifted by a pixel as well, five times as many",
        ),
        ("three layers", 1000, "an encoder on top of another"),
    ):
        lines.append(_line(shown, lambda d, w=what, m=memories: _accuracies(
            deeper["results"], data=d, what=w, memories=m)))  # fmt: skip
    commands = "\n".join(map(source, (study, deeper)))
    return f"{markdown(['', *SETS.values()], lines)}\n\n{commands}"


def labels_table() -> str:
    """Few labels of MNIST: means of the seeds that each line has."""
    run = read("patches_labels")
    kinds = {
        "two layers": "two layers, those rows",
        "one layer": "pixels, those rows",
        "SVM, radial": "SVM, radial kernel, pixels",
        "3 nearest neighbors": "3 neighbors, pixels",
        "others without, two layers": "two layers, all other rows without label",
    }
    counts = (10, 100, 1000)
    lines = []
    for kind, shown in kinds.items():
        found = [_accuracies(run["results"], what=f"{n} labels per class, {kind}") for n in counts]
        lines.append([shown, *(f"{statistics.fmean(v):.2f}%" if v else "" for v in found)])
    return f"{markdown(['labels per class', *map(str, counts)], lines)}\n\n{source(run)}"


def precision_passes() -> str:
    run, lines = read("precision_gpu"), []
    both = {(r["features"], r["memories"], r["precision"]): r for r in run["passes"]}
    for (n, p, precision), r in both.items():
        if precision != _AUTO:
            continue
        full = both[n, p, "float32"]
        lines.append([
            f"{r['rows']:,} x {n}", f"{p:,}",
            *(f"{v['milliseconds']:.3g}" for v in (full, r)),
            f"{full['milliseconds'] / r['milliseconds']:.1f}",
            *(f"{v['tflop_per_second']:.3g}" for v in (full, r)),
            f"{r['extra_megabytes']:.0f}",
        ])  # fmt: skip
    head = ["rows", "memories", "float32, ms", "bfloat16, ms", "times as fast",
            "float32, TFLOP/s", "bfloat16, TFLOP/s", "extra memory, MB"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


def precision_fits() -> str:
    runs = [read("precision_gpu"), read("precision_fits_joint")]
    later = runs[1]["fits"]
    again = {(r["data"], r["what"]) for r in later}
    fits = [r for r in runs[0]["fits"] if (r["data"], r["what"]) not in again] + later
    lines = []
    for data, shown in SETS.items():
        for what in dict.fromkeys(r["what"] for r in runs[0]["fits"]):
            own = [r for r in fits if r["data"] == data and r["what"] == what]
            each = {p: [r for r in own if r["precision"] == p] for p in ("float32", _AUTO)}
            lines.append([
                shown, what,
                *(f"{average(rows, 'accuracy'):.2f} ± {statistics.stdev(_accuracies(rows)):.2f}"
                  for rows in each.values()),
                *(f"{average(rows, 'seconds'):.2f}" for rows in each.values()),
            ])  # fmt: skip
    head = ["data", "classifier", "float32, %", "bfloat16, %", "float32, s", "bfloat16, s"]
    commands = "\n".join(map(source, runs))
    return f"{markdown(head, lines)}\n\n{commands}"


def precision_models() -> str:
    run = read("precision_models")
    lines = [
        [r.get("objective", "joint"), f"{r['memories']:,}", r.get("passes", ""),
         r.get("rows_per_step", ""),
         f"{statistics.fmean(r['accuracies']):.2f} ± {statistics.stdev(r['accuracies']):.2f}",
         *(f"{found(r['milliseconds']):.3g}" for found in (statistics.median, min))]
        for r in run["models"]
    ]  # fmt: skip
    head = [
        "objective",
        "memories",
        "passes",
        "rows per step",
        "accuracy, %",
        "median, ms",
        "fastest, ms",
    ]
    return f"{markdown(head, lines)}\n\n{source(run)}"


def precision_errors() -> str:
    run = read("precision_gpu")
    lines = [
        [r["features"], f"{r['memories']:,}", f"{r['beta_eff']:g}",
         *(f"{r[key]:.1e}" for key in ("log_joint", "w_bar", "p_bar", "loss"))]
        for r in run["errors"] if r["precision"] == _AUTO
    ]  # fmt: skip
    head = ["features", "memories", "ςβ", "log_joint, largest", "w̄, relative", "p̄, relative",
            "mean loss"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


def processor_passes() -> str:
    runs, lines = [read(name) for name in _PROCESSORS], []
    for run in runs:
        found = run["passes"]
        lines += [
            [device(run), f"{found['rows']:,} x {found['features']}", name,
             f"{r['milliseconds']:,.0f}", f"{r['gflop_per_second']:,.0f}",
             f"{r['products_share']:.0%}", f"{found['kmeans_milliseconds']:,.0f}",
             f"{r['ratio_to_kmeans']:.2f}"]
            for name, r in found.items() if isinstance(r, dict)
        ]  # fmt: skip
    head = ["processor", "rows", "precision", "pass, ms", "GFLOP/s", "the two products alone",
            "iteration of k-means, ms", "pass in units of it"]  # fmt: skip
    commands = "\n".join(map(source, runs))
    return f"{markdown(head, lines)}\n\n{commands}"


def processor_fits() -> str:
    runs = [read(name) for name in _PROCESSORS]
    lines = [
        [device(run), f"{r['rows']:,}", r["precision"], f"{r['seconds']:.1f}",
         f"{r['accuracy']:.2f}",
         *(f"{share:.0%}" for share in r["shares"].values())]
        for run in runs for r in run["profile"]
    ]  # fmt: skip
    kinds = runs[0]["profile"][0]["shares"]
    return markdown(["processor", "rows", "precision", "fit, s", "accuracy, %", *kinds], lines)


TABLES = {
    "two layers": two_layers_table,
    "beyond two layers": beyond_table,
    "labels of two layers": labels_table,
    "precision passes": precision_passes,
    "precision fits": precision_fits,
    "precision models": precision_models,
    "precision errors": precision_errors,
    "processor passes": processor_passes,
    "processor fits": processor_fits,
}

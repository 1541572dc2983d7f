"""The tables of the benchmarks, from the stored results."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from research.benchmarks.conditional import CASES
from research.pages.marks import markdown
from research.pages.stored import (
    MINUS,
    RESULTS,
    Values,
    collect,
    command,
    device,
    grouped,
    of,
    read,
    source,
    table,
)
from research.paper.experiment import finished_folders, read_result
from research.report import STORED, Json

DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
LEARNED = "varsigma=0.25"  # the last setting of Table 1
AUTO = "bfloat16"  # what "auto" takes on a GPU


def table1() -> tuple[Json, dict[str, Json]]:
    """The stored run of Table 1, and what each solver reaches at its last setting."""
    run = read_result(finished_folders(STORED / "paper", "table1")[-1])
    rows = [row for row in run["measured"]["rows"] if row["case"] == LEARNED]
    return run, {row["solver"]: row for row in grouped(rows, "solver")}


def growth_runs() -> list[Json]:
    """Every stored growth, smallest final width first; `name` and `solver` of each."""
    runs = [read(path.stem) for path in RESULTS.glob("growth_*.json")]
    for run in runs:
        run["solver"] = "SGD" if "--solver sgd" in run["command"] else "fixed point"
        run["width"] = run["rows"][0]["memories"]
        run["name"] = f"{run['rows'][0]['levels'][0]['memories']} → {run['width']}"
    return sorted(runs, key=lambda run: (run["solver"], run["width"]))


def conditional_runs() -> dict[str, Json]:
    """The data sets that are measured, in the order of the study."""
    found = {name: RESULTS / f"conditional_{name}.json" for name in CASES}
    return {name: read(path.stem) for name, path in found.items() if path.exists()}


# --- benchmarks.md


def summary_table() -> str:
    """One line per claim, and the commands behind them."""
    paper, by_solver = table1()
    claims = [
        (f"1000 memories, {name}", by_solver[solver]["accuracy"], by_solver[solver]["passes"],
         [paper])
        for name, solver in (("the paper's SGD", "sgd"), ("fixed point", "fixed-point"))
    ]  # fmt: skip
    kinds: dict[str, list[Json]] = {}
    for run in growth_runs():
        kinds.setdefault(f"grown {run['name']}, {run['solver']}", []).append(run)
    for name, runs in kinds.items():
        rows = collect(row for run in runs for row in run["rows"])
        claims.append((name, rows["accuracy"], rows["cost"]["total"], runs))
    commands = list(dict.fromkeys(run["command"] for *_, runs in claims for run in runs))
    lines = [
        [name, f"{accuracy:percent}, {len(accuracy)} seed{'s' if len(accuracy) > 1 else ''}",
         f"{float(f'{cost:.1f}'):g} passes",
         " ".join(f"({commands.index(run['command']) + 1})" for run in runs)]
        for name, accuracy, cost, runs in claims
    ]  # fmt: skip
    listed = "\n".join(f"{text}  # ({k})" for k, text in enumerate(commands, start=1))
    hidden = "<details><summary>The commands</summary>"
    head = ["MNIST", "test accuracy", "cost", "command"]
    return f"{markdown(head, lines)}\n\n{hidden}\n\n```bash\n{listed}\n```\n\n</details>"


def growth_table() -> str:
    runs = growth_runs()
    columns = {
        "solver": "{solver}", "memories": "{name}", "seeds": "{n}",
        "test accuracy": "{all[accuracy]:percent}",
        "cost in full passes": "{all[cost][total]:.2f}",
        "of it curvature": "{all[cost][curvature]:.2f}",
    }  # fmt: skip
    rows = [run | {"all": collect(run["rows"]), "n": len(run["rows"])} for run in runs]
    listed = "\n".join(f"- {command(run)}, {device(run)}" for run in runs)
    return f"{table(columns, rows)}\n\nIn this order:\n\n{listed}"


def label_split_table() -> str:
    """Growth at fixed class weights, with classes shared out, and with δ sought as well."""
    run = read("label_splits")
    settings = {"learned": ("ς = 0.25, β learned", 64), "beta=6": ("ς = 1, β = 6", 16)}
    ways = {(False, False): "fixed class weights", (True, False): "classes shared out",
            (True, True): "and δ sought"}  # fmt: skip
    rows = []
    for own in grouped(run["rows"], "data", "setting", "classes", "search"):
        setting, size = settings[own["setting"]]
        last = collect(levels[-1] for levels in own["levels"])
        sizes = sorted(set(last["memories"]))
        middle = [
            v["accuracy"] for levels in own["levels"] for v in levels if v["memories"] == size
        ]
        splits = [split for splits in own["splits"] for split in splits if split["n_split"]]
        rows.append(own | {
            "last": last, "setting": setting, "way": ways[own["classes"], own["search"]],
            "sizes": f"{own['levels'][0][0]['memories']} → {'–'.join(map(str, sizes[:: len(sizes) - 1 or 1]))}",
            "middle": f"{Values(middle):percent}" or "never there",
            "raised": "" if own["search"] else sum(split["delta"] < 0.25 for split in splits),
        })  # fmt: skip
    order = {"mnist": 0, "fashion-mnist": 1}
    rows.sort(key=lambda row: (order[row["data"]], row["setting"] != settings["learned"][0]))
    columns = {
        "data": "{data}", "setting": "{setting}", "splits": "{way}", "memories": "{sizes}",
        "accuracy at 64 or 16": "{middle}", "at the end": "{last[accuracy]:percent}",
        "cost in full passes": "{last[cost]:.1f}", "splits made smaller": "{raised}",
    }  # fmt: skip
    return table(columns, rows, run)


def conditional_table() -> str:
    """The conditional objective on each data set, mean and range over the seeds."""
    runs = conditional_runs()
    rows = [
        row | {"data": _kind(name), "all": row["encoding_seconds"] + row["seconds"]}
        for name, run in runs.items() for row in run["results"]
    ]  # fmt: skip
    columns = {
        "data": "{data}", "memories": "{memories}",
        "test accuracy": "{accuracy:.2f}% ({lowest:.2f}–{highest:.2f})",
        "log-loss": "{log_loss:.3f}", "class of the nearest memory": "{fidelity:.1f}%",
        "seeds": "{seeds}", "seconds": "{all:.2g}",
    }  # fmt: skip
    return table(columns, rows, *runs.values())


def gpu_cost_table() -> str:
    """Seconds of conditional fits of large data."""
    runs = conditional_runs()
    rows = [row | {key: run[key] for key in ("data", "rows", "device")}
            | {"all": row["encoding_seconds"] + row["seconds"], "kind": _kind(name)}
            for name, run in runs.items() for row in run["results"]]  # fmt: skip
    columns = {"data": "{kind}", "rows": "{rows:,}", "memories": "{memories:,}", "fit, s": "{all:.2g}",
               "machine": "{device}"}  # fmt: skip
    return table(columns, rows)


def _kind(name: str) -> str:
    names = DATASETS | {f"{k}-patches": f"{v}, patches" for k, v in DATASETS.items()}
    return names.get(name, "BANKING77, MiniLM vectors")


def robust_table() -> str:
    """Fits with default settings on small synthetic problems."""
    if not (RESULTS / "robust_fits.json").exists():
        return "Not measured yet: `python -m research robust_fits --jobs 2`."
    run = read("robust_fits")
    found, noise = run["summary"], run["summary"]["noise_log_loss_over_chance"]
    lines = {
        "fits": f"{found['fits']} on {found['problems']} problems",
        "mean accuracy relative to the better baseline": f"{Values([100 * found['mean_gain']]):signed}",
        "fits more than five points below it": f"{found['share_behind']:.1%}",
        "fits below the median of their problem": str(len(found["below_median"])),
        "log-loss on noise labels, in units of chance": f"{noise['mean']:.3f} (at most {noise['highest']:.3f})",
    }  # fmt: skip
    return f"{markdown(['', ''], list(lines.items()))}\n\n{source(run)}"


def recall_table() -> str:
    run = read("recall")
    runs, rows = run["runs"], []
    for kind, text in (("hidden", "{share:.0%} of the pixels hidden"),
                       ("noise", "noise, its length {length:g} times the digit's")):  # fmt: skip
        for cases in zip(*(r[kind] for r in runs), strict=True):
            case = collect(cases)
            inside = case.get("fixed-point", case)
            held = [case.get(way, {}).get("completed", "") for way in ("fixed-point", "gradient")]
            rows.append([text.format(**cases[0]), case["damaged"], *held, inside["recalled"]])
    lines = [[line[0], *(f"{v:percent}" if v else "" for v in line[1:])] for line in rows]
    first = ["none", f"{collect(runs)['intact']:percent}", "", "", ""]
    head = ["damage", "right as it is", "known pixels held, fixed point",
            "known pixels held, gradient", "nothing held, fixed point"]  # fmt: skip
    return f"{markdown(head, [first, *lines])}\n\n{source(run)}"


def missing_table() -> str:
    run = read("blanks")
    rows = [found | found["mean"] | {"set": name} for name, found in run["sets"].items()]
    columns = {
        "set": "{set}, {rows} × {features}", "accuracy, averaged over": "{own[accuracy]:.1%}",
        "accuracy, means filled in": "{mean[accuracy]:.1%}",
        "log-loss, averaged over": "{own[log_loss]:.3f}",
        "log-loss, means filled in": "{mean[log_loss]:.3f}",
    }  # fmt: skip
    return table(columns, rows, run)


def novelty_table() -> str:
    run = read("novelty")
    scores = collect(run["runs"])["auroc"]
    kinds = [{"name": DATASETS.get(k, k), "auroc": v["novelty_score"]} for k, v in scores.items()]
    rates = [collect(cases) for cases in zip(*(r["reject"] for r in run["runs"]), strict=True)]
    shares = {"digits rejected": "digits rejected", "clothes rejected": "clothes rejected",
              "errors among digits kept": "error of digits kept"}  # fmt: skip
    rows = [
        {"rate": r["rate"][0]}
        | {name: Values(100 * v for v in r[key]) for name, key in shares.items()}
        for r in rates
    ]
    columns = {"rate asked for": "{rate:.1%}"} | {name: f"{{{name}:percent}}" for name in shares}
    first = table({"MNIST test digits against": "{name}", "AUROC": "{auroc:.3f}"}, kinds)
    return f"{first}\n\n{table(columns, rows, run)}"


def clusters_table() -> str:
    """Agreement with the classes compared with k-means on the same rows, and the numbers found."""
    run = read("clusters")
    rows = []
    for found in run["sets"]:
        runs = found["runs"]
        best = max(statistics.fmean(r["k_means"][k] for r in runs) for k in runs[0]["k_means"])
        rows.append(collect(runs) | {
            "name": found["name"], "rows": found["rows"], "classes": found["classes"], "best": best,
            "same": Values(r["k_means"][r["normalize"]] for r in runs), "number": runs[0]["memories"],
            "numbers": ", ".join(str(r["found"]) for r in runs),
        })  # fmt: skip
    columns = {
        "data": "{name}", "rows": "{rows}", "normalization": "{normalize}", "memories": "{number}",
        "`DAMClusterer`": "{agreement:.3f}", "spherical k-means": "{spherical_k_means:.3f}",
        "k-means, same rows": "{same:.3f}", "k-means, best normalization": "{best:.3f}",
        "classes": "{classes}", "found": "{numbers}",
    }  # fmt: skip
    return table(columns, rows, run)


def calibration_table() -> str:
    """Both readings of every set, and their means."""
    run = read("calibration")
    rows = [s | {"data": f"{s['name']}, {s['rows']} × {s['features']}"} for s in run["sets"]]
    rows.append(collect(run["sets"]) | {"data": "mean", "classes": ""})
    columns = {
        "data": "{data}", "classes": "{classes}", "log-loss before": "{before[log_loss]:.3f}",
        "log-loss after": "{after[log_loss]:.3f}",
        "calibration error before": "{before[calibration_error]:.3f}",
        "calibration error after": "{after[calibration_error]:.3f}",
        "accuracy before": "{before[accuracy]:.1%}", "accuracy after": "{after[accuracy]:.1%}",
    }  # fmt: skip
    return table(columns, rows, run)


# --- two layers, precision, processors


def gpu_parts_table() -> str:
    """How much longer fits take without a part, over all cases."""
    run, rows = read("gpu_parts"), []
    cases = run["seconds"]
    for part in [name for name in cases[0] if name not in ("case", "first", "nothing")]:
        ratios = sorted((case[part] / case["nothing"], case["case"]) for case in cases)
        middle = statistics.median(ratio for ratio, _ in ratios)
        rows.append({"part": part, "least": ratios[0][0], "middle": middle, "most": ratios[-1]})
    columns = {
        "left out": "{part}", "least": "{least:.2f}", "median": "{middle:.2f}",
        "largest": "{most[0]:.2f}", "largest for": "{most[1]}",
    }  # fmt: skip
    return table(columns, rows, run)


def _means(rows: list[Json], lines: dict[str, Json], head: list[str], key: str) -> str:
    """A line for each name with the mean accuracy of the rows that match, a column per `key`."""
    found = []
    for name, where in lines.items():
        cells = []
        for column in head[1:]:
            wanted = where | {key: column} if key == "data" else {"what": where[column]}
            values = Values(r["accuracy"] for r in rows if wanted.items() <= r.items())
            cells.append(f"{values:.2f}%" if values else "")
        found.append([name, *cells])
    return markdown([DATASETS.get(name, name) for name in head], found)


def two_layers_table() -> str:
    peers, ours = read("patches_peers"), conditional_runs()
    rows = [r for r in peers["results"] if r["what"] != "two layers"]
    for name, run in ours.items():
        rows += [f | {"data": name.removesuffix("-patches"), "what": name.endswith("-patches")}
                 for f in run["fits"]]  # fmt: skip
    lines: dict[str, Json] = {
        f"{p} memories{shown}": {"what": layers, "memories": p}
        for layers, shown in ((True, ", two layers"), (False, " of pixels")) for p in (1000, 100)
    }  # fmt: skip
    lines |= {
        "convolutional network, two convolutions and two dense layers": {
            "what": "convolutional network"
        },
        "SVM, radial kernel, pixels of 10,000 rows": {"what": "SVM, radial"},
        "3 nearest neighbors, pixels": {"what": "3 nearest neighbors"},
    }
    passes = next(r["passes"] for r in rows if r["what"] == "convolutional network")
    listed = "\n".join(dict.fromkeys(map(source, (*ours.values(), peers))))
    told = f"the network made {passes:.0f} passes in that time"
    return f"{_means(rows, lines, ['', *DATASETS], 'data')}\n\n{listed}; {told}"


def beyond_table() -> str:
    """Variants, evaluated on the last training rows."""
    run = read("patches_deeper")
    lines: dict[str, Json] = {
        "1000 memories": {"what": "two layers"}, "4000 memories": {"what": "two layers, at once"},
        "rows shifted by a pixel as well, five times as many": {"what": "two layers, shifted rows too"},
        "an encoder on top of another": {"what": "three layers"},
    }  # fmt: skip
    return f"{_means(run['results'], lines, ['', *DATASETS], 'data')}\n\n{source(run)}"


def labels_table() -> str:
    """Few labels of MNIST: means of the seeds that each line has."""
    run, counts = read("patches_labels"), ("10", "100", "1000")
    kinds = {
        "two layers, those rows": "two layers", "pixels, those rows": "one layer",
        "SVM, radial kernel, pixels": "SVM, radial", "3 neighbors, pixels": "3 nearest neighbors",
        "two layers, all other rows without label": "others without, two layers",
    }  # fmt: skip
    lines = {k: {n: f"{n} labels per class, {what}" for n in counts} for k, what in kinds.items()}
    return (
        f"{_means(run['results'], lines, ['labels per class', *counts], 'what')}\n\n{source(run)}"
    )


def precision_passes() -> str:
    run = read("precision_gpu")
    full = {(r["features"], r["memories"]): r for r in run["passes"] if r["precision"] == "float32"}
    rows = [
        r | {"full": (f := full[r["features"], r["memories"]]),
             "times": f["milliseconds"] / r["milliseconds"]}
        for r in run["passes"] if r["precision"] == AUTO
    ]  # fmt: skip
    columns = {
        "rows": "{rows:,} x {features}", "memories": "{memories:,}",
        "float32, ms": "{full[milliseconds]:.3g}", "bfloat16, ms": "{milliseconds:.3g}",
        "times as fast": "{times:.1f}", "float32, TFLOP/s": "{full[tflop_per_second]:.3g}",
        "bfloat16, TFLOP/s": "{tflop_per_second:.3g}", "extra memory, MB": "{extra_megabytes:.0f}",
    }  # fmt: skip
    return table(columns, rows, run)


def precision_fits() -> str:
    first, later = read("precision_gpu"), read("precision_fits_joint")
    kinds = {(r["data"], r["what"]): {} for r in first["fits"]}
    for run in (first, later):  # a later measurement replaces the first
        for row in grouped(run["fits"], "data", "what", "precision"):
            kinds[row["data"], row["what"]][row["precision"]] = row
    rows = [{"data": DATASETS[d], "what": w, "full": by["float32"], "auto": by[AUTO]}
            for (d, w), by in kinds.items()]  # fmt: skip
    columns = {
        "data": "{data}", "classifier": "{what}", "float32, %": "{full[accuracy]:±.2f}",
        "bfloat16, %": "{auto[accuracy]:±.2f}", "float32, s": "{full[seconds]:.2f}",
        "bfloat16, s": "{auto[seconds]:.2f}",
    }  # fmt: skip
    return table(columns, rows, first, later)


def precision_models() -> str:
    run = read("precision_models")
    rows = [
        {"objective": "joint", "passes": "", "rows_per_step": ""} | r
        | {key: Values(r[key]) for key in ("accuracies", "milliseconds")}
        for r in run["models"]
    ]  # fmt: skip
    columns = {
        "objective": "{objective}", "memories": "{memories:,}", "passes": "{passes}",
        "rows per step": "{rows_per_step}", "accuracy, %": "{accuracies:±.2f}",
        "median, ms": "{milliseconds:median.3g}", "fastest, ms": "{milliseconds:min.3g}",
    }  # fmt: skip
    return table(columns, rows, run)


def processor_passes() -> str:
    runs = [read(name) for name in ("processor_amx", "processor_arm")]
    rows = [
        {**found, "processor": device(run), "precision": name, "size": run["passes"]}
        for run in runs for name, found in run["passes"].items() if isinstance(found, dict)
    ]  # fmt: skip
    columns = {
        "processor": "{processor}", "rows": "{size[rows]:,} x {size[features]}",
        "precision": "{precision}", "pass, ms": "{milliseconds:,.0f}",
        "GFLOP/s": "{gflop_per_second:,.0f}", "the two products alone": "{products_share:.0%}",
        "iteration of k-means, ms": "{size[kmeans_milliseconds]:,.0f}",
        "pass in units of it": "{ratio_to_kmeans:.2f}",
    }  # fmt: skip
    return table(columns, rows, *runs)


# --- rows in files, texts, processes, theory


def large_table() -> str:
    """One pass over files that memory does not hold, compared with rows in memory."""
    run = read("large_files")
    lines = {
        "rows, features, memories": "{one_pass[rows]:,} × {features}, {memories} memories",
        "files": "{one_pass[gigabytes]:.1f} GB of .npy, {dtype}",
        "resident memory in all, at most": "{one_pass[resident_megabytes]:,.0f} MB",
        "one pass": "{one_pass[pass_seconds]:,.0f} s, {one_pass[rows_per_second]:,.0f} rows per s",
        "throughput in units of that of rows in memory, in one run on {both_ways[rows]:,} rows":
            "{both_ways[throughput_ratio]:.2f}",
    }  # fmt: skip
    filled = [[part.format(**run) for part in line] for line in lines.items()]
    return f"{markdown(['', ''], filled)}\n\n{source(run)}"


def text_table() -> str:
    """Accuracy compared with other models of the same rows."""
    run = read("text")
    ours = {
        kind: f"`DAMClassifier`, {kind}, {run['memories']} memories"
        for kind in ("conditional", "joint")
    }
    rows = [
        r | {"model": ours.get(r["model"], r["model"]),
             "time": f"{r['seconds']:.{0 if r['seconds'] >= 10 else 1}f}"}
        for r in run["models"]
    ]  # fmt: skip
    columns = {"model": "{model}", "accuracy": "{accuracy:.1%}", "seconds": "{time}",
               "resident memory so far, MB": "{resident_megabytes_so_far:,.0f}"}  # fmt: skip
    size = ("{train:,} packages to train on, {test:,} held out, {sections} sections, "
            "{terms:,} terms.")  # fmt: skip
    return f"{size.format(**run)}\n\n{table(columns, rows, run)}"


def terms_table() -> str:
    """The strongest terms of the memories that answer for most rows."""
    lines = [
        [section, "; ".join(", ".join(f"*{term}*" for term in memory) for memory in memories)]
        for section, memories in read("text")["strongest"].items()
    ]
    return markdown(["section", "strongest terms of its memories"], lines)


def ranks_table() -> str:
    run = read("ranks")["passes"]
    rows = [r | {"part": f"{r['exchange']:.1%}" if r["ranks"] > 1 else ""} for r in run["measured"]]
    columns = {"processes": "{ranks}", "pass": "{pass}", "seconds": "{seconds:.2f}",
               "efficiency": "{efficiency:.2f}", "exchange": "{part}"}  # fmt: skip
    size = f"{run['rows']:,} rows, {run['memories']:,} memories, {run['features']} features"
    return f"{table(columns, rows, run)}: {size}, one thread per process"


def theory_table() -> str:
    """Theory and Gibbs sampling at the largest N; N times what is left at every N; computed."""
    run = read("theory_vs_gibbs")
    sizes = sorted({row["n_features"] for row in run["rows"]})
    rows = []
    for k in range(0, len(run["rows"]), len(sizes)):
        group = run["rows"][k : k + len(sizes)]
        size, _, rest = group[-1]["setting"].partition(" ")
        left = [f"{r['n_features'] * r['clamped_difference']:.2f}".translate(MINUS) for r in group]
        computed = group[-1]["correction"]
        rows.append(group[-1] | {
            "size": size.replace("x", " × ") + (f", {rest}" if rest else ""), "left": left,
            "computed": "" if computed is None else f"{computed:.2f}".translate(MINUS),
        })  # fmt: skip
    columns = {
        "*P*\\* × *P*": "{size}", "υ, ϱ, β": "{upsilon:g}, {rho:g}, {beta:g}", "phase": "{phase}",
        "theory": "{theory:.4f}", f"Gibbs, *N* = {sizes[-1]}": "{gibbs:.4f} ± {standard_error:.4f}",
        **{f"*N*Δ, {n}": f"{{left[{k}]}}" for k, n in enumerate(sizes)}, "computed": "{computed}",
    }  # fmt: skip
    return table(columns, rows, run)


def starts_table() -> str:
    """Seconds for many starts of the saddle-point equations."""
    run = read("saddle_starts")
    rows = [r | {"rho": str(r["rho"]).replace("inf", "∞").removesuffix(".0")} for r in run["rows"]]
    columns = {
        "*P*\\* × *P*": "{teacher} × {memories}", "β": "{beta:g}", "ϱ": "{rho}",
        f"seconds, {run['starts']:,} starts": "{seconds:.1f}", "passes, mean": "{passes:.0f}",
        "most": "{most_passes}",
    }  # fmt: skip
    missed = len(rows) * run["starts"] - sum(r["converged"] for r in rows)
    words = f"{missed} starts did not converge" if missed else "every start converged"
    return f"{table(columns, rows, run)}; {words}"


TABLES: dict[str, Callable[[], str]] = {
    "summary": summary_table,
    "growth": growth_table,
    "label splits": label_split_table,
    "conditional": conditional_table,
    "cost gpu": gpu_cost_table,
    "robust fits": robust_table,
    "few labels": of("semi_supervised", "runs", {
        "labels": "{labels}", "labeled rows alone": "{labeled rows alone:percent}",
        "with all 60,000 rows": "{all rows:percent}", "points gained, seed by seed": "{gain:signed}",
    }, "labels"),
    "recall": recall_table,
    "missing values": missing_table,
    "novelty": novelty_table,
    "clusters": clusters_table,
    "calibration": calibration_table,
    "step": of("sgd_step", "milliseconds", {
        "memories": "{memories}", "rows per step": "{batch}", "plain, ms": "{plain:.2f}",
        "replayed, ms": "{in training:.3f}", "two large products alone, ms": "{products:.3f}",
    }),
    "gpu parts": gpu_parts_table,
    "maximize": of("maximize", "rows", {
        "weights": "{weights}", "decades": "{decades:.0f}", "iterations": "{iterations}",
        "ms": "{milliseconds:.1f}", "of the products of a batch": "{ratio:.2f}",
    }),
    "two layers": two_layers_table,
    "beyond two layers": beyond_table,
    "labels of two layers": labels_table,
    "precision passes": precision_passes,
    "precision fits": precision_fits,
    "precision models": precision_models,
    "precision errors": of("precision_gpu", "errors", {
        "features": "{features}", "memories": "{memories:,}", "ςβ": "{beta_eff:g}",
        "log_joint, largest": "{log_joint:.1e}", "w̄, relative": "{w_bar:.1e}",
        "p̄, relative": "{p_bar:.1e}", "mean loss": "{loss:.1e}",
    }, precision=AUTO),
    "processor passes": processor_passes,
    "large files": large_table,
    "text": text_table,
    "text terms": terms_table,
    "stream": of("stream", "runs", {
        "`rehearse`": "{rehearse}", "0–4 before": "{before[0-4]:.2%}", "0–4 after": "{after[0-4]:.2%}",
        "5–9 after": "{after[5-9]:.2%}", "all": "{after[all]:.2%}",
    }),
    "ranks": ranks_table,
    "theory": theory_table,
    "starts": starts_table,
}  # fmt: skip

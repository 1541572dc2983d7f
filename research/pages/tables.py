"""The tables of the benchmarks, from the stored results."""

from __future__ import annotations

import statistics

from research.pages.marks import markdown
from research.pages.stored import (
    RESULTS,
    average,
    command,
    conditional_runs,
    device,
    growth_runs,
    percent,
    read,
    signed,
    solver,
    source,
    sources,
    width,
)
from research.report import Json

PAPER = {"beta=6": 79, "beta=10": 85, "beta=14": 89, "beta=18": 91, "varsigma=0.25": 96}
SETTINGS = {"varsigma=0.25": "β learned, ς = 0.25"} | {
    f"beta={b}": f"β = {b} held, ς = 1" for b in (6, 10, 14, 18)
}

DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}


def summary_table() -> str:
    """The README's: one line per claim, and the commands behind them."""
    sgd, fixed = read("accuracy_table_sgd"), read("accuracy_table_fixed_point")
    learned = [r for r in sgd["rows"] if r["setting"] == "varsigma=0.25"]
    average_passes = round(statistics.fmean(r["passes"] for r in learned))
    passes = fixed["rows"][0]["passes"]
    claims: list[tuple[str, list[Json], float, list[Json]]] = [
        (f"{sgd['memories']} memories, the paper's SGD", learned, average_passes, [sgd]),
        (f"{fixed['memories']} memories, fixed point", fixed["rows"], passes, [fixed]),
    ]
    kinds: dict[str, list[Json]] = {}
    for run in growth_runs():
        first = run["rows"][0]["levels"][0]["memories"]
        kinds.setdefault(f"grown {first} → {width(run)}, {solver(run)}", []).append(run)
    for name, runs in kinds.items():
        rows = [row for run in runs for row in run["rows"]]
        cost = statistics.fmean(r["cost"]["total"] for r in rows)
        claims.append((name, rows, round(cost, 1), runs))
    commands: list[str] = []
    lines = []
    for name, rows, cost, runs in claims:
        numbers = []
        for run in runs:
            commands.append(command(run).strip("`"))
            numbers.append(f"({len(commands)})")
        seeds = f"{len(rows)} seed{'s' if len(rows) > 1 else ''}"
        accuracy = percent(r["accuracy"] for r in rows)
        lines.append([name, f"{accuracy}, {seeds}", f"{cost:g} passes", " ".join(numbers)])
    table = markdown(["MNIST", "test accuracy", "cost", "command"], lines)
    listed = "\n".join(f"{text}  # ({k})" for k, text in enumerate(commands, start=1))
    hidden = "<details><summary>The commands</summary>"
    return f"{table}\n\n{hidden}\n\n```bash\n{listed}\n```\n\n</details>"


def accuracy_table() -> str:
    """Table (accuracy_table) of the paper, and the fixed point beside it."""
    rows = []
    for name in ("sgd", "fixed_point"):
        run = read(f"accuracy_table_{name}")
        for setting in dict.fromkeys(r["setting"] for r in run["rows"]):
            mine = [r for r in run["rows"] if r["setting"] == setting]
            rows.append(
                [
                    {"sgd": "SGD", "fixed_point": "fixed point"}[name],
                    SETTINGS[setting],
                    f"{PAPER[setting]}%" if name == "sgd" else "",
                    percent(r["accuracy"] for r in mine),
                    f"{statistics.fmean(r['passes'] for r in mine):.0f}",
                    f"{statistics.fmean(r['beta'] for r in mine):.4g}",
                    f"{statistics.fmean(r['seconds'] for r in mine):.3g}",
                ]
            )
    head = ["solver", "setting", "paper", "test accuracy", "passes", "final β", "seconds"]
    return (
        markdown(head, rows) + "\n\n" + sources("accuracy_table_sgd", "accuracy_table_fixed_point")
    )


def growth_table() -> str:
    rows = []
    for run in growth_runs():
        cost = [r["cost"] for r in run["rows"]]
        parts = {k: statistics.fmean(c[k] for c in cost) for k in cost[0]}
        rows.append(
            [
                solver(run),
                f"{run['rows'][0]['levels'][0]['memories']} → {width(run)}",
                len(run["rows"]),
                percent(r["accuracy"] for r in run["rows"]),
                f"{parts['total']:.2f}",
                f"{parts['curvature']:.2f}",
            ]
        )
    head = ["solver", "memories", "seeds", "test accuracy", "cost in full passes",
            "of it curvature"]  # fmt: skip
    listed = [f"- {command(run)}, {device(run)}" for run in growth_runs()]
    return markdown(head, rows) + "\n\nIn this order:\n\n" + "\n".join(listed)


def time_table() -> str:
    run = read("training_time")
    rows = []
    for r in run["rows"]:
        rows.append(
            [
                r["memories"],
                "fixed point" if r["solver"] == "fixed-point" else "SGD",
                "split" if r["growth"] else "none",
                f"{r['seconds']:.3g}",
                f"{r['products']:.4g}",
                f"{r['cost_in_full_passes']:.3g}",
                "yes" if r["reached_target"] else "no",
                f"{r['test_accuracy']:.2f}%",
            ]
        )
    head = ["memories", "solver", "growth", "seconds", "products (10⁶)", "in full passes",
            "target reached", "test accuracy"]  # fmt: skip
    return markdown(head, rows) + "\n\n" + sources("training_time")


def exponent_table() -> str:
    rows = [
        [
            "fixed point" if e["solver"] == "fixed-point" else "SGD",
            "split" if e["growth"] else "none",
            f"{min(e['sizes'])}–{max(e['sizes'])}",
            f"{e['products']:.2f}",
            f"{e['seconds']:.2f}",
        ]
        for e in read("training_time")["exponents"]
    ]
    return markdown(["solver", "growth", "memories", "products ∝ P^", "seconds ∝ P^"], rows)


def conditional_table() -> str:
    """The conditional objective on each data set, mean and range over the seeds."""
    runs = conditional_runs()
    if not runs:
        return "Not measured yet: `python -m research conditional --seeds 10 --data DIR`."
    names = DATASETS | {f"{k}-patches": f"{v}, patches" for k, v in DATASETS.items()}
    lines = [
        [names.get(name, "BANKING77, MiniLM vectors"), line["memories"],
         f"{line['accuracy']:.2f}% ({line['lowest']:.2f}–{line['highest']:.2f})",
         f"{line['log_loss']:.3f}", f"{line['fidelity']:.1f}%", line["seeds"],
         f"{line['encoding_seconds'] + line['seconds']:.2g}"]
        for name, run in runs.items() for line in run["results"]
    ]  # fmt: skip
    head = ["data", "memories", "test accuracy", "log-loss", "class of the nearest memory", "seeds",
            "seconds"]  # fmt: skip
    sources = dict.fromkeys(source(run) for run in runs.values())
    return markdown(head, lines) + "\n\n" + "\n".join(sources)


def robust_table() -> str:
    """Fits with default settings on small synthetic problems."""
    if not (RESULTS / "robust_fits.json").exists():
        return "Not measured yet: `python -m research robust_fits --jobs 2`."
    run = read("robust_fits")
    found, noise = run["summary"], run["summary"]["noise_log_loss_over_chance"]
    lines = [
        ["fits", f"{found['fits']} on {found['problems']} problems"],
        ["mean accuracy relative to the better baseline", f"{signed(100 * found['mean_gain'])}"],
        ["fits more than five points below it", f"{found['share_behind']:.1%}"],
        ["fits below the median of their problem", str(len(found["below_median"]))],
        ["log-loss on noise labels, in units of chance",
         f"{noise['mean']:.3f} (at most {noise['highest']:.3f})"],
    ]  # fmt: skip
    return f"{markdown(['', ''], lines)}\n\n{source(run)}"


def few_labels_table() -> str:
    run = read("semi_supervised")
    lines = []
    for labels in dict.fromkeys(r["labels"] for r in run["runs"]):
        rows = [r for r in run["runs"] if r["labels"] == labels]
        some = "gain" in rows[0]
        lines.append(
            [
                labels,
                percent(r["labeled rows alone"] for r in rows) if some else "",
                percent(r["all rows"] for r in rows),
                ", ".join(signed(r["gain"]) for r in rows) if some else "",
            ]
        )
    head = ["labels", "labeled rows alone", "with all 60,000 rows", "points gained, seed by seed"]
    return markdown(head, lines) + "\n\n" + source(run)


def recall_table() -> str:
    run = read("recall")
    runs = run["runs"]
    lines = [["none", percent(r["intact"] for r in runs), "", "", ""]]
    for k, case in enumerate(runs[0]["hidden"]):
        mine = [r["hidden"][k] for r in runs]
        lines.append(
            [
                f"{case['share']:.0%} of the pixels hidden",
                percent(r["damaged"] for r in mine),
                percent(r["fixed-point"]["completed"] for r in mine),
                percent(r["gradient"]["completed"] for r in mine),
                percent(r["fixed-point"]["recalled"] for r in mine),
            ]
        )
    for k, case in enumerate(runs[0]["noise"]):
        mine = [r["noise"][k] for r in runs]
        lines.append(
            [
                f"noise, its length {case['length']:g} times the digit's",
                percent(r["damaged"] for r in mine),
                "",
                "",
                percent(r["recalled"] for r in mine),
            ]
        )
    head = ["damage", "right as it is", "known pixels held, fixed point",
            "known pixels held, gradient", "nothing held, fixed point"]  # fmt: skip
    return markdown(head, lines) + "\n\n" + source(run)


def blanks_table() -> str:
    run = read("blanks")
    lines = []
    for name, found in run["sets"].items():
        own, mean = found["mean"]["own"], found["mean"]["mean"]
        lines.append(
            [
                f"{name}, {found['rows']} × {found['features']}",
                *(f"{way['accuracy']:.1%}" for way in (own, mean)),
                *(f"{way['log_loss']:.3f}" for way in (own, mean)),
            ]
        )
    head = ["set", "accuracy, blanks averaged over", "means filled in",
            "log-loss, blanks averaged over", "means filled in"]  # fmt: skip
    return markdown(head, lines) + "\n\n" + source(run)


def novelty_table() -> str:
    run = read("novelty")
    runs = run["runs"]
    strangers = [
        [
            DATASETS.get(name, name),
            f"{statistics.fmean(r['auroc'][name]['novelty_score'] for r in runs):.3f}",
        ]
        for name in runs[0]["auroc"]
    ]
    lines = []
    for k, case in enumerate(runs[0]["reject"]):
        mine = [r["reject"][k] for r in runs]
        shares = ("digits rejected", "clothes rejected", "error of digits kept")
        lines.append([f"{case['rate']:.1%}"] + [percent(100 * r[s] for r in mine) for s in shares])
    head = ["rate asked for", "digits rejected", "clothes rejected", "errors among digits kept"]
    return (
        markdown(["MNIST test digits against", "AUROC"], strangers)
        + "\n\n" + markdown(head, lines) + "\n\n" + source(run)
    )  # fmt: skip


def clusters_table() -> str:
    """Agreement with the classes beside k-means on the same rows, and the numbers found."""
    run = read("clusters")
    lines = []
    for found in run["sets"]:
        runs = found["runs"]
        ours = statistics.fmean(r["agreement"] for r in runs)
        spherical = statistics.fmean(r["spherical_k_means"] for r in runs)
        same = statistics.fmean(r["k_means"][r["normalize"]] for r in runs)
        best = max(statistics.fmean(r["k_means"][k] for r in runs) for k in runs[0]["k_means"])
        chosen = ", ".join(dict.fromkeys(r["normalize"] for r in runs))
        numbers = ", ".join(str(r["found"]) for r in runs)
        lines.append(
            [
                found["name"], str(found["rows"]), chosen, str(runs[0]["memories"]), f"{ours:.3f}",
                f"{spherical:.3f}", f"{same:.3f}", f"{best:.3f}", str(found["classes"]), numbers,
            ]
        )  # fmt: skip
    head = [
        "data", "rows", "normalization", "memories", "`DAMClusterer`", "spherical k-means",
        "k-means, same rows", "k-means, best normalization", "classes", "found",
    ]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


def calibration_table() -> str:
    """Both readings of every set, and their means."""
    run = read("calibration")
    ways = ("before", "after")
    lines = [
        [
            f"{s['name']}, {s['rows']} × {s['features']}", str(s["classes"]),
            *(f"{s[way]['log_loss']:.3f}" for way in ways),
            *(f"{s[way]['calibration_error']:.3f}" for way in ways),
            *(f"{s[way]['accuracy']:.1%}" for way in ways),
        ]
        for s in run["sets"]
    ]  # fmt: skip
    means = [
        form.format(statistics.fmean(s[way][figure] for s in run["sets"]))
        for figure, form in (
            ("log_loss", "{:.3f}"), ("calibration_error", "{:.3f}"), ("accuracy", "{:.1%}")
        )
        for way in ways
    ]  # fmt: skip
    head = ["data", "classes", "log-loss before", "after", "calibration error before", "after",
            "accuracy before", "after"]  # fmt: skip
    return f"{markdown(head, [*lines, ['mean', '', *means]])}\n\n{source(run)}"


def step_table() -> str:
    run = read("sgd_step")
    lines = [
        [
            r["memories"],
            r["batch"],
            f"{r['plain']:.2f}",
            f"{r['in training']:.3f}",
            f"{r['plain'] / r['in training']:.1f}",
            f"{r['products']:.3f}",
        ]
        for r in run["milliseconds"]
    ]
    head = ["memories", "rows per step", "plain, ms", "replayed, ms", "times faster",
            "two large products alone, ms"]  # fmt: skip
    return markdown(head, lines) + "\n\n" + source(run)


def gpu_parts_table() -> str:
    run = read("gpu_parts")
    cases = run["seconds"]
    lines = []
    for part in [name for name in cases[0] if name not in ("case", "first", "nothing")]:
        ratios = sorted((case[part] / case["nothing"], case["case"]) for case in cases)
        middle = statistics.median(ratio for ratio, _ in ratios)
        most, where = ratios[-1]
        lines.append([part, f"{ratios[0][0]:.2f}", f"{middle:.2f}", f"{most:.2f}", where])
    head = ["left out", "least", "median", "largest", "largest for"]
    return markdown(head, lines) + "\n\n" + source(run)


def maximize_table() -> str:
    run = read("maximize")
    lines = [
        [
            r["weights"],
            f"{r['decades']:.0f}",
            r["iterations"],
            f"{r['milliseconds']:.1f}",
            f"{r['ratio']:.2f}",
        ]
        for r in run["rows"]
    ]
    head = ["weights", "decades", "iterations", "ms", "of the products of a batch"]
    return markdown(head, lines) + "\n\n" + source(run)


def unsupervised_table() -> str:
    run = read("unsupervised_pass")
    m = run["measured"]
    kinds = [
        ("one exact pass", "seconds_pass", "times_faster_processor_time"),
        *(
            (f"an epoch of SGD, batches of {rows}", f"seconds_sgd_epoch_{rows}",
             f"sgd_{rows}_times_faster_processor_time")
            for rows in (1000, 4000)
        ),
    ]  # fmt: skip
    lines = [[name, f"{m[seconds]:.1f}", f"{m[times]:.1f}"] for name, seconds, times in kinds]
    theirs = run["authors"]
    remark = (
        f"{m['rows']:,} patches of {m['features']} pixels. Peak memory "
        f"{m['gigabytes_peak']:.2f} GB, interpreter, reading and cutting included. The authors' "
        f"epoch took {theirs['seconds']:g} s and {theirs['gigabytes']:g} GB where large products "
        f"run at {theirs['gflop_per_second']:g} GFLOP/s; they ran at "
        f"{m['gflop_per_second_products']:.0f} GFLOP/s here."
    )
    head = ["", "seconds", "times faster than the authors' epoch, at equal speed of products"]
    return markdown(head, lines) + "\n\n" + remark + "\n\n" + source(run)


def abilities_table() -> str:
    """The README's: what there is, how it is called, what it came to on MNIST."""
    fixed, grown = read("accuracy_table_fixed_point"), read("growth_fixed_point_8192")
    first, few = grown["rows"][0]["levels"][0]["memories"], read("semi_supervised")["runs"]
    fewest = [r for r in few if r["labels"] == min(r["labels"] for r in few)]
    hidden = [max(r["hidden"], key=lambda h: h["share"]) for r in read("recall")["runs"]]
    completed = statistics.fmean(h["fixed-point"]["completed"] for h in hidden)
    strange = read("novelty")["runs"]
    auroc = statistics.fmean(r["auroc"]["fashion-mnist"]["novelty_score"] for r in strange)
    sharper = [
        f"{line['memories']} memories: {line['accuracy']:.1f}%"
        for line in conditional_runs().get("mnist", {"results": []})["results"]
    ]
    lines = [
        [
            "[classify](docs/getting-started.md), and say why",
            "`fit`, `predict`, `explain`",
            f"{fixed['memories']} memories, {fixed['rows'][0]['passes']} passes: "
            f"{average(fixed['rows'], 'accuracy'):.1f}%",
        ],
        [
            "[higher accuracy](docs/user-guide.md#objective), memories less prototypical",
            '`objective="conditional"`',
            "; ".join(sharper),
        ],
        [
            "learn from [few labels](docs/user-guide.md#few-labels)",
            "`unlabeled=-1`",
            f"{fewest[0]['labels']} labels: {average(fewest, 'all rows'):.1f}%, without the other "
            f"rows {average(fewest, 'labeled rows alone'):.1f}%",
        ],
        [
            "[recall](docs/user-guide.md#recall) what is hidden or damaged",
            "`recall`, NaN is unknown",
            f"{hidden[0]['share']:.0%} of the pixels hidden: {completed:.1f}% right, as damaged "
            f"{average(hidden, 'damaged'):.1f}%",
        ],
        [
            "[reject](docs/user-guide.md#novelty-and-rejection) what it does not know",
            "`calibrate`, `predict_or_reject`",
            f'AUROC {auroc:.3f} against Fashion-MNIST, `normalize="center", varsigma=0.25`',
        ],
        [
            "[grow](docs/user-guide.md#growth) by splitting memories",
            "`growth=16`, `interpret.at_level`",
            f"{first} → {width(grown)} memories: {average(grown['rows'], 'accuracy'):.1f}%, every "
            "smaller model on the way",
        ],
        [
            "find classes [without labels](docs/user-guide.md#clustering-without-labels)",
            "`DAMClusterer`",
            "",
        ],
    ]
    return markdown(["it can", "by", "on MNIST, test rows"], lines)


def label_split_table() -> str:
    """Growth at fixed class weights, with classes shared out, and with δ sought as well."""
    run, rows = read("label_splits"), []
    settings = {"learned": "ς = 0.25, β learned", "beta=6": "ς = 1, β = 6"}
    ways = {
        (False, False): "fixed class weights",
        (True, False): "classes shared out",
        (True, True): "and δ sought",
    }
    for data in dict.fromkeys(row["data"] for row in run["rows"]):
        for setting, title in settings.items():
            for (classes, search), way in ways.items():
                mine = [
                    row for row in run["rows"]
                    if (row["data"], row["setting"], row["classes"], row["search"])
                    == (data, setting, classes, search)
                ]  # fmt: skip
                last = [row["levels"][-1] for row in mine]
                middle = [
                    level["accuracy"] for row in mine for level in row["levels"]
                    if level["memories"] == (64 if setting == "learned" else 16)
                ]  # fmt: skip
                sizes = sorted({level["memories"] for level in last})
                raised = sum(split["delta"] < 0.25 for row in mine for split in row["splits"]
                             if split["n_split"] and not search)  # fmt: skip
                rows.append(
                    [
                        data,
                        title,
                        way,
                        f"{mine[0]['levels'][0]['memories']} → {sizes[0]}"
                        + (f"–{sizes[-1]}" if len(sizes) > 1 else ""),
                        percent(middle) if middle else "never there",
                        percent(level["accuracy"] for level in last),
                        f"{average(last, 'cost'):.1f}",
                        "" if search else str(raised),
                    ]
                )
    head = [
        "data", "setting", "splits", "memories", "accuracy at 64 or 16", "at the end",
        "cost in full passes", "splits made smaller",
    ]  # fmt: skip
    return f"{markdown(head, rows)}\n\n{source(run)}"


TABLES = {
    "label splits": label_split_table,
    "abilities": abilities_table,
    "summary": summary_table,
    "accuracy": accuracy_table,
    "growth": growth_table,
    "training time": time_table,
    "exponents": exponent_table,
    "conditional": conditional_table,
    "robust fits": robust_table,
    "few labels": few_labels_table,
    "recall": recall_table,
    "blanks": blanks_table,
    "novelty": novelty_table,
    "clusters": clusters_table,
    "calibration": calibration_table,
    "step": step_table,
    "gpu parts": gpu_parts_table,
    "maximize": maximize_table,
    "unsupervised pass": unsupervised_table,
}

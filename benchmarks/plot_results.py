"""Pictures and tables of the documentation, made from the stored results; measures nothing.

    python -m benchmarks.plot_results            write docs/images/benchmark-*.png and the tables
    python -m benchmarks.plot_results --check    exit code 1 if a table is out of date

Tables stand in README.md and docs/benchmarks.md between `<!-- begin: NAME -->` and
`<!-- end: NAME -->`; what is between the marks is replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mnemosphere.plots import save
from mnemosphere.plots.look import BLUE, MARKERS, PALETTE, VERMILLION, new_figure, style

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
IMAGES = ROOT / "docs" / "images"
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
PAPER = {"beta=6": 79, "beta=10": 85, "beta=14": 89, "beta=18": 91, "varsigma=0.25": 96}
SETTINGS = {"varsigma=0.25": "β learned, ς = 0.25"} | {
    f"beta={b}": f"β = {b} held, ς = 1" for b in (6, 10, 14, 18)
}

Json = dict[str, Any]


def read(name: str) -> Json:
    content: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def growth_runs() -> list[Json]:
    """Every stored growth, smallest final width first."""
    found = [read(path.stem) for path in RESULTS.glob("growth_*.json")]
    return sorted((r for r in found if "rows" in r), key=lambda r: (solver(r), width(r)))


def solver(run: Json) -> str:
    """Of a growth; its command tells."""
    return "SGD" if "--solver sgd" in run["command"] else "fixed point"


def width(run: Json) -> int:
    return int(run["rows"][0]["memories"])


def command(run: Json) -> str:
    """Without the place of its output, which is the reader's affair."""
    return "`" + re.sub(r" --out \S+", "", run["command"]) + "`"


def device(run: Json) -> str:
    names = {"aarch64": "Arm processor", "x86_64": "x86 processor"}
    name = str(names.get(run["device"], run["device"]))
    return f"{name}, {run['threads']} threads" if name in names.values() else name


def percent(values: Iterable[float]) -> str:
    """Mean, and the range where there are several."""
    found = list(values)
    mean = f"{statistics.fmean(found):.2f}%"
    return mean if len(found) == 1 else f"{mean} ({min(found):.2f}–{max(found):.2f})"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def summary_table() -> str:
    """The README's: one line a claim, and the commands behind them."""
    sgd, fixed = read("accuracy_table_sgd"), read("accuracy_table_fixed_point")
    learned = [r for r in sgd["rows"] if r["setting"] == "varsigma=0.25"]
    passes = fixed["rows"][0]["passes"]
    claims: list[tuple[str, list[Json], float, list[Json]]] = [
        (f"{sgd['memories']} memories, the paper's SGD", learned, learned[0]["passes"], [sgd]),
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
                    mine[0]["passes"],
                    f"{statistics.fmean(r['beta'] for r in mine):.4g}",
                    f"{statistics.fmean(r['seconds'] for r in mine):.3g}",
                ]
            )
    head = ["solver", "setting", "paper", "test accuracy", "passes", "final β", "seconds"]
    return (
        markdown(head, rows) + "\n\n" + sources("accuracy_table_sgd", "accuracy_table_fixed_point")
    )


def sources(*names: str) -> str:
    lines = []
    for name in names:
        run = read(name)
        lines.append(f"- {command(run)}, {device({'threads': 1} | run)}")
    return "\n".join(lines)


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


TABLES = {
    "summary": summary_table,
    "accuracy": accuracy_table,
    "growth": growth_table,
    "training time": time_table,
    "exponents": exponent_table,
}


def filled(text: str) -> str:
    """A page with its tables made anew."""

    def replace(found: re.Match[str]) -> str:
        return f"{found[1]}\n\n{TABLES[found[2]]()}\n\n{found[3]}"

    mark = r"(<!-- begin: ([\w ]+) -->)\n.*?(<!-- end: \2 -->)"
    return re.sub(mark, replace, text, flags=re.DOTALL)


@style()
def training_time() -> Figure:
    """Arithmetic and time to equal accuracy against the number of memories."""
    run = read("training_time")
    exponents = {(e["solver"], e["growth"]): e for e in run["exponents"]}
    figure = new_figure(7.6, 3.6)
    panels = figure.subplots(1, 2)
    sizes = sorted({r["memories"] for r in run["rows"]})
    titles = {"products": "row–memory products, 10⁶", "seconds": "seconds"}
    for ax, key in zip(panels, ("products", "seconds"), strict=True):
        for method, exponent in exponents.items():
            mine = [r for r in run["rows"] if (r["solver"], r["growth"]) == method]
            color = VERMILLION if method[0] == "sgd" else BLUE
            marker = MARKERS[1 if method[1] else 0]
            ax.plot(
                [r["memories"] for r in mine],
                [r[key] for r in mine],
                color=color,
                linestyle="-" if method[1] else "--",
                marker=marker,
                label=f"{'SGD' if method[0] == 'sgd' else 'fixed point'}, "
                f"{'grown' if method[1] else 'full width'}: P^{exponent[key]:.2f}",
            )
            missed = [r for r in mine if not r["reached_target"]]
            ax.plot(
                [r["memories"] for r in missed],
                [r[key] for r in missed],
                marker,
                color=color,
                markerfacecolor="white",
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(sizes, [str(size) for size in sizes], fontsize=7.5)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("memories $P$")
        ax.set_title(titles[key])
        ax.grid(color="#E5E5E5", linewidth=0.6)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7.5, title="fitted exponent"
        )
    return figure


@style()
def growth() -> Figure:
    """Test accuracy at the end of every level of growth."""
    figure = new_figure(5.6, 3.6)
    ax = figure.subplots()
    labelled = set()
    for run in growth_runs():
        name = f"{solver(run)}, to {width(run)}"
        names = sorted({(solver(r), width(r)) for r in growth_runs()})
        k = names.index((solver(run), width(run)))
        for row in run["rows"]:
            levels = row["levels"]
            ax.plot(
                [level["memories"] for level in levels],
                [level["accuracy"] for level in levels],
                marker=MARKERS[k % len(MARKERS)],
                markersize=3.5,
                linewidth=1.0,
                color=PALETTE[k],
                label=None if name in labelled else name,
            )
            labelled.add(name)
    ax.set_xscale("log", base=2)
    ticks = [16, 64, 256, 1024, 4096]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("memories at the end of the level")
    ax.set_ylabel("test accuracy, %")
    ax.grid(color="#E5E5E5", linewidth=0.6)
    ax.legend(loc="lower right")
    return figure


PICTURES = {"benchmark-training-time": training_time, "benchmark-growth": growth}


def main(arguments: list[str]) -> int:
    """Write everything, or only look whether the tables are up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    stale = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(page.relative_to(ROOT))
            if not check:
                page.write_text(new, encoding="utf-8")
    if check:
        for page in stale:
            print(f"{page}: tables differ from benchmarks/results, run this without --check")
        return int(bool(stale))
    for name, draw in PICTURES.items():
        print(save(draw(), IMAGES / f"{name}.png", dpi=150).relative_to(ROOT))
    print(f"tables: {', '.join(map(str, stale)) or 'as they were'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

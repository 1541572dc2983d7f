"""The pictures of the benchmarks, from the stored results."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mnemosphere.plots.style import BLUE, MARKERS, PALETTE, VERMILLION, figure_style, new_figure
from research.pages.stored import growth_runs, read, solver, width


@figure_style()
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


@figure_style()
def growth() -> Figure:
    """Test accuracy at the end of every level of growth."""
    figure = new_figure(5.6, 3.6)
    ax = figure.subplots()
    labeled = set()
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
                label=None if name in labeled else name,
            )
            labeled.add(name)
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

"""Pictures: of benchmarks from the stored results, of models of scikit-learn's data made anew."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from sklearn.datasets import load_breast_cancer, load_wine

from mnemosphere import DAMClassifier, plots
from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_figure
from research.pages.tables import growth_runs


@figure_style()
def growth() -> Figure:
    """Test accuracy at the end of every level of growth."""
    figure = new_figure(5.6, 3.6)
    ax = figure.subplots()
    runs = growth_runs()
    names = sorted({f"{run['solver']}, to {run['width']}" for run in runs})
    labeled = set()
    for run in runs:
        name = f"{run['solver']}, to {run['width']}"
        k = names.index(name)
        for row in run["rows"]:
            ax.plot(
                [level["memories"] for level in row["levels"]],
                [level["accuracy"] for level in row["levels"]],
                marker=MARKERS[k % len(MARKERS)], markersize=3.5, linewidth=1.0, color=PALETTE[k],
                label=None if name in labeled else name,
            )  # fmt: skip
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


@figure_style()
def search() -> Figure:
    """The last rung of a search with default settings."""
    model = DAMClassifier(random_state=0).fit(*load_breast_cancer(return_X_y=True))
    figure = new_figure(9.0, 4.4)
    plots.search(model.search_, ax=figure.subplots())
    return figure


def explanation() -> Figure:
    """Why a wine is of its class, as on the page "Interpretability"."""
    wine = load_wine(as_frame=True)
    rows, kinds = wine.data, wine.target_names[wine.target]
    model = DAMClassifier(random_state=0).fit(rows[::2], kinds[::2])
    return model.explain(rows[69:70]).plot(truth=kinds[69])


PICTURES = {"benchmark-growth": growth, "search": search, "explanation-table": explanation}

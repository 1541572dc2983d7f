"""Pictures of models of data inside the package."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_wine
from typer.testing import CliRunner

from mnemosphere import DAMClassifier, load, load_data, plots
from mnemosphere.cli import app
from mnemosphere.plots.fitted import tree_of
from mnemosphere.plots.style import root_figure
from research.benchmarks import conditional
from research.plots import bank


def explanation() -> Figure:
    """Why a wine is of its class, as on the page "Interpretability"."""
    wine = load_wine(as_frame=True)
    rows, kinds = wine.data, wine.target_names[wine.target]
    model = DAMClassifier(objective="joint", random_state=0).fit(rows[::2], kinds[::2])
    return model.explain(rows[69:70]).plot(truth=kinds[69])


def lineage() -> Figure:
    """Four memories grown to 24, level by level."""
    raw = load_data("mnist-small")
    model = DAMClassifier(
        24, growth=4, objective="joint", geometry="center", varsigma=0.8, random_state=0
    ).fit(raw.x_train, raw.y_train)
    return root_figure(tree_of(model.model_, raw.image_shape))


def samples() -> Figure:
    """Rows drawn from a model, with their classes."""
    raw = load_data("mnist-small")
    model = DAMClassifier(
        300, objective="joint", geometry="center", varsigma=0.8, random_state=0
    ).fit(raw.x_train, raw.y_train)
    rows, labels = model.sample(30, random_state=0)
    ax = plots.memories(
        rows, raw.image_shape, indices=range(30), named=False, labels=labels, ncols=10,
        title="30 rows drawn from the model, each with its class",
    )  # fmt: skip
    return root_figure(ax)


def demo_mistake(path: Path) -> None:
    """The mistake of which the demo's model is most sure."""
    raw = load_data("mnist-small")
    with tempfile.TemporaryDirectory() as made:
        CliRunner().invoke(app, ["demo", "--out", f"{made}/demo"], catch_exceptions=False)
        model = load(Path(made, "demo", "model.safetensors"))
    proba = model.predict_proba(raw.x_test)
    wrong = model.classes_[proba.argmax(1)] != raw.y_test
    k = int(np.where(wrong, proba.max(1), 0.0).argmax())
    why = model.explain(raw.x_test[k : k + 1])
    strip = why.plot(image_shape=raw.image_shape, truth=raw.y_test[k])
    plots.save(strip, path, dpi=150)


def texts_page(path: Path) -> None:
    """The page of a model of texts with a rejected question, as Chromium shows it."""
    questions = load_data("banking-small")
    model = DAMClassifier(encoder="wordllama", random_state=0).fit(
        questions.x_train, questions.y_train
    )
    model.calibrate(questions.x_test, questions.y_test)
    rows = [*questions.x_test, "What is the capital of France?", "Where is my pizza?"]
    pick = (
        "<script>addEventListener('load', () => setTimeout(() => {"
        "$('rows-kind').value = 'rejected'; rows.fill();"
        "document.querySelector('#rows [data-row]').click()}, 500))</script>"
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        model.explore(page, rows, [*questions.y_test, None, None], title="Questions to a bank")
        page.write_text(page.read_text(encoding="utf-8") + pick, encoding="utf-8")
        _shown(page, path)


def _shown(page: Path, path: Path) -> None:
    """A picture of a page, as Chromium shows it."""
    program = shutil.which("chromium")
    if program is None:
        raise FileNotFoundError("no chromium: install it to draw the page of a model")
    options = ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1280,887",
               "--virtual-time-budget=20000", f"--screenshot={path}")  # fmt: skip
    subprocess.run([program, *options, page.resolve().as_uri()], check=True, capture_output=True)


def live_page(path: Path, picture: Path) -> None:
    """The page on which one can draw a digit, and a picture of it."""
    data = load_data("digits")
    model = DAMClassifier(60, objective="joint", random_state=0).fit(data.x_train, data.y_train)
    model.explore(path, data.x_test[:100], data.y_test[:100], image_shape=data.image_shape,
                  title="Handwritten digits")  # fmt: skip
    _shown(path, picture)


PICTURES = {
    "bank": bank.picture,
    "explanation-table": explanation,
    "conditional-before-after": conditional.gallery,
    "lineage": lineage,
    "samples": samples,
}

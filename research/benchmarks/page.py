"""How soon a page of a model can be seen and used, opened from a file in a headless Chromium."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from mnemosphere import DAMClassifier, as_estimator, interpret
from mnemosphere.data import NamedData, load
from research import report
from research.benchmarks import _options

BROWSER = Path(__file__).parents[2] / "tests" / "browser.py"  # drives Chromium in the tests
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
READY = (
    "new Promise((done) => { const look = () => window.mnemosphere?.ready ? "
    "done(performance.now()) : setTimeout(look, 2); look(); })"
)


def model_of(data: NamedData, n_memories: int) -> DAMClassifier:
    """Memories that are means of the rows nearest to some of them: as good as trained, for this."""
    x = data.x_train - data.x_train.mean(1, keepdims=True)
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    step = len(x) // n_memories
    nearest = (x @ x[::step].T).argmax(1)
    means = np.stack([x[nearest == k].mean(0) for k in range(n_memories)])
    weights = np.full((n_memories + 1, 11), 0.01)
    weights[np.arange(1, n_memories + 1), data.y_train[::step]] = 1.0
    return as_estimator(
        interpret.from_parameters(
            means, weights, beta=163.0, varsigma=0.23, normalize="center", label_smoothing=0.09
        )
    )


def open_page(browser: Any, path: Path) -> dict[str, float]:
    """Milliseconds from the navigation to the first picture, and until the model answers."""
    browser.look(1280, 900, False)
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=path.as_uri())
    ready = float(browser.evaluate(READY))
    painted = browser.evaluate(
        f"new Promise((done) => {{ const look = () => {{ const at = {PAINTED}; "
        "at === null ? setTimeout(look, 2) : done(at); }; look(); })"
    )
    return {"painted": float(painted), "ready": ready}


def main(words: list[str]) -> None:
    made = _options.parser(__doc__, "page")
    made.add_argument("--times", type=int, default=9, help="how often each page is opened")
    options = made.parse_args(words)
    spec = spec_from_file_location("browser", BROWSER)
    assert spec is not None
    assert spec.loader is not None
    driver = module_from_spec(spec)
    spec.loader.exec_module(driver)
    program = driver.find_chromium()
    if program is None:
        raise SystemExit("no Chromium here: install the package chromium")
    data, results = load("mnist-small"), []
    with driver.Browser(program) as browser, tempfile.TemporaryDirectory() as folder:
        for n_memories in (100, 1000):
            page = Path(folder) / f"{n_memories}.html"
            model_of(data, n_memories).explore(page, data.x_test, data.y_test, layout="pca")
            runs = [open_page(browser, page) for _ in range(options.times)]
            found = {
                f"{key}_ms": {
                    "least": round(min(run[key] for run in runs), 1),
                    "median": round(statistics.median(run[key] for run in runs), 1),
                }
                for key in ("painted", "ready")
            }
            results.append({"memories": n_memories, "bytes": page.stat().st_size, **found})
            print(results[-1], flush=True)
    head = report.head(report.command_line(["page", *words]), device="cpu", seeds=range(0))
    load_average = round(os.getloadavg()[0], 1)
    report.write(options.out, {**head, "load_average": load_average, "results": results})
    print(f"report: {options.out}", file=sys.stderr)

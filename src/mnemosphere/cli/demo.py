"""`mnemosphere demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mnemosphere import DAMClassifier, plots
from mnemosphere.cli import explain, train
from mnemosphere.cli.options import Columns
from mnemosphere.cli.output import MODEL, Folder
from mnemosphere.cli.rows import Opened, Rows, open_rows
from mnemosphere.cli.shell import Terminal
from mnemosphere.interpret import Explanation, recall
from mnemosphere.plots.fitted import recall_of

_DATA = "mnist-small"
_MEMORIES, _PASSES = 400, 8  # so that it takes half a minute on two slow cores
_HIDDEN = ["test-3", "test-5", "test-8"]  # by their lower halves


def run(terminal: Terminal, folder: Folder, seed: int) -> None:
    """Learn digits, draw memories, explain one, complete half-hidden ones."""
    shown = folder.shown
    rows = open_rows(_DATA, Columns())
    rows, test = rows.part("train"), rows.part("test")
    terminal.note(f"{len(rows)} handwritten digits to learn, {len(test)} held out")
    model = DAMClassifier(
        _MEMORIES, objective="joint", geometry="center", max_iter=_PASSES, random_state=seed
    )
    with folder.writing() as draft:
        seconds = train.fit(model, rows, terminal)
        opened = Opened(model, {}, draft / MODEL)
        content = train.write(terminal, opened, rows, test, seconds, seed, 0.0)
        why, one = _pictures(model, test, draft)
        wrote = folder.finish(content)
    explain.show(terminal, why, one, 0, "why? ")
    train.show(terminal, model, content, wrote)
    terminal.say(f"look:      {shown / 'memories.png'}, {shown / 'recall.png'}",
                 f"play:      open {shown / 'page.html'} in a browser",
                 f"ask why:   mnemosphere explain {shown} {_DATA} --row test-3",
                 "your data: mnemosphere train YOUR.csv --out run")  # fmt: skip


def _pictures(model: Any, test: Rows, folder: Path) -> tuple[Explanation, Rows]:
    """An explanation, a recall, the page; returns the explanation and the row it is of."""
    shape, found = test.image_shape, model.explain(test.x)
    # A digit recognized with some doubt, by several memories.
    doubt = np.abs(found.share[:, 0] - 0.4) + np.abs(found.probability - 0.75)
    right = found.predicted == test.y
    one = test.take(np.array([np.where(right, doubt, np.inf).argmin()]))
    why = model.explain(one.x)
    plots.save(explain.picture(why, one, shape), folder / "explanation.png")
    few = test.called(_HIDDEN)
    damaged = few.x.astype(np.float64)
    damaged[:, damaged.shape[1] // 2 :] = np.nan
    path = recall(model.model_, damaged, path=True)
    strips = recall_of(model.model_, few.x, path, ~np.isnan(damaged), shape, names=_HIDDEN,
                       predictions=model.predict(path.rows[-1]))  # fmt: skip
    plots.save(strips, folder / "recall.png")
    model.explore(folder / "page.html", test.x, test.y, image_shape=shape,
                  title="Handwritten digits")  # fmt: skip
    return why, one

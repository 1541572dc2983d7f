"""`mnemosphere demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mnemosphere import DAMClassifier, plots
from mnemosphere.cli import explain, report
from mnemosphere.cli.options import Columns, Request
from mnemosphere.cli.output import MODEL, Folder
from mnemosphere.cli.rows import Rows, about_data, open_rows
from mnemosphere.cli.shell import command_line
from mnemosphere.cli.train import fit
from mnemosphere.interpret import Explanation, recall_path
from mnemosphere.plots.fitted import memories_of, recall_of

_DATA = "mnist-small"
_MEMORIES, _PASSES = 400, 8  # so that it takes half a minute on two slow cores


def run(request: Request, out: Path, seed: int) -> None:
    """Learn digits, draw memories, explain one, complete half-hidden ones."""
    folder, terminal = Folder(out, overwrite=request.overwrite), request.terminal

    rows = open_rows(_DATA, Columns())
    assert rows.is_test is not None
    train, test = rows.take(~rows.is_test), rows.take(rows.is_test)
    terminal.note(f"{len(train)} handwritten digits to learn, {len(test)} held out")
    model = DAMClassifier(
        _MEMORIES, objective="joint", normalize="center", max_iter=_PASSES, random_state=seed
    )
    seconds = fit(model, train, terminal)
    model.calibrate(test.x)
    content = {
        **report.score(model, test),
        **report.about_model(model),
        "seconds": seconds,
        "seed": seed,
        "command": command_line(request.ctx),
        "data": about_data(rows, rows=len(train), test_rows=len(test)),
    }
    with folder.writing() as draft:
        model.save(draft / MODEL)
        why, one = _pictures(model, test, draft)
        folder.finish(content)
    terminal.result(content)
    terminal.say("")
    explain.show(terminal, why, one, 0, "why? ")
    accuracy = f"{content['accuracy']:.2%} of {content['rows']} test digits"
    terminal.facts(report.model_facts(model) | {"time": f"{seconds:.1f} s", "accuracy": accuracy})
    terminal.say("", folder.told(), f"look:      {out / 'memories.png'}, {out / 'recall.png'}",
                 f"play:      open {out / 'page.html'} in a browser",
                 f"ask why:   mnemosphere explain {out} {_DATA} --row test-3",
                 "your data: mnemosphere train YOUR.csv --out run")  # fmt: skip


def _pictures(model: Any, test: Rows, folder: Path) -> tuple[Explanation, Rows]:
    """Memories, an explanation, a recall; returns the explanation and the row it is of."""
    shape = test.image_shape
    plots.save(memories_of(model.model_, shape), folder / "memories.png")
    found = model.explain(test.x)
    right = found.predicted == test.y
    # A digit recognized with some doubt, by several memories.
    doubt = np.abs(found.share[:, 0] - 0.4) + np.abs(found.probability - 0.75)
    one = test.take(np.array([np.where(right, doubt, np.inf).argmin()]))
    why = model.explain(one.x)
    plots.save(explain.picture(why, one, shape), folder / "explanation.png")
    few = test.take(np.flatnonzero(right)[[3, 5, 8]])
    damaged = few.x.astype(np.float64)
    damaged[:, damaged.shape[1] // 2 :] = np.nan  # the lower half
    path = recall_path(model.model_, damaged)
    ends = model.predict(path.rows[-1])
    strips = recall_of(model.model_, few.x, path, ~np.isnan(damaged), shape,
                       names=few.names.tolist(), predictions=ends)  # fmt: skip
    plots.save(strips, folder / "recall.png")
    model.explore(folder / "page.html", test.x, test.y, image_shape=shape,
                  title="Handwritten digits")  # fmt: skip
    return why, one

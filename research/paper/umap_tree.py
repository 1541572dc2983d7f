"""Fig. (umap_tree): the memories' way through training is a tree, and splitting thins its trunk.

Memories start around the mean direction of the first 1000 digits and part as training breaks their
permutation symmetry. A point is one memory at one time, given by its overlaps with all digits and
laid on a plane by UMAP. UMAP is fitted on the run without splitting and applied to the others.

The paper fits UMAP with n_neighbors=1000. Here a time is kept whenever the memories have moved by
`step` on average since the last one kept, so that points are as dense along the branches as in the
trunk, and n_neighbors is scaled by the share of all points kept. Before UMAP, the overlaps are
rotated to their leading principal axes. Quick runs use the two leading principal axes in the place
of UMAP, which compiles for longer than they run.

What the picture shows is measured too, on all passes: memories still in the trunk (overlap with the
mean direction above `trunk`), summed over passes (the paper's P × T, near the root); the
number of clusters; and whether it is a tree: how many pairs that parted are together again.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.model.batch import Batch
from mnemosphere.numerics import sphere, vmf
from mnemosphere.training import SGD, FixedPoint, Splitting
from research import fits
from research.paper.descent import Descent
from research.paper.experiment import (
    Experiment,
    MissingPackageError,
    Run,
    load_arrays,
    save_picture,
)
from research.paper.recorder import Floats, Recorder, clusters, reunions, sources
from research.plots.trees import LearningRun, learning_trees
from research.report import Comparison, Json

RUNS = ("without", "with", "fixed-point")


def _settings(quick: bool) -> Json:
    return {
        "rows": 300 if quick else 1000,
        "memories": 32 if quick else 400,
        "initial": 8 if quick else 100,
        "concentration": 1.5e5,
        "beta": 80.0 if quick else 32.0,
        "varsigma": 0.25,
        "smoothing": 0.1,
        "sgd": {
            # The authors' effective step is 1; in a quick run 5, with less inertia.
            "learning_rate": 0.5 if quick else 0.1**2,
            "momentum": 0.9 if quick else 0.99,
            "batch_size": 100,
        },
        "epochs": 60 if quick else 600,
        "phase_epochs": 40 if quick else 300,
        "fixed_point_steps": 12 if quick else 40,
        "eigenvectors": {"epochs": 10 if quick else 300, "batch_size": 100},
        "delta": 0.25,
        "threshold": -0.001,
        "step": 0.25 if quick else 0.04,
        "trunk": 0.9,
        "cluster": 0.95,
        "embedding": "axes" if quick else "umap",
        "n_neighbors": 1000,
        "axes": 64,
    }


def around_mean(
    x: torch.Tensor, n_memories: int, concentration: float, *, generator: torch.Generator
) -> torch.Tensor:
    """Von Mises–Fisher around the mean direction of the data, root of the learning tree.

    The start of Fig. (umap_tree), with a concentration of about 1.5e5 there.
    """
    mean = sphere.project(x.mean(0))
    return vmf.sample(
        mean.expand(n_memories, -1),
        torch.as_tensor(concentration, dtype=x.dtype, device=x.device),
        generator=generator,
    )


def _train(run: Run, name: str, data: Batch) -> Json:
    """One run with its recorder; arrays stored beside the summary."""
    chosen = run.settings
    generator = torch.Generator().manual_seed(run.seeds[0])
    recorder = Recorder(sphere.project(data.x.mean(0)), chosen["trunk"], chosen["step"])
    n_memories = chosen["initial"] if name == "with" else chosen["memories"]
    w = around_mean(data.x, n_memories, chosen["concentration"], generator=generator)
    start = fits.Start(w, chosen["beta"])
    words = {"without": "no splitting", "with": "splitting", "fixed-point": "fixed point"}
    run.progress(words[name])
    came_from: list[list[int]] = []
    common: Json = {"varsigma": chosen["varsigma"], "generator": generator, "callbacks": [recorder]}
    if name == "with":
        grown = fits.grow_from(
            start,
            data,
            SGD(**chosen["sgd"], tol=0),
            max_memories=chosen["memories"],
            splitting=Splitting(
                threshold=chosen["threshold"],
                delta=chosen["delta"],
                curvature=Descent(**chosen["eigenvectors"]),
                rows_per_memory=None,
            ),
            passes=chosen["phase_epochs"],
            final_passes=chosen["phase_epochs"],
            **common,
        )
        run.finished(grown.status)
        came_from = sources(grown.lineage)
    else:
        exact = name == "fixed-point"
        result = fits.train_from(
            start,
            data,
            FixedPoint(None, tol=0) if exact else SGD(**chosen["sgd"], tol=0),
            passes=chosen["fixed_point_steps" if exact else "epochs"],
            **common,
        )
        run.finished(result.status)
    arrays = recorder.arrays(came_from)
    run.parts.save(name, **arrays)
    return _summary(recorder, chosen)


def _summary(recorder: Recorder, chosen: Json) -> Json:
    near, _, width = np.array(recorder.passes).T
    return {
        "widths": [int(p) for p in dict.fromkeys(width)],
        "trunk_memory_passes": float(near.sum()),
        "memory_passes": float(width.sum()),
        "kept_times": recorder.times,
        "clusters": [clusters(w, chosen["cluster"]) for w in recorder.w],
        "reunions": reunions(_last_phase(recorder), chosen["cluster"]),
    }


def _last_phase(recorder: Recorder) -> list[Floats]:
    """Memories of the last phase, each time the same ones."""
    return [w for w in recorder.w if len(w) == len(recorder.w[-1])]


def embed(points: list[Floats], kind: str, *, n_neighbors: int, seed: int) -> list[Floats]:
    """Places on a plane of several sets of points (n, d), by a map fitted on the first of them."""
    if kind == "axes":
        center = points[0].mean(0)
        axes = np.linalg.svd(points[0] - center, full_matrices=False)[2][:2]  # (2, d)
        return [((p - center) @ axes.T).astype(np.float32) for p in points]
    import warnings

    with warnings.catch_warnings():
        # Of packages that are not installed here, of one thread for the sake of the seed.
        warnings.simplefilter("ignore")
        from umap import UMAP

        fitted = UMAP(n_neighbors=n_neighbors, random_state=seed, n_jobs=1)
        places = [fitted.fit_transform(points[0])]
        places += [fitted.transform(p) for p in points[1:]]
    return [np.asarray(p, dtype=np.float32) for p in places]


def _embed(run: Run, data: Batch) -> Json:
    chosen = run.settings
    digits = data.x.cpu().numpy()
    memories = [run.parts.load(name)["w"].astype(np.float32) for name in RUNS]
    overlaps = memories[0] @ digits.T  # (points, digits)
    _, scale, axes = np.linalg.svd(digits, full_matrices=False)
    # ‖X(w − w')‖ is all that matters, and X = U S Vᵀ: the rotation by U is exact, and what lies
    # beyond the leading axes is next to nothing.
    n_axes = min(chosen["axes"], len(scale))
    points = [(w @ axes[:n_axes].T) * scale[:n_axes] for w in memories]
    lost = 1 - points[0].var(0).sum() / overlaps.var(0).sum()
    every_pass = chosen["memories"] * chosen["epochs"]
    n_neighbors = max(10, round(chosen["n_neighbors"] * len(points[0]) / every_pass))
    run.progress(f"{chosen['embedding']} of {len(points[0])} points")
    places = embed(points, chosen["embedding"], n_neighbors=n_neighbors, seed=run.seeds[0])
    run.parts.save("places", **dict(zip(RUNS, places, strict=True)))
    return {
        "points": [len(p) for p in points],
        "n_neighbors": n_neighbors,
        "variance_lost": float(lost),
    }


def _run(run: Run) -> Json:
    if run.settings["embedding"] == "umap" and find_spec("umap") is None:
        raise MissingPackageError("fig5 needs umap-learn: pip install '.[umap]' and run again")
    rows, _ = run.rows("mnist", run.settings["smoothing"])
    data = rows.take(slice(0, run.settings["rows"]))
    summaries = {name: run.parts.step(name, partial(_train, run, name, data)) for name in RUNS}
    embedding = run.parts.step("places", lambda: _embed(run, data))
    arrays: dict[str, NDArray[Any]] = {}
    places = run.parts.load("places")
    for name in RUNS:
        part = run.parts.load(name)
        arrays[f"{name} place"] = places[name].astype(np.float16)
        arrays |= {f"{name} {k}": part[k] for k in ("label", "time", "before")}
        arrays[f"{name} passes"] = part["passes"][:, :2]
    run.save_arrays(**arrays)
    if run.settings["embedding"] == "umap":
        run.remark(
            f"UMAP on {embedding['points'][0]} of the "
            f"{run.settings['memories'] * run.settings['epochs']} memories × passes of the run "
            f"without splitting, n_neighbors scaled from {run.settings['n_neighbors']} to "
            f"{embedding['n_neighbors']} accordingly, on {run.settings['axes']} principal axes of "
            f"the overlaps ({100 * embedding['variance_lost']:.1g}% of their variance left out)"
        )
    else:
        run.remark("two principal axes of the overlaps in the place of UMAP")
    without, split = summaries["without"], summaries["with"]
    run.remark(
        "splitting went through " + ", ".join(map(str, split["widths"])) + " memories: those whose "
        "curvature is not below the threshold are not split, which may cost a phase more"
    )
    ratio = without["trunk_memory_passes"] / split["trunk_memory_passes"]
    return {"runs": summaries, "embedding": embedding, "trunk_ratio": ratio}


def _compare(measured: Json) -> list[Comparison]:
    runs = measured["runs"]
    # A quarter of the memories at first: 4, if both need as many passes; or four times off it.
    found = [
        Comparison(
            "trunk without over with splitting, memories × passes",
            measured["trunk_ratio"],
            "above 1",
            1.5,
            16.0,
            "×",
        )
    ]
    for name, words in zip(
        RUNS, ("without splitting", "with splitting", "fixed point"), strict=True
    ):
        one = runs[name]
        found.append(
            Comparison(f"{words}: trunk", one["trunk_memory_passes"], unit=" memories × passes",
                       digits=0)
        )  # fmt: skip
        found.append(
            Comparison(f"{words}: clusters at the end", one["clusters"][-1], unit="", digits=0)
        )
        tree = name != "fixed-point"
        found.append(
            Comparison(
                f"{words}: parted pairs that are together again",
                100 * one["reunions"],
                "a tree: 0%" if tree else "",
                0.0 if tree else None,
                1.0 if tree else None,
            )
        )
    return found


def _draw(result: Json, folder: Path) -> list[Path]:
    arrays = load_arrays(folder)
    measured = result["measured"]
    chosen = result["settings"]
    n, p = chosen["initial"], chosen["memories"]
    titles = {
        "without": f"SGD, {p} memories",
        "with": f"SGD with splitting, {n} to {p}",
        "fixed-point": f"fixed point, {p} memories",
    }
    trees = {
        titles[name]: LearningRun(
            place=arrays[f"{name} place"],
            label=arrays[f"{name} label"],
            time=arrays[f"{name} time"],
            before=arrays[f"{name} before"],
            near=arrays[f"{name} passes"][:, 0],
            overlap=arrays[f"{name} passes"][:, 1],
            kept=measured["runs"][name]["kept_times"],
            clusters=measured["runs"][name]["clusters"],
        )
        for name in RUNS
    }
    axes = "UMAP" if chosen["embedding"] == "umap" else "principal axis"
    figure = learning_trees(trees, axes=axes, trunk=chosen["trunk"])
    return [save_picture(figure, folder, "fig5", result, dpi=100)]


EXPERIMENTS = (
    Experiment(
        "fig5",
        "Fig. (umap_tree): the tree of learning, with and without splitting",
        _settings,
        _run,
        _draw,
        _compare,
    ),
)

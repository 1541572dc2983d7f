"""Fig. (hierarchy_diagram), from a real fixed point: narrow minima are saddles of wider networks.

One memory is brought to a fixed point of Eq. (stationarity) by exact steps in float64. Every memory
that is a saddle of the network with a copy of it (β_eff > β_split, Sec. hierarchy) is duplicated:
the loss stays, the fixed point stays, and a small move along the unstable direction leads down to
a fixed point with more memories, the next level. At each level everything the principle says is
measured: the change of the loss, the residual of the duplicated network, its curvature by finite
differences of the loss and from dense splitting matrices, and the way back by merging.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.certificates import certify, residual
from mnemosphere.model.copies import duplicate, merge_duplicates, split
from mnemosphere.model.curvature import Curvature, krylov
from mnemosphere.model.one_pass import accumulate
from mnemosphere.numerics import sphere
from mnemosphere.training.lineage import Lineage
from research import fits
from research.paper.experiment import Experiment, Run, load_arrays, save_picture
from research.paper.fixed_points import (
    Relaxation,
    descend,
    finite_differences,
    mean_loss,
    splitting_spectra,
)
from research.plots.hierarchy import saddle_hierarchy
from research.report import Comparison, Json

# The curvature decides what is a saddle: to more digits than the default.
_find_curvature = partial(krylov, tol=1e-6, max_cycles=60)


def _settings(quick: bool) -> Json:
    return {
        "rows": 200 if quick else 2000,
        "memories": 4 if quick else 16,
        "varsigma": 0.25,
        "smoothing": 0.1,
        "tol": 1e-8,
        "max_steps": 2000 if quick else 20000,
        "delta": 0.02,
    }


def _level(descent: Relaxation, data: Batch, tol: float) -> tuple[Json, Curvature]:
    """Everything the principle says of one fixed point, measured."""
    params = descent.params
    loss = mean_loss(params, data)
    curvature = _find_curvature(params, data)
    certificate = certify(params, data, tol=10 * tol, method=lambda *_, **__: curvature)
    everyone = torch.arange(params.n_memories, device=params.w.device)
    twins = duplicate(params, everyone)
    rest = residual(twins, accumulate(twins, data, objectives.joint))
    back, _ = merge_duplicates(twins, twins.p)
    spectra = splitting_spectra(params, data)
    probe = finite_differences(params, data, curvature.direction)
    level = {
        "memories": params.n_memories,
        "loss": loss,
        "residual": descent.residual,
        "beta_eff": float(params.slope),
        "lambda_min": curvature.lambda_min.tolist(),
        "beta_split": curvature.beta_split.tolist(),
        "finite_difference": probe.tolist(),
        "dense_lambda_min": [float(s[0]) for s in spectra],
        "kinds": list(certificate.kinds),
        "duplicated": {
            "loss_change": mean_loss(twins, data) - loss,
            "residual": float(rest.largest),
            "merged_back_loss_change": mean_loss(back, data) - loss,
        },
    }
    return level, curvature


def grow_tree(run: Run, data: Batch) -> Json:
    """From one memory at the mean direction down the levels; arrays of the nodes stored."""
    chosen = run.settings
    mean = sphere.project(data.x.mean(0))[None]
    params = fits.begin_growth(
        fits.Start(mean, 40.0),  # any β: the first steps find it
        data.targets.mean(0),
        max_memories=chosen["memories"],
        varsigma=chosen["varsigma"],
    )
    lineage = Lineage.root(1)
    levels: list[Json] = []
    while True:
        run.progress(f"fixed point with {params.n_memories} memories")
        descent = descend(params, data, tol=chosen["tol"], max_steps=chosen["max_steps"])
        level, curvature = _level(descent, data, chosen["tol"])
        level["descent"] = _thinned(descent.losses)
        levels.append(level)
        params = descent.params
        lineage = lineage.with_model(params)
        saddle = (params.slope > curvature.beta_split).nonzero()[:, 0]
        room = chosen["memories"] - params.n_memories
        order = curvature.lambda_min[saddle].argsort(stable=True)
        which = saddle[order[:room]]
        if which.shape[0] == 0:
            break
        lineage = lineage.split(which, curvature)
        params = split(params, which, curvature.direction, chosen["delta"])
    nodes = _nodes(lineage, levels)
    run.parts.save("tree", memories=nodes.pop("w").astype(np.float16))
    return {"levels": levels, "nodes": nodes}


def _nodes(lineage: Lineage, levels: list[Json]) -> Json:
    """Every memory that ever was, as it was at the last level it lived to see."""
    n = lineage.n_nodes
    w = np.zeros((n, lineage.models[0].n_features))
    label, beta_split, lambda_min = [0] * n, [0.0] * n, [0.0] * n
    for k, (members, params) in enumerate(zip(lineage.members, lineage.models, strict=True)):
        soft = params.p[1:] / params.p_h[1:, None]
        for memory, node in enumerate(members.tolist()):
            w[node] = params.w[memory].cpu().numpy()
            label[node] = int(soft[memory, :-1].argmax())
            beta_split[node] = levels[k]["beta_split"][memory]
            lambda_min[node] = levels[k]["lambda_min"][memory]
    return {
        "w": w,
        "level": lineage.level.tolist(),
        "parent": lineage.parent.tolist(),
        "label": label,
        "beta_split": beta_split,
        "lambda_min": lambda_min,
    }


def _thinned(losses: list[float]) -> Json:
    """A curve of at most 120 points: the first 40 steps, then ever fewer."""
    last = len(losses) - 1
    steps = np.unique(np.concatenate([np.arange(40), np.geomspace(1, max(last, 1), 80)]).round())
    kept = [int(s) for s in steps if s <= last]
    return {"step": kept, "loss": [losses[s] for s in kept]}


def _run(run: Run) -> Json:
    rows, _ = run.rows("mnist", run.settings["smoothing"], torch.float64)
    generator = torch.Generator().manual_seed(run.seeds[0])
    order = torch.randperm(rows.n_rows, generator=generator)[: run.settings["rows"]]
    data = rows.take(order.to(run.device))
    tree = run.parts.step("tree", lambda: grow_tree(run, data))
    run.save_arrays(**run.parts.load("tree"))
    run.remark(
        "the paper's figure is an illustration; here every level is a fixed point of Eq. "
        f"(stationarity) on {data.n_rows} digits in float64, residual below {run.settings['tol']:g}"
    )
    return tree


def _compare(measured: Json) -> list[Comparison]:
    levels = measured["levels"]
    doubled = [level["duplicated"] for level in levels]

    def worst(values: list[float]) -> float:
        return max(abs(v) for v in values)

    relative = [
        abs(a - b) / abs(b)
        for level in levels
        for a, b in zip(level["finite_difference"], level["lambda_min"], strict=True)
    ]
    saddles = sum(kind == "saddle" for level in levels for kind in level["kinds"])
    rises = sum(a["loss"] <= b["loss"] for a, b in pairwise(levels))
    changed = worst([d["loss_change"] for d in doubled])
    merged = worst([d["merged_back_loss_change"] for d in doubled])
    moved = worst([d["residual"] for d in doubled])
    # Bounds: 1e-12 of the loss, and ten times the residual at which the levels were left.
    tiny: Json = {"paper": "0", "low": 0.0, "high": 1000.0, "unit": "·10⁻¹⁵", "digits": 1}
    small: Json = {"paper": "0", "low": 0.0, "high": 100.0, "unit": "·10⁻⁹", "digits": 1}
    none: Json = {"paper": "0", "low": 0.0, "high": 0.0, "unit": "", "digits": 0}
    return [
        Comparison("change of the loss by duplication", 1e15 * changed, **tiny),
        Comparison("change of the loss by duplication and merging", 1e15 * merged, **tiny),
        Comparison("residual of the duplicated fixed points", 1e9 * moved, **small),
        Comparison(
            "curvature by finite differences, relative error",
            1e5 * max(relative),
            unit="·10⁻⁵",
            digits=1,
        ),
        Comparison("levels that do not lower the loss", float(rises), **none),
        Comparison("saddles among the memories of all levels", float(saddles), unit="", digits=0),
    ]


def _draw(result: Json, folder: Path) -> list[Path]:
    memories = load_arrays(folder)["memories"]
    side = round(memories.shape[1] ** 0.5)
    measured = result["measured"]
    levels, nodes = measured["levels"], measured["nodes"]
    tree = saddle_hierarchy(
        nodes["level"],
        nodes["parent"],
        memories,
        loss=[level["loss"] for level in levels],
        beta_eff=[level["beta_eff"] for level in levels],
        beta_split=nodes["beta_split"],
        lambda_min=nodes["lambda_min"],
        descents=[(level["descent"]["step"], level["descent"]["loss"]) for level in levels],
        labels=nodes["label"],
        classes=range(10),
        image_shape=(side, side),
    )
    return [save_picture(tree, folder, "hierarchy", result)]


EXPERIMENTS = (
    Experiment(
        "hierarchy",
        "Fig. (hierarchy_diagram): minima of narrow networks are saddles of wider ones",
        _settings,
        _run,
        _draw,
        _compare,
    ),
)

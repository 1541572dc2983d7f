"""Figs. (unsupervised_DAM_memories) and _1 to _4: patches of digits without labels.

The authors start from random memories with β = 0.01 and ε = 0.01. Here β starts at 5 and memories
on training patches: β = 0 is itself a saddle, which that start leaves after thousands of steps, to
either side. And ε = 0.1: with 0.01 classes sharpen before memories have found their places, some of
which then end as noise; one case keeps ε = 0.01 to show it. What the sweeps of Sinkhorn–Knopp leave of
the marginals on a GPU is measured, and the class weights are projected to the last digit when training
is over.

Three ways to the classes. "symmetric": the paper's, all weights trained by SGD from class weights
that know nothing. "grouped": memories first, by the fixed point of the marginal likelihood; class
weights from groups of memories that share patches; then the same SGD. "fixed-point": as before, but
SGD moves class weights alone, so that the density of the patches stays at its fixed point.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from mnemosphere.model import initialize, objectives
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import evaluate
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training import SGD, FixedPoint, PassRecord, Solver, latent
from research import fits
from research.fits import group_classes, unlabeled
from research.paper.experiment import Experiment, Run, load_arrays, save_picture
from research.plots.gallery import memory_gallery, soft_labels
from research.report import Comparison, Json, synchronize

_PRIOR = (110, 132, 121, 101, 105, 108, 104, 102, 112, 125)
_TITLES = {
    "authors": "the authors' start, ε = 0.01",
    "symmetric": "SGD from symmetric classes",
    "symmetric, ε = 0.01": "SGD from symmetric classes, ε = 0.01",
}
_SHOWN = 25


def _settings(quick: bool) -> Json:
    cases = [
        {"name": "symmetric", "start": "symmetric", "solver": "sgd", "smoothing": 0.1},
        {"name": "grouped", "start": "grouped", "solver": "sgd", "smoothing": 0.1},
        {"name": "fixed-point", "start": "grouped", "solver": "classes", "smoothing": 0.1},
    ]
    if not quick:
        authors = {"start": "symmetric", "solver": "sgd", "smoothing": 0.01}
        cases.insert(1, {"name": "symmetric, ε = 0.01", **authors})
    return {
        "size": 6,
        "stride": 2,
        "images": 200 if quick else None,
        "memories": 100,
        "varsigma": 0.6,
        "beta": 5.0,
        "prior": list(_PRIOR),
        "sgd": {
            "learning_rate": 0.05 if quick else 0.01,
            "momentum": 0.9 if quick else 0.99,
            "batch_size": 500 if quick else 1000,
        },
        "epochs": 6 if quick else 10,
        "classes": {"learning_rate": 0.1, "momentum": 0.9, "steps": 40 if quick else 200},
        "fixed_point": {"steps_per_pass": 20, "epochs": 4 if quick else 6},
        "cases": cases,
        # Whose memories the paper's figures show: those of its own way to train, which a quick
        # run has no time for.
        "shown": "grouped" if quick else "symmetric",
    }


def _start_settings(quick: bool) -> Json:
    """The authors' start beside ours, with their ε and with 0.1; fewer images, more seeds."""
    authors = {"start": "random", "beta": 0.01, "solver": "sgd", "smoothing": 0.01}
    patches = {"start": "symmetric", "solver": "sgd"}
    return _settings(quick) | {
        "images": 60 if quick else 20000,
        "epochs": 1 if quick else 10,
        "cases": [
            {"name": "authors", **authors},
            {"name": "symmetric, ε = 0.01", **patches, "smoothing": 0.01},
            {"name": "symmetric", **patches, "smoothing": 0.1},
        ],
        "shown": "authors",
    }


def unit_patches(run: Run) -> torch.Tensor:
    """Patches that are not blank as unit rows (n, 36) on the device."""
    stored, chosen = run.data("mnist"), run.settings
    images = stored.x_train[: chosen["images"]].reshape(-1, *stored.image_shape)
    return fits.unit_patches(images, chosen["size"], chosen["stride"], run.device)


def _run(run: Run) -> Json:
    run.progress("cutting patches")
    x = unit_patches(run)
    rows = []
    arrays: dict[str, Any] = {}
    for case in run.settings["cases"]:
        for seed in run.seeds:
            key = f"{case['name']}-{seed}"
            part = _Training(run, case, seed, key)
            rows.append(run.parts.step(key, partial(part.train, x)))
            if seed == run.seeds[0]:
                stored = run.parts.load(key)
                arrays |= {f"{name} {case['name']}": a for name, a in stored.items()}
    run.save_arrays(**arrays)
    if not any(case["name"] == "authors" for case in run.settings["cases"]):
        run.remark(
            "memories start on patches with β = 5 where the authors start at random with 0.01, "
            "from which β leaves its saddle late and to either side; ε = 0.1 where they have 0.01"
        )
    return {"patches": len(x), "rows": rows}


class _Training:
    """One way to memories and classes, and all that is measured on it."""

    def __init__(self, run: Run, case: Json, seed: int, key: str) -> None:
        self.run, self.case, self.seed, self.key = run, case, seed, key
        self.prior = torch.tensor(run.settings["prior"], dtype=torch.float32, device=run.device)

    def train(self, x: torch.Tensor) -> Json:
        """The row of this training; its arrays are stored beside it."""
        run, case = self.run, self.case
        generator = torch.Generator().manual_seed(self.seed)
        began = time.perf_counter()
        size, beta = run.settings["memories"], case.get("beta", run.settings["beta"])
        if case["start"] == "random":
            w = sphere.sample_uniform(size, x.shape[1], generator=generator, device=x.device)
        else:
            w = initialize.from_data(x, size, generator=generator)
        first: list[PassRecord] = []
        if case["start"] == "grouped":
            params, first = self._grouped(x, w, generator)
        else:
            params = fits.begin(
                fits.Start(w, beta),
                latent.latent_prior(self.prior, case["smoothing"]),
                varsigma=run.settings["varsigma"],
            )
        params, history = self._descend(x, params, generator)
        synchronize(x.device)
        seconds = time.perf_counter() - began
        missing = marginal_error(params)
        log_p = params.p.clamp_min(torch.finfo(params.p.dtype).tiny).double().log()
        p = polytope.sinkhorn(log_p, params.p_h, params.p_q, tol=1e-9)
        params = params.replace(p=p.to(params.p))
        run.parts.save(
            self.key,
            w=params.w.cpu().numpy().astype(np.float16),
            p=params.p.cpu().numpy(),
            p_h=params.p_h.cpu().numpy(),
        )
        return {
            "case": case["name"],
            "seed": self.seed,
            "smoothing": case["smoothing"],
            "seconds": round(seconds, 2),
            "loss_memories": [round(r.loss, 5) for r in first],
            "loss_history": [round(r.loss, 5) for r in history],
            "beta_history": [round(r.beta, 3) for r in history],
            "marginal_error_trained": missing,
            **measure(params, x, self.prior, case["smoothing"]),
        }

    def _grouped(
        self, x: torch.Tensor, w: torch.Tensor, generator: torch.Generator
    ) -> tuple[Mixture, list[PassRecord]]:
        chosen = self.run.settings
        rows = unlabeled(x, 1)
        size = -(-len(x) // chosen["fixed_point"]["steps_per_pass"])
        result = fits.continue_training(
            fits.begin(fits.Start(w, chosen["beta"]), w.new_ones(1), varsigma=chosen["varsigma"]),
            rows,
            FixedPoint(batch_size=size, tol=0),
            rule=objectives.marginal,
            passes=chosen["fixed_point"]["epochs"],
            generator=generator,
        )
        self.run.finished(result.status)
        params = group_classes(
            result.params, rows, self.prior, self.case["smoothing"], generator=generator
        )
        return params, result.history

    def _descend(
        self, x: torch.Tensor, params: Mixture, generator: torch.Generator
    ) -> tuple[Mixture, list[PassRecord]]:
        """SGD of Eq. (unsupervised_loss), of everything or of the class weights alone."""
        run, case = self.run, self.case
        run.progress(f"{case['name']}, seed {self.seed}")
        solver: Solver = SGD(**run.settings["sgd"], tol=0)
        passes = run.settings["epochs"]
        if case["solver"] == "classes":
            chosen = run.settings["classes"]
            size = max(len(x) // 20, min(len(x), 4096))
            solver = latent.ClassWeightSGD(chosen["learning_rate"], chosen["momentum"], size, tol=0)
            passes = -(-chosen["steps"] * size // len(x))
        result = fits.continue_training(
            params,
            unlabeled(x, params.n_columns),
            solver,
            rule=objectives.Unsupervised(case["smoothing"]),
            passes=passes,
            generator=generator,
        )
        run.finished(result.status)
        return result.params, result.history


def marginal_error(params: Mixture) -> float:
    """The largest relative error of a row or column sum of p."""
    p, p_h, p_q = params.p.double(), params.p_h.double(), params.p_q.double()
    ratios = torch.cat([p.sum(1) / p_h, p.sum(0) / p_q])
    # A class of no prior has no weight, and no error.
    return float(f"{float((ratios.nan_to_num(1.0) - 1).abs().amax()):.3g}")


class Coherence(NamedTuple):
    """Mean overlap of pairs of memories: of one class, of two classes, and of one shuffled class.

    Classes are coherent as far as `within` lies above `shuffled`.
    """

    within: float
    across: float
    shuffled: float


def coherence(w: torch.Tensor, label: torch.Tensor, *, generator: torch.Generator) -> Coherence:
    """How alike the memories w (P, N) of one class (P,) are.

    Shuffled: the same class sizes dealt out at random, mean of 100.
    """
    w, label = w.double().cpu(), label.cpu()
    overlap = w @ w.T  # (P, P)
    pair = ~torch.eye(len(w), dtype=torch.bool)

    def within(y: torch.Tensor) -> float:
        same = (y[:, None] == y[None, :]) & pair
        return float(overlap[same].mean()) if bool(same.any()) else float("nan")

    other = label[:, None] != label[None, :]
    draws = [within(label[torch.randperm(len(w), generator=generator)]) for _ in range(100)]
    return Coherence(
        within(label),
        float(overlap[other].mean()) if bool(other.any()) else float("nan"),
        sum(draws) / len(draws),
    )


def measure(params: Mixture, x: torch.Tensor, prior: torch.Tensor, smoothing: float) -> Json:
    """β, losses, sharpness, coherence and use of the classes."""
    label = latent.latent_class(params)
    n_classes = len(prior)
    found = coherence(params.w, label, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(label, minlength=n_classes + 1).cpu()
    wanted = (params.n_memories * prior / prior.sum()).cpu()
    rows = unlabeled(x, n_classes + 1)
    soft = params.p[1:] / params.p_h[1:, None]
    rules: dict[str, objectives.LabelRule] = {
        "loss": objectives.Unsupervised(smoothing),
        "loss_marginal": objectives.marginal,
    }
    losses = {name: round(evaluate(params, rows, rule), 5) for name, rule in rules.items()}
    return {
        "beta": round(float(params.beta), 3),
        **losses,
        "sharpness": round(float(soft.amax(1).mean()), 4),
        # None where no two memories are of one class, or of two.
        **{name: None if v != v else round(v, 4) for name, v in found._asdict().items()},
        "memories_per_class": counts.tolist(),
        "memories_wanted": [round(v, 2) for v in wanted.tolist()],
        "largest_gap": round(float((counts[:-1] - wanted).abs().max()), 2),
        "marginal_error": marginal_error(params),
    }


def _compare(measured: Json) -> list[Comparison]:
    found = []
    for case in dict.fromkeys(row["case"] for row in measured["rows"]):
        rows = [row for row in measured["rows"] if row["case"] == case]

        def mean(name: str, rows: list[Json] = rows) -> float:
            return round(float(np.mean([row[name] or 0.0 for row in rows])), 4)

        found += [
            Comparison(f"{case}: β", mean("beta"), unit="", digits=1),
            Comparison(f"{case}: overlap within classes", mean("within"), unit="", digits=3),
            Comparison(f"{case}: the same, shuffled", mean("shuffled"), unit="", digits=3),
            Comparison(f"{case}: sharpness of soft labels", 100 * mean("sharpness"), digits=1),
            Comparison(
                f"{case}: memories of a class off its share", mean("largest_gap"), unit="", digits=1
            ),
        ]
    return found


def _draw(result: Json, folder: Path) -> list[Path]:
    """The paper's five figures."""
    arrays, side = load_arrays(folder), (result["settings"]["size"],) * 2
    classes, shown = range(len(result["settings"]["prior"])), result["settings"]["shown"]
    w, p = (arrays[f"{name} {shown}"].astype(np.float64) for name in ("w", "p"))
    soft = soft_labels(p)
    order = np.lexsort((-soft.max(1), soft.argmax(1)))  # by class, the surest first
    pages = {"fig4": order[:: max(1, len(order) // _SHOWN)][:_SHOWN]}
    for k, start in enumerate(range(0, len(order), _SHOWN)):
        pages[f"fig{7 + k}"] = order[start : start + _SHOWN]
    found = []
    for name, indices in pages.items():
        figure = memory_gallery(w, p, classes=classes, image_shape=side, indices=indices)
        found.append(save_picture(figure, folder, name, result, dpi=110))
    return found


def _compare_starts(measured: Json) -> list[Comparison]:
    """The paper shows memories that are strokes, in classes of similar ones: compare both."""
    found = []
    for case in dict.fromkeys(row["case"] for row in measured["rows"]):
        rows = [row for row in measured["rows"] if row["case"] == case]
        coherence = [(row["within"] or 0.0) - (row["shuffled"] or 0.0) for row in rows]
        for what, values, paper, low, high in (
            ("β at the end", [row["beta"] for row in rows], "memories are strokes", 5.0, 200.0),
            ("overlap within classes less that of shuffled ones", coherence,
             "classes of like memories", 0.1, 1.0),
            ("largest error of the marginals in training",
             [row["marginal_error_trained"] for row in rows], "", None, None),
            ("loss", [row["loss"] for row in rows], "", None, None),
        ):  # fmt: skip
            found.append(
                Comparison(
                    f"{_TITLES[case]}: {what}", float(np.mean(values)), paper, low, high, "",
                    float(np.std(values)), 4 if "error" in what else 3,
                )
            )  # fmt: skip
    return found


EXPERIMENTS = (
    Experiment(
        "fig4",
        "Figs. (unsupervised_DAM_memories) and its appendix, 7 to 10: latent classes of patches",
        _settings,
        _run,
        _draw,
        _compare,
        also=("fig7", "fig8", "fig9", "fig10"),
    ),
    Experiment(
        "fig4-starts",
        "Fig. (unsupervised_DAM_memories): the authors' start and ε, several seeds",
        _start_settings,
        _run,
        compare=_compare_starts,
        seeds=3,
    ),
)

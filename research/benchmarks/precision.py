"""Operands in bfloat16 beside float32: errors, speed of a pass, accuracy and time of fits.

    python -m research precision errors passes fits --device cuda --data DIR
    python -m research precision errors passes --device cpu
    python -m research precision models --device cuda --data DIR

errors: one pass over random rows around random memories against float64, over features, memories
and β_eff. passes: milliseconds of one pass (on a GPU replayed from a graph, the median of many),
arithmetic of its two large products per second, and how much memory it takes beyond rows,
parameters and results. fits: estimators with the settings of the other benchmarks, in both
precisions, from rows in the memory of the device; the first seed is fitted twice, and timed the
second time. models: from rows of MNIST on the sphere, in the memory of the device, to parameters,
without an estimator around it (the start, the passes, the checks), and a conditional classifier
with given settings; each seed many times, in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from sklearn.pipeline import make_pipeline
from torch import Tensor

from mnemosphere import DAMClassifier, PatchEncoder
from mnemosphere.data import ArrayDataset, load
from mnemosphere.model import Batch, Parameters, accumulate, from_memories, objectives
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.products import operands
from mnemosphere.numerics import sphere
from research import report
from research.benchmarks._options import add_data, add_device, parser
from research.fits import CLASSIFIER, mnist_rows, quick_model
from research.report import synchronize

PRECISIONS = ("float32", "bfloat16")
N_CLASSES = 10
CASES = [(64, 1000), (784, 100), (784, 1000), (4000, 1000)]  # features, memories
EXPONENTS = (10.0, 40.0, 100.0, 200.0)  # β_eff
SHAPES = [(784, 1000, 60_000), (64, 1000, 1_000_000), (784, 65_536, 60_000)]  # …, rows
# memories, passes, rows per step
MODELS: list[tuple[int, int, int | Literal["auto"]]] = [
    (1000, 1, 7500),
    (1000, 1, "auto"),
    (1000, 3, "auto"),
    (2000, 1, "auto"),
]
CONDITIONAL = {"n_memories": 1400, "objective": "conditional", "normalize": "unit"}
MODEL_VARSIGMA, TIMES = 0.28, 10
TWO_LAYERS = "two layers, 1000 memories"
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "joint, 1000 memories": {**CLASSIFIER, "n_memories": 1000},
    "joint by defaults, 1000 memories": {"n_memories": 1000, "objective": "joint"},
    "conditional, 100 memories": {"n_memories": 100, "objective": "conditional"},
    "conditional, 1000 memories": {"n_memories": 1000, "objective": "conditional"},
    "two layers, 1000 memories": {
        "n_memories": 1000,
        "objective": "conditional",
        "normalize": "unit",
    },
}


def problem(
    n_features: int, n_memories: int, n_rows: int, beta_eff: float, device: str
) -> tuple[Parameters, Batch]:
    """Random memories, and rows around them, at an overlap of 0.89."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(n: int) -> Tensor:
        return torch.empty(n, n_features, device=device).normal_(generator=generator)

    w = sphere.project(normal(n_memories))
    near = torch.randint(n_memories, (n_rows,), generator=generator, device=device)
    x = sphere.project(w[near] + 0.5 * sphere.project(normal(n_rows)))
    classes = torch.randint(N_CLASSES, (n_rows,), generator=generator, device=device)
    targets = objectives.soft_labels(classes, N_CLASSES, 0.1)
    p_q = torch.full((N_CLASSES + 1,), 1 / (N_CLASSES + 1))
    params = from_memories(w.cpu(), p_q, beta=beta_eff, varsigma=1.0)
    return params.to(device=torch.device(device)), Batch(x, targets)


def errors(device: str) -> list[dict[str, Any]]:
    """Largest error of log_joint, relative errors of the sums, error of the mean loss."""
    found = []
    for n_features, n_memories in CASES:
        for beta_eff in EXPONENTS:
            params, batch = problem(n_features, n_memories, 5000, beta_eff, device)
            exact = params.to(dtype=torch.float64), batch.to(dtype=torch.float64)
            right = accumulate(*exact, objectives.joint)
            scores = log_joint(exact[0], exact[1].x)
            for precision in PRECISIONS:
                with operands(precision):
                    stats = accumulate(params, batch, objectives.joint)
                    off = (log_joint(params, batch.x).double() - scores).abs().amax()
                row = {
                    "features": n_features, "memories": n_memories, "beta_eff": beta_eff,
                    "precision": precision, "log_joint": float(off),
                    "w_bar": _relative(stats.w_bar, right.w_bar),
                    "p_bar": _relative(stats.p_bar, right.p_bar),
                    "loss": abs(float(stats.mean_loss - right.mean_loss)),
                }  # fmt: skip
                print(row, flush=True)
                found.append(row)
    return found


def _relative(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right).norm() / right.norm())


def passes(device: str, repeats: int) -> list[dict[str, Any]]:
    """One pass over all rows."""
    found = []
    for n_features, n_memories, n_rows in SHAPES:
        if device == "cpu":
            n_rows = min(n_rows, 20_000)
            if n_memories > 1000:
                continue
        params, batch = problem(n_features, n_memories, n_rows, 40.0, device)
        for precision in PRECISIONS:
            with operands(precision):
                once = lambda: accumulate(params, batch, objectives.joint)  # noqa: B023, E731
                extra = _extra_memory(once, params) if device == "cuda" else None
                act = _replayed(once) if device == "cuda" else once
                best = _milliseconds(act, device, max(3, repeats * 1000 // n_memories))
            row = {
                "features": n_features, "memories": n_memories, "rows": n_rows,
                "precision": precision, "milliseconds": best,
                "tflop_per_second": 4e-9 * n_rows * n_memories * n_features / best,
                "extra_megabytes": extra,
            }  # fmt: skip
            print(row, flush=True)
            found.append(row)
    return found


def _milliseconds(act: Callable[[], object], device: str, repeats: int) -> float:
    times = []
    for _ in range(repeats + 2):
        synchronize(device)
        began = time.perf_counter()
        act()
        synchronize(device)
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[2:])


def _replayed(act: Callable[[], object]) -> Callable[[], object]:
    """The same from a CUDA graph, as training takes it: small kernels beside the large ones."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        act()
        act()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        act()
    return graph.replay


def _extra_memory(act: Callable[[], object], params: Parameters) -> float:
    """Megabytes beyond rows, parameters and results, which are as large as the parameters."""
    act()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    act()
    results = params.w.nbytes + params.p.nbytes
    return (torch.cuda.max_memory_allocated() - before - results) / 1e6


def fits(
    device: str, seeds: int, directory: Any, sets: list[str], only: str
) -> list[dict[str, Any]]:
    """Accuracy on test rows, seconds of `fit` from rows on the device."""
    found = []
    for name in sets:
        data = load(name, directory=directory)
        x, x_test = (torch.from_numpy(v).to(device) for v in (data.x_train, data.x_test))
        for what, settings in CLASSIFIERS.items():
            if not what.startswith(only):
                continue
            for seed in range(seeds):
                for precision in PRECISIONS:
                    given = {"device": device, "random_state": seed, "precision": precision}
                    model: Any = DAMClassifier(**{**settings, **given})
                    if what == TWO_LAYERS:
                        encoder = PatchEncoder(random_state=seed, device=device)
                        model = make_pipeline(encoder, model)
                    for _ in range(2 if seed == 0 else 1):
                        synchronize(device)
                        began = time.perf_counter()
                        model.fit(x, data.y_train)
                        synchronize(device)
                        seconds = time.perf_counter() - began
                    guessed = torch.as_tensor(model.predict(x_test)).cpu().numpy()
                    right = 100 * float((guessed == data.y_test).mean())
                    row = {
                        "data": name, "what": what, "seed": seed, "precision": precision,
                        "accuracy": right, "seconds": seconds,
                    }  # fmt: skip
                    print(row, flush=True)
                    found.append(row)
    return found


def models(device: str, seeds: int, directory: Any) -> list[dict[str, Any]]:
    """Accuracies on test rows, and milliseconds of every run but the first, which warms up."""
    training, test = mnist_rows(directory, device)
    rows, found = ArrayDataset(training), []
    for n_memories, passes, batch_size in MODELS:

        def fitted(seed: int, n=n_memories, passes=passes, size=batch_size) -> Parameters:  # type: ignore[no-untyped-def]
            with operands("bfloat16" if device == "cuda" else "float32"):
                return quick_model(
                    rows, n, passes, batch_size=size, varsigma=MODEL_VARSIGMA, seed=seed
                )

        def right(params: Parameters) -> float:
            hits = log_joint(params, test.x)[:, :-1].argmax(1) == test.targets[:, :-1].argmax(1)
            return 100 * float(hits.double().mean())

        said = {"memories": n_memories, "passes": passes, "rows_per_step": batch_size}
        found.append(said | _often(fitted, right, device, seeds, TIMES))
        print(found[-1], flush=True)
    data = load("mnist", directory=directory)
    x, x_test = (torch.from_numpy(v).to(device) for v in (data.x_train, data.x_test))

    def conditional(seed: int) -> DAMClassifier:
        return DAMClassifier(**CONDITIONAL, device=device, random_state=seed).fit(x, data.y_train)

    def scored(model: DAMClassifier) -> float:
        guessed = torch.as_tensor(model.predict(x_test)).cpu().numpy()
        return 100 * float((guessed == data.y_test).mean())

    said = {"memories": CONDITIONAL["n_memories"], "objective": "conditional"}
    found.append(said | _often(conditional, scored, device, seeds, 2))
    print(found[-1], flush=True)
    return found


def _often(
    act: Callable[[int], Any], evaluate: Callable[[Any], float], device: str, seeds: int, times: int
) -> dict[str, Any]:
    """How good each seed is, and how long all take, in turn."""
    accuracies, milliseconds = [], []
    for turn in range(times + 1):
        for seed in range(seeds):
            synchronize(device)
            began = time.perf_counter()
            made = act(seed)
            synchronize(device)
            if turn > 0:
                milliseconds.append(1e3 * (time.perf_counter() - began))
            else:
                accuracies.append(evaluate(made))
    return {"accuracies": accuracies, "milliseconds": sorted(milliseconds)}


def main(words: list[str]) -> None:
    """Run the parts that are asked for."""
    made = parser(__doc__, "precision")
    made.add_argument("parts", nargs="+", choices=["errors", "passes", "fits", "models"])
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--only", default="", help="fits whose name starts so")
    made.add_argument("--repeats", type=int, default=30, help="timed passes of 1000 memories")
    made.add_argument("--sets", nargs="+", default=["mnist", "fashion-mnist"])
    add_device(made, "auto")
    add_data(made)
    args = made.parse_args(words)
    device = torch.device(args.device).type
    result = report.head(
        report.command_line(["precision", *words]), device=device, seeds=range(args.seeds)
    )
    for part in args.parts:
        result[part] = {
            "errors": lambda: errors(device),
            "passes": lambda: passes(device, args.repeats),
            "fits": lambda: fits(device, args.seeds, args.data, args.sets, args.only),
            "models": lambda: models(device, args.seeds, args.data),
        }[part]()
        report.write(args.out, result)

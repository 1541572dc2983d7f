"""Test accuracy on MNIST: Table (accuracy_table) by SGD, and the fixed point beside it.

    python -m benchmarks.accuracy_table --solver sgd --device cuda --data DIR --out FILE.json
    python -m benchmarks.accuracy_table --solver fixed-point --seeds 3 --data DIR

SGD runs the authors' preset: memories uniform on the sphere, batch 1000, the last 10% of the
training rows for early stopping with patience 1, at most 300 passes. The fixed point starts from
training rows and takes 5 passes over all of them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from benchmarks._report import made_by, write
from mnemosphere import datasets
from mnemosphere.model import initialize, objectives
from mnemosphere.model.parameters import from_memories
from mnemosphere.training.batches import Data
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.loop import judge, train
from mnemosphere.training.sgd import SGD

SMOOTHING = 0.1
SETTINGS = {  # name: (β, ς); β None is learned
    "beta=6": (6.0, 1.0),
    "beta=10": (10.0, 1.0),
    "beta=14": (14.0, 1.0),
    "beta=18": (18.0, 1.0),
    "varsigma=0.25": (None, 0.25),
}


def load(directory: str | None, device: str) -> tuple[Data, Data]:
    """MNIST on the sphere: pixel/255, minus the row mean, over the row norm."""
    raw = datasets.load("mnist", directory=directory)
    parts = []
    for images, labels in ((raw.x_train, raw.y_train), (raw.x_test, raw.y_test)):
        x = torch.from_numpy(images).to(device, torch.float32) / 255
        x = x - x.mean(1, keepdim=True)
        y = torch.from_numpy(labels).to(device)
        parts.append(
            Data(x / x.norm(dim=1, keepdim=True), objectives.soft_labels(y, 10, SMOOTHING))
        )
    return parts[0], parts[1]


def run_sgd(
    data: Data, test: Data, beta: float | None, varsigma: float, memories: int, seed: int
) -> dict[str, object]:
    """The authors' preset."""
    generator = torch.Generator().manual_seed(seed)
    rows, validation = data.split_tail(0.1)
    w = initialize.uniform(memories, rows.x.shape[1], generator=generator, device=rows.x.device)
    params = from_memories(
        w, rows.targets.mean(0), beta=1.0 if beta is None else beta, varsigma=varsigma
    )
    result = train(
        params,
        rows,
        SGD.paper(learn_beta=beta is None),
        max_epochs=300,
        validation=validation,
        patience=1,
        generator=generator,
    )
    return _summary(result, test)


def run_fixed_point(
    data: Data, test: Data, beta: float | None, varsigma: float, memories: int, seed: int
) -> dict[str, object]:
    """Five passes of incremental fixed-point steps from training rows."""
    generator = torch.Generator().manual_seed(seed)
    w = initialize.from_data(data.x, memories, generator=generator)
    start = beta or initialize.estimate_beta(w, data.x, varsigma, generator=generator)
    params = from_memories(w, data.targets.mean(0), beta=start, varsigma=varsigma)
    result = train(
        params,
        data,
        FixedPoint(batch_size=3000, learn_beta=beta is None),
        max_epochs=5,
        generator=generator,
    )
    return _summary(result, test)


def _summary(result, test):  # type: ignore[no-untyped-def]
    _, accuracy = judge(result.params, test, objectives.joint)
    return {
        "accuracy": round(100 * accuracy, 2),
        "passes": len(result.history),
        "beta": round(float(result.params.beta), 2),
        "status": result.status,
        "loss": round(result.history[-1].loss, 5),
        "seconds": round(sum(r.seconds for r in result.history), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solver", choices=["sgd", "fixed-point"], default="fixed-point")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=None)
    parser.add_argument("--memories", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    names = args.settings or (list(SETTINGS) if args.solver == "sgd" else ["varsigma=0.25"])
    data, test = load(args.data, args.device)
    run = run_sgd if args.solver == "sgd" else run_fixed_point
    rows = []
    for name in names:
        for seed in range(args.seeds):
            began = time.perf_counter()
            row = {"setting": name, "seed": seed}
            row |= run(data, test, *SETTINGS[name], args.memories, seed)
            print(row, f"wall {time.perf_counter() - began:.1f} s", flush=True)
            rows.append(row)
    command = (
        f"python -m benchmarks.accuracy_table --solver {args.solver} --settings "
        f"{' '.join(names)} --memories {args.memories} --seeds {args.seeds} "
        f"--device {args.device} --data DIR"
    )
    head = made_by(command, args.device)
    write(args.out, {**head, "memories": args.memories, "rows": rows})


if __name__ == "__main__":
    main()

"""What the benchmarks of a trained classifier share: the model of MNIST, and a report's header."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import mnemosphere as mn
from benchmarks._report import made_by
from benchmarks._report import write as write_report

SETTINGS = {"varsigma": 0.25, "normalize": "center", "max_epochs": 5, "dtype": "float32"}


def parser(description: str, out: str, seeds: int) -> argparse.ArgumentParser:
    """Options that all of them have."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--memories", type=int, default=1000)
    p.add_argument("--seeds", type=int, default=seeds)
    p.add_argument("--device", default="cpu")
    p.add_argument("--data", default=None, help="folder with the IDX files")
    p.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / out)
    return p


def fit(memories: int, seed: int, device: str, data: Any) -> mn.DAMClassifier:
    """The joint model of Table (accuracy_table), last row, by five passes of the fixed point."""
    model = mn.DAMClassifier(memories, random_state=seed, device=device, **SETTINGS)
    return model.fit(data.x_train, data.y_train)


def write(args: argparse.Namespace, name: str, content: dict[str, Any]) -> None:
    """The result with what it was made by."""
    options = {k: v for k, v in vars(args).items() if k not in ("data", "out") and v is not None}
    words = [f"--{k} {v}" for k, v in options.items()]
    head = made_by(f"python -m benchmarks.{name} {' '.join(words)} --data DIR", args.device)
    settings = {"memories": args.memories, **SETTINGS}
    write_report(args.out, {**head, "settings": settings, **content})
    print(f"wrote {args.out.name}")

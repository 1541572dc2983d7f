"""What the benchmarks of a trained classifier share: the model of MNIST, and a report's header."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch

import mnemosphere as mn

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
    report = {
        "command": f"python -m benchmarks.{name} {' '.join(words)} --data DIR",
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "settings": {"memories": args.memories, **SETTINGS},
        **content,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"wrote {args.out.name}")

"""One part of a campaign, in a process of its own."""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

import torch

from research import report
from research.trust import run


def main(name: str, n: int, seed: int, out: Path) -> None:
    """Try so many attempts and write what came of them."""
    torch.set_num_threads(1)
    memory = Path("/dev/shm")  # most files live for a moment
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        attempts = import_module(f"research.trust.{name}").attempts(n, Path(folder), seed)
        report.write(out, run(attempts).as_dict())


if __name__ == "__main__":
    campaign, attempts, first, file = sys.argv[1:]
    main(campaign, int(attempts), int(first), Path(file))

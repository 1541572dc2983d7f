"""The table of the page on trust: what the campaigns tried."""

from __future__ import annotations

from research.pages.marks import markdown
from research.pages.stored import read, source
from research.report import Json
from research.trust import DEFECTS

_NAMES = {
    "model_files": "model files with something changed",
    "kills": "fits killed and started again",
    "checkpoints": "checkpoints with something changed",
    "settings": "runs taken up with other settings or data",
    "inputs": "rows and settings of every kind",
    "commands": "commands with bad files, interrupts, closed pipes",
    "promises": "promises over random problems",
}


def campaigns_table() -> str:
    """Each campaign at its full size, and again after what it found was mended."""
    found, again = read("trust_found"), read("trust")
    lines = []
    for key, name in _NAMES.items():
        one = found[key]
        two = again[key]
        fine = {k: n for k, n in one["outcomes"].items() if k not in DEFECTS}
        told = ", ".join(f"{n:,} {k}" for k, n in sorted(fine.items(), key=lambda kv: -kv[1]))
        lines.append([name, f"{one['tried']:,}", told, f"{one['defects']:,}", f"{two['tried']:,}",
                      f"{two['defects']:,}"])  # fmt: skip
    head = ["campaign", "tried", "fine", "defects found, mended", "tried again", "defects left"]
    runs: list[Json] = [run for file in (found, again) for run in file.values()]
    return "\n\n".join([markdown(head, lines), "\n".join(dict.fromkeys(map(source, runs)))])


TABLES = {"trust campaigns": campaigns_table}

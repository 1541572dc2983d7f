"""Checkpoints with something changed: a run goes on to the same bits, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.torch import save_file

import mnemosphere as mn
from mnemosphere.files import write_tensors
from mnemosphere.training.callbacks import Callback, Run
from research.trust import Attempt
from research.trust.kills import cases, fresh, same_bits
from research.trust.model_files import mutate_bytes, mutate_header, mutate_tensors, read

_STOPS = (1, 2, 5, 9, 14, 25)  # batches after which a run is broken off; a fit has several parts


class Broken(Exception):  # noqa: N818 (what a fit is broken off by)
    """Training ends here."""


class Stop(Callback):
    """Break training off after so many batches in all."""

    def __init__(self, batches: int) -> None:
        self._left = batches

    def on_batch(self, run: Run, share_done: float) -> None:
        """Count."""
        self._left -= 1
        if self._left == 0:
            raise Broken


class Case(NamedTuple):
    """A fit, what it comes to, and the files of its checkpoint after some passes."""

    model: Any
    data: tuple[Any, Any]
    straight: Any
    stored: list[dict[str, bytes]]


def broken_off(model: Any, data: tuple[Any, Any], folder: Path) -> list[dict[str, bytes]]:
    """The files of the checkpoint after each of `_STOPS`, and after the end."""
    found = []
    for batches in _STOPS:
        place, ended = fresh(folder / "stored"), True
        stored = mn.Checkpoint(place / "run", interval=0.0)
        model.set_params(callbacks=[stored, Stop(batches)])
        try:
            model.fit(*data)
        except Broken:
            ended = False
        found.append({path.name: path.read_bytes() for path in place.iterdir()})
        if ended:
            break
    return found


def prepare(model: Any, x: Any, y: Any, folder: Path) -> Case:
    """Fit it, and break it off."""
    straight = type(model)(**model.get_params()).fit(x, y)
    return Case(model, (x, y), straight, broken_off(model, (x, y), folder))


def change(
    place: Path, others: list[dict[str, bytes]], rng: np.random.Generator
) -> tuple[str, bool]:
    """Change one file of a checkpoint: (what was done, whether its checksum is right)."""
    names = sorted(path.name for path in place.iterdir())
    path = place / names[int(rng.integers(len(names)))]
    kind = rng.choice(["bytes", "bytes", "sealed", "sealed", "other", "lost", "old"])
    if kind == "bytes":
        what, content = mutate_bytes(path.read_bytes(), rng)
        path.write_bytes(content)
    elif kind in ("sealed", "old"):
        header, tensors = read(path)
        if rng.random() < 0.6 or not tensors:
            what, header = mutate_header(header, rng)
        else:
            what, tensors = mutate_tensors(tensors, rng)
        if kind == "old":  # without a checksum
            save_file(tensors, path, {"mnemosphere": "{}"})
        else:
            write_tensors(path, tensors, header)
    elif kind == "other":  # a file of another part or of another moment
        held = others[int(rng.integers(len(others)))]
        what = str(rng.choice(sorted(held)))
        path.write_bytes(held[what])
    else:
        what = "deleted"
        path.unlink()
    return f"{kind} {path.name}: {what}", kind == "sealed"


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """A file of a checkpoint changed, and the run taken up again."""
    rng = np.random.default_rng(seed)
    fits = {name: case for name, case in cases(folder, seed).items()
            if name != "drawn seed" and "ranks" not in name}  # fmt: skip
    known: dict[str, Case] = {}
    for _ in range(n):
        name = str(rng.choice(list(fits)))
        case = known.setdefault(name, known.get(name) or prepare(*fits[name], folder))
        place = fresh(folder / "run")
        for file, content in case.stored[int(rng.integers(len(case.stored)))].items():
            (place / file).write_bytes(content)
        what, sealed = change(place, case.stored, rng)

        def attempt(case: Case = case, place: Path = place, sealed: bool = sealed) -> str:
            case.model.set_params(callbacks=[mn.Checkpoint(place / "run")])
            resumed = case.model.fit(*case.data)
            if same_bits(resumed, case.straight):
                return "the same bits"
            finite = np.isfinite(resumed.memories_).all() and np.isfinite(resumed.class_weights_)
            if not np.all(finite):
                return "not finite"
            return "another run, sealed" if sealed else "another result"

        yield f"{name}, {what}", attempt

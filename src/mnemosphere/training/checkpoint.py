"""Checkpoints: a training run goes on from one with the same bits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from mnemosphere.files import (
    join_prefixes,
    read_tensors,
    remove_leftovers,
    strip_prefix,
    write_tensors,
)
from mnemosphere.model.parameters import Parameters
from mnemosphere.schema import (
    Array,
    check_fields,
    check_tensors,
    items,
    maybe,
    number,
    record_of,
    text,
    whole,
)
from mnemosphere.training.callbacks import Callback, PassRecord, Run

__all__ = ["Checkpoint"]

FORMAT, RUN_FORMAT = "mnemosphere-checkpoint", "mnemosphere-run"
VERSION = 3
_HEADER = {
    "format": text, "version": whole(), "fingerprint": text, "best_loss": maybe(number()),
    "waited": whole(), "history": items(record_of(PassRecord)),
}  # fmt: skip
_TRY = (
    "delete it, or choose another path; with {run} in the path every run has files of its own, "
    "folds and trials of a search too"
)


class Checkpoint(Callback):
    """Save the run after every pass, and go on from the file if there is one.

    A training of several parts (phases of growth, the refinement) has one file per part, named
    after `path`: finished parts are read back, an unfinished one goes on where it stopped. What an
    estimator was fitted with, and the seed it drew, is in `path`.run: a fit of the same estimator
    to the same data goes on with them, another one is refused. {run} in the path stands for that.
    """

    needs_fingerprint = True

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._key = ""

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    def file(self, stage: str) -> Path:
        """Where a part of the training is stored."""
        path = self.path.with_name(self.path.name.replace("{run}", self._key[:12]))
        return path.with_name(f"{path.name}.{stage}") if stage else path

    def identify(self, identity: Mapping[str, Any], seed: int) -> int:
        """Go on with the run in the files if it is this one; return the seed it drew."""
        self._key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        path = self._place("run")
        if not path.exists():
            header = {"format": RUN_FORMAT, "version": VERSION, "identity": dict(identity)}
            write_tensors(path, {}, {**header, "seed": seed})
            return seed
        header, _ = read_tensors(path, RUN_FORMAT, VERSION)
        stored, drawn = header.get("identity"), header.get("seed")
        if not isinstance(stored, dict) or not isinstance(drawn, int):
            raise ValueError(f"{path} is damaged: it names no run; delete it")
        as_text = json.dumps  # NaN is not equal to itself
        other = next((k for k in identity if as_text(stored.get(k)) != as_text(identity[k])), None)
        if other is not None:
            what = "its rows or labels are others"
            if other != "data":
                what = f"{other} is {stored.get(other)!r} there and {identity[other]!r} here"
            raise ValueError(f"checkpoint {path} is of another run ({what}): {_TRY}")
        return drawn

    def _place(self, stage: str) -> Path:
        path = self.file(stage)
        if not path.parent.is_dir():
            raise ValueError(f"no folder {path.parent} for the checkpoint: create it first")
        remove_leftovers(path)
        return path

    def on_start(self, run: Run) -> None:
        """Fill the run from the file, if there is one; ValueError if that is of another run."""
        path = self._place(run.stage)
        if path.exists():
            self._load(path, run)

    def on_pass(self, run: Run) -> None:
        """Write the file, atomically."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "state": run.state,
            "params": run.params.to_tensors(),
            "best": {} if run.best is None else run.best.to_tensors(),
        }
        header = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self._key + run.fingerprint,
            "best_loss": run.best_loss if run.best is not None else None,
            "waited": run.waited,
            "history": [record.as_dict() for record in run.history],
        }
        tensors = {"generator": run.generator.get_state(), **join_prefixes(parts)}
        write_tensors(self.file(run.stage), tensors, header)

    def _load(self, path: Path, run: Run) -> None:
        header, tensors = read_tensors(path, FORMAT, VERSION)
        if header.get("fingerprint") != self._key + run.fingerprint:
            raise ValueError(
                f"checkpoint {path} is of another run (its data or settings differ): {_TRY}"
            )
        try:
            _fill(run, header, tensors)
        except (KeyError, RuntimeError, ValueError) as error:
            raise ValueError(f"checkpoint {path} is damaged: {error}; delete it") from error
        if run.n_iter > run.max_iter:
            raise ValueError(
                f"checkpoint {path} has {run.n_iter} passes, more than max_iter={run.max_iter}: "
                "raise max_iter or choose another path"
            )


def _fill(run: Run, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Set the run to what was stored; ValueError where that is no run of these sizes."""
    check_fields(header, _HEADER)
    history = [PassRecord(**record) for record in header["history"]]
    if [record.n_iter for record in history] != list(range(1, len(history) + 1)):
        raise ValueError("its passes are not counted from 1")
    generator = run.generator.get_state()
    like = {"generator": _like(generator)}
    for part, values in (("params", run.params.to_tensors()), ("state", run.state)):
        like |= {f"{part}.{name}": _like(value) for name, value in values.items()}
    if header["best_loss"] is not None:
        like |= {f"best.{name}": _like(v) for name, v in run.params.to_tensors().items()}
    check_tensors(tensors, like, {})
    device = run.params.w.device
    read = {
        part: Parameters.from_tensors(strip_prefix(tensors, part), device=device).check()
        for part in (("params",) if header["best_loss"] is None else ("params", "best"))
    }
    run.generator.set_state(tensors["generator"])
    state = strip_prefix(tensors, "state")
    run.state = {name: state[name].to(old.device) for name, old in run.state.items()}
    run.params, run.best = read["params"], read.get("best")
    run.waited, run.history = header["waited"], history
    if run.best is not None:
        run.best_loss = float(header["best_loss"])


def _like(tensor: Tensor) -> Array:
    """Of the same shape and type."""
    return Array(" ".join(map(str, tensor.shape)), tensor.dtype, nan=tensor.is_floating_point())

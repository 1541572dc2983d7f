"""Checkpoints: a training run goes on from one with the same bits."""

from __future__ import annotations

import zlib
from os import PathLike
from pathlib import Path

from torch import Tensor

from mnemosphere.files import read_tensors, strip_prefix, write_tensors
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import Callback, PassRecord, Run

__all__ = ["Checkpoint", "parameter_checksum"]

FORMAT = "mnemosphere-checkpoint"
VERSION = 3


def parameter_checksum(params: Parameters) -> int:
    """CRC of all bytes of the parameters."""
    value = 0
    for tensor in params.to_tensors().values():
        value = zlib.crc32(tensor.detach().cpu().contiguous().numpy().data, value)
    return value


class Checkpoint(Callback):
    """Save the run after every pass, and go on from the file if there is one.

    A training of several parts (phases of growth, the refinement) has one file per part, named
    after `path`: finished parts are read back, an unfinished one goes on where it stopped.
    """

    needs_fingerprint = True

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    def file(self, stage: str) -> Path:
        """Where a part of the training is stored."""
        return self.path.with_name(f"{self.path.name}.{stage}") if stage else self.path

    def on_start(self, run: Run) -> None:
        """Fill the run from the file, if there is one; ValueError if that is of another run."""
        path = self.file(run.stage)
        if not path.parent.is_dir():
            raise ValueError(f"no folder {path.parent} for the checkpoint: create it first")
        if path.exists():
            _load(path, run)

    def on_pass(self, run: Run) -> None:
        """Write the file, atomically."""
        tensors: dict[str, Tensor] = {"generator": run.generator.get_state()}
        tensors |= {f"state.{name}": t for name, t in run.state.items()}
        tensors |= {f"params.{name}": t for name, t in run.params.to_tensors().items()}
        if run.best is not None:
            tensors |= {f"best.{name}": t for name, t in run.best.to_tensors().items()}
        header = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": run.fingerprint,
            "best_loss": run.best_loss if run.best is not None else None,
            "waited": run.waited,
            "history": [record.as_dict() for record in run.history],
        }
        write_tensors(self.file(run.stage), tensors, header)


def _load(path: Path, run: Run) -> None:
    header, tensors = read_tensors(path, FORMAT, VERSION)
    if header.get("fingerprint") != run.fingerprint:
        raise ValueError(
            f"checkpoint {path} is of another run (its data or settings differ): "
            "delete it or choose another path"
        )
    device = run.params.w.device
    try:
        run.params = Parameters.from_tensors(strip_prefix(tensors, "params"), device=device)
        state = strip_prefix(tensors, "state")
        run.state = {name: state[name].to(old.device) for name, old in run.state.items()}
        run.waited = int(header["waited"])
        run.history = [PassRecord(**record) for record in header["history"]]
        if header["best_loss"] is not None:
            run.best = Parameters.from_tensors(strip_prefix(tensors, "best"), device=device)
            run.best_loss = float(header["best_loss"])
        run.generator.set_state(tensors["generator"])
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"checkpoint {path} lacks a part ({error}): delete it") from error
    if run.n_iter > run.max_iter:
        raise ValueError(
            f"checkpoint {path} has {run.n_iter} passes, more than max_iter={run.max_iter}: "
            "raise max_iter or choose another path"
        )

"""Checkpoints: a training run resumes from one bitwise identically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from mnemosphere.base.files import join_prefixes, read_tensors, strip_prefix, write_tensors
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import Callback, PassRecord, Run

FORMAT, RUN_FORMAT = "mnemosphere-checkpoint", "mnemosphere-run"
VERSION = 7
_SHOWN = 100  # characters of a setting
_TRY = (
    "delete it, or choose another path; with {run} in the path every run has files of its own, "
    "folds and trials of a search too"
)


class Checkpoint(Callback):
    """Save the run after every pass, and continue from the file if there is one.

    If training has several parts, such as phases of growth, each has a file named after `path`.
    Finished parts are read back, an unfinished one continues. `path`.run records the settings, the data
    and the seed. A fit of the same estimator to the same data continues with them; another fit is
    refused.

    Parameters
    ----------
    path : str or path
        The file. {run} in it stands for the identity of the fit: folds and trials of a search then
        have files of their own.

    Examples
    --------
    >>> settings = {"callbacks": [mn.Checkpoint("run.safetensors")]}
    >>> first = clf.set_params(**settings).fit(X_train, y_train).predict(X_test)
    >>> bool((clf.fit(X_train, y_train).predict(X_test) == first).all())  # read back from the file
    True
    """

    needs_fingerprint = True

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path, self._key = Path(path), ""

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    def file(self, stage: str) -> Path:
        """Get the path of a part of the training.

        Parameters
        ----------
        stage : str
            Name of the part; "" if there is only one.

        Returns
        -------
        pathlib.Path
            The file.

        Examples
        --------
        >>> mn.Checkpoint("run.safetensors").file("").name
        'run.safetensors'
        """
        path = self.path.with_name(self.path.name.replace("{run}", self._key[:12]))
        return path.with_name(f"{path.name}.{stage}") if stage else path

    def identify(self, identity: Mapping[str, Any], seed: int) -> int:
        """Go on with the run in the files if it is this one; return the seed it drew."""
        self._key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        path = self._place("run")
        if not path.exists():
            about = {"format": RUN_FORMAT, "version": VERSION, "identity": dict(identity)}
            write_tensors(path, {}, {**about, "seed": seed})
            return seed
        header, _ = read_tensors(path, RUN_FORMAT, VERSION)
        stored, drawn = header["identity"], int(header["seed"])
        as_text = json.dumps  # NaN is not equal to itself
        other = next((k for k in identity if as_text(stored.get(k)) != as_text(identity[k])), None)
        if other is not None:
            what = "its rows or labels are others"
            if other != "data":
                there, here = (repr(run.get(other))[:_SHOWN] for run in (stored, identity))
                what = f"{other} is {there} there and {here} here"
            raise ValueError(f"checkpoint {path} is of another run ({what}): {_TRY}")
        return drawn

    def _place(self, stage: str) -> Path:
        path = self.file(stage)
        if not path.parent.is_dir():
            raise ValueError(f"no folder {path.parent} for the checkpoint: create it first")
        return path

    def on_start(self, run: Run) -> None:
        """Fill the run from the file, if there is one; ValueError if that is of another run."""
        path = self._place(run.stage)
        if path.exists():
            self._load(path, run)

    def on_pass(self, run: Run) -> None:
        """Write the file, atomically."""
        parts = {"state": run.state, "params": run.params.to_tensors()}
        if run.best is not None:
            parts["best"] = run.best.to_tensors()
        tensors = {"generator": run.generator.get_state(), **join_prefixes(parts)}
        header = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": self._key + run.fingerprint,
            "best_loss": run.best_loss if run.best is not None else None,
            "waited": run.waited,
            "history": [record.as_dict() for record in run.history],
        }
        write_tensors(self.file(run.stage), tensors, header)

    def _load(self, path: Path, run: Run) -> None:
        header, tensors = read_tensors(path, FORMAT, VERSION)
        if header.get("fingerprint") != self._key + run.fingerprint:
            raise ValueError(
                f"checkpoint {path} is of another run (its data or settings differ): {_TRY}"
            )
        _fill(run, header, tensors)
        if run.n_iter > run.max_iter:
            raise ValueError(
                f"checkpoint {path} has {run.n_iter} passes, more than max_iter={run.max_iter}: "
                "raise max_iter or choose another path"
            )


def _fill(run: Run, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Set the run to what was stored, which the seal and the fingerprint of the file vouch for."""

    def stored(name: str) -> Parameters:
        own: dict[str, Any] = strip_prefix(tensors, name)
        found = Parameters(**{**own, "varsigma": float(own["varsigma"])})
        return found.to(device=run.params.w.device)

    run.params = stored("params")
    if header["best_loss"] is not None:
        run.best, run.best_loss = stored("best"), header["best_loss"]
    state = strip_prefix(tensors, "state")
    run.state = {name: state[name].to(old.device) for name, old in run.state.items()}
    run.generator.set_state(tensors["generator"])
    run.waited = header["waited"]
    run.history = [PassRecord(**record) for record in header["history"]]

"""Checkpoints: a fit that was ended goes on after its last finished pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from glob import escape
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from mnemosphere.base.files import read_tensors, write_tensors
from mnemosphere.model.mixture import Mixture
from mnemosphere.training.callbacks import Callback, PassRecord, Run

FORMAT, VERSION = "mnemosphere-checkpoint", 8
_TRY = "delete it, or choose another path"


class Checkpoint(Callback):
    """Save a fit after every pass, and go on from the file if there is one.

    It is one file, written aside and renamed. The same call with the same settings, on rows and classes as
    many as before, goes on after the last finished pass, with the seed that was drawn; other settings are
    refused. Rows themselves are not compared. The file is removed when the fit is finished.

    Parameters
    ----------
    path : str or path
        The file.

    Examples
    --------
    >>> saved = mn.Checkpoint("run.ckpt")
    >>> clf.set_params(callbacks=[saved]).fit(X_train, y_train).predict(X_test[:3])
    array([0, 2, 1])
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._header: dict[str, Any] = {}
        self._tensors: dict[str, Tensor] = {}

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"

    def begin(self, settings: Mapping[str, Any], seed: int) -> int:
        """Read the file, if there is one: `fit` calls it first.

        Parameters
        ----------
        settings : mapping
            What the fit has in common with the one in the file: settings and sizes.
        seed : int
            The seed that was drawn.

        Returns
        -------
        int
            The seed to train with: that of the file.

        Examples
        --------
        >>> mn.Checkpoint("new.ckpt").begin({}, seed=7)
        7
        """
        if not self.path.parent.is_dir():
            raise ValueError(f"no folder {self.path.parent} for the checkpoint: create it first")
        self._header = {"format": FORMAT, "version": VERSION, "seed": seed, "stages": {}}
        self._header["settings"], self._tensors = dict(settings), {}
        if not self.path.exists():
            return seed
        header, tensors = read_tensors(self.path, FORMAT, VERSION)
        for name, here in settings.items():
            there = header["settings"].get(name)
            if json.dumps(there) != json.dumps(here):  # NaN is not equal to itself
                raise ValueError(
                    f"checkpoint {self.path} is of another fit ({name} is {there!r:.100} there and "
                    f"{here!r:.100} here): {_TRY}"
                )
        self._header, self._tensors = header, tensors
        return int(header["seed"])

    def finish(self) -> None:
        """Remove the file of a finished fit, and what killed ones left beside it: `fit` calls it last.

        Examples
        --------
        >>> saved = mn.Checkpoint("run.ckpt")
        >>> saved.finish()
        >>> saved.path.exists()
        False
        """
        unfinished = self.path.parent.glob(
            f".{escape(self.path.name)}.*"
        )  # of fits that were killed
        for path in (self.path, *unfinished):
            path.unlink(missing_ok=True)
        self._header, self._tensors = {}, {}

    def on_start(self, run: Run) -> None:
        """Fill the run from the file, if it has this stage of the training."""
        if not self._header:
            self.begin({}, 0)
        about = self._header["stages"].get(run.stage)
        if about is None:
            return
        own = _strip_prefix(self._tensors, f"stage {run.stage}")
        state, device = _strip_prefix(own, "state"), run.params.w.device
        alike = (
            own["params.w"].shape[1] == run.params.n_features and state.keys() == run.state.keys()
        )
        if not alike or any(state[k].shape != old.shape for k, old in run.state.items()):
            raise ValueError(f"checkpoint {self.path} is of a model of another size: {_TRY}")

        def stored(name: str) -> Mixture:
            found: dict[str, Any] = _strip_prefix(own, name)
            return Mixture(**found | {"varsigma": float(found["varsigma"])}).to(device=device)

        run.params = stored("params")
        if about["best_loss"] is not None:
            run.best, run.best_loss = stored("best"), about["best_loss"]
        run.state = {name: state[name].to(old.device) for name, old in run.state.items()}
        run.generator.set_state(own["generator"])
        run.waited = about["waited"]
        run.history = [PassRecord(**record) for record in about["history"]]

    def on_pass(self, run: Run) -> None:
        """Write the file."""
        parts = {"params": run.params.to_tensors(), "state": run.state}
        parts |= {} if run.best is None else {"best": run.best.to_tensors()}
        own = {"generator": run.generator.get_state(), **_join_prefixes(parts)}
        self._tensors |= _join_prefixes({f"stage {run.stage}": own})
        self._header["stages"][run.stage] = {
            "best_loss": run.best_loss if run.best is not None else None, "waited": run.waited,
            "history": [record.as_dict() for record in run.history],
        }  # fmt: skip
        write_tensors(self.path, self._tensors, self._header)


def _strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors named `prefix.*`, without that prefix."""
    start = prefix + "."
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def _join_prefixes(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several parts, each named `part.name`: what `_strip_prefix` takes apart."""
    return {f"{part}.{name}": t for part, tensors in parts.items() for name, t in tensors.items()}

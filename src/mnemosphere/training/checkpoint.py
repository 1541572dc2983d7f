"""Checkpoints: a fit that was ended goes on after its last finished pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from glob import escape
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from mnemosphere.base.files import read_tensors, write_tensors
from mnemosphere.model.mixture import Mixture
from mnemosphere.training.callbacks import Callback, PassRecord, Run

FORMAT, VERSION = "mnemosphere-checkpoint", 9
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
        self._stage = 0  # trainings that have begun, of those that a fit takes one after the other

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
        self._stage, self._tensors = 0, {}
        self._header = {"format": FORMAT, "version": VERSION, "seed": seed, "histories": []}
        self._header["settings"] = dict(settings)
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
        for path in (self.path, *self.path.parent.glob(f".{escape(self.path.name)}.*")):
            path.unlink(missing_ok=True)
        self._header = {}

    def on_start(self, run: Run) -> None:
        """Fill the run from the file, if it has this stage of the training."""
        if not self._header:
            self.begin({}, 0)
        self._stage += 1
        if self._stage > len(self._header["histories"]):
            return
        parts: dict[str, dict[str, Any]] = {}
        for name, tensor in self._tensors.items():
            stage, part, own = name.split(".")
            if stage == str(self._stage):
                parts.setdefault(part, {})[own] = tensor.to(run.params.w.device)
        shapes = [
            {name: t.shape for name, t in state.items()} for state in (run.state, parts["state"])
        ]
        if shapes[0] != shapes[1] or parts["params"]["w"].shape[1] != run.params.n_features:
            raise ValueError(f"checkpoint {self.path} is of a model of another size: {_TRY}")
        for part in parts.keys() & {"params", "best"}:
            varsigma = float(parts[part]["varsigma"])
            setattr(run, part, Mixture(**parts[part] | {"varsigma": varsigma}))
        run.state = parts["state"]
        if run.generator is not None:
            run.generator.set_state(parts["generator"]["state"].cpu())
        run.history = [PassRecord(**own) for own in self._header["histories"][self._stage - 1]]

    def on_pass(self, run: Run) -> None:
        """Write the file."""
        parts = {"params": run.params.to_tensors(), "state": run.state}
        if run.best is not None:
            parts["best"] = run.best.to_tensors()
        if run.generator is not None:
            parts["generator"] = {"state": run.generator.get_state()}
        self._tensors |= {
            f"{self._stage}.{part}.{name}": tensor
            for part, tensors in parts.items() for name, tensor in tensors.items()
        }  # fmt: skip
        history = [asdict(own) for own in run.history]
        self._header["histories"][self._stage - 1 :] = [history]
        write_tensors(self.path, self._tensors, self._header)

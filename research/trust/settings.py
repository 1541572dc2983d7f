"""Runs taken up again with other settings or data: refused, or the result that these have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import mnemosphere as mn
from research.trust import Attempt
from research.trust.checkpoints import broken_off
from research.trust.inputs import CHANGES
from research.trust.kills import cases, fresh, same_bits

_PASSES = [1, 2, 3, 4, 5, 50, None]


def _moved(x: Any) -> Any:
    x = x.copy()
    x[-1, -1] = np.nextafter(x[-1, -1], np.inf)
    return x


# Other data: each the data of another run, or the same in another form.
DATA: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "the same": lambda x, y: (x, y),
    "a frame": lambda x, y: (pd.DataFrame(x), y),
    "a list": lambda x, y: (x.tolist(), y),
    "single precision": lambda x, y: (x.astype(np.float32), y),
    "the last bit of a number": lambda x, y: (_moved(x), y),
    "one row less": lambda x, y: (x[:-1], y[:-1]),
    "another order": lambda x, y: (x[::-1], y[::-1]),
    "columns swapped": lambda x, y: (x[:, ::-1], y),
    "one label": lambda x, y: (x, np.where(np.arange(len(y)) == 4, (y + 1) % 3, y)),
    "other names": lambda x, y: (x, np.array(["a", "b", "c"])[y]),
    "weights of 1": lambda x, y: (x, y, np.ones(len(y))),
    "weights": lambda x, y: (x, y, np.linspace(1, 2, len(y))),
}


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """A setting or two, or the data changed after a run was broken off."""
    rng = np.random.default_rng(seed)
    fits = {name: case for name, case in cases(folder, seed).items()
            if name[:4] not in ("draw", "two ", "file")}  # fmt: skip
    known: dict[str, list[dict[str, bytes]]] = {}
    for _ in range(n):
        name = str(rng.choice(list(fits)))
        model, *data = fits[name]
        if name not in known:
            known[name] = broken_off(model, (data[0], data[1]), folder)
            model.set_params(callbacks=())
        stored = known[name]
        settings, kind = model.get_params(), "the same"
        values = CHANGES[type(model).__name__] | {"max_iter": _PASSES}
        drawn = rng.choice(list(values), size=int(rng.integers(1, 3)), replace=False)
        what = rng.random()
        if what < 0.2:
            kind = str(rng.choice(list(DATA)))
        for key in () if what < 0.2 else ("max_iter",) if what < 0.4 else map(str, drawn):
            settings[key] = values[key][int(rng.integers(len(values[key])))]
        other = {k: v for k, v in settings.items() if v is not getattr(model, k)}
        files = stored[int(rng.integers(len(stored)))]

        def attempt(
            model: Any = model, settings: Any = settings, data: Any = data, kind: str = kind,
            files: dict[str, bytes] = files,
        ) -> str:  # fmt: skip
            place = fresh(folder / "run")
            for file, content in files.items():
                (place / file).write_bytes(content)
            given = DATA[kind](*data)
            resumed = type(model)(**settings | {"callbacks": [mn.Checkpoint(place / "run")]})
            try:
                resumed.fit(*given)
            except TypeError as error:  # settings of a wrong type: as scikit-learn does
                raise ValueError(str(error)) from error
            straight = type(model)(**settings | {"callbacks": ()}).fit(*given)
            return "the right result" if same_bits(resumed, straight) else "another result"

        yield f"{name} with {other}, data: {kind}", attempt

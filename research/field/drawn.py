"""Drawn tables, for what a fit costs where the real ones have no like: many classes, many clumps.

clumps   Gaussian clumps of every class, all in places drawn at random
cubes    scikit-learn's `make_classification`: clumps at corners of a cube, and columns of noise
moons    two half moons that overlap
noise    classes that mean nothing
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification, make_moons

from research.field.sets import Table

# kind, rows, features, classes, clumps per class
_LISTED = """
clumps 300 10 5 10
clumps 419 18 16 18
clumps 750 10 30 3
clumps 843 84 10 12
clumps 900 40 20 10
clumps 1200 100 12 8
clumps 1225 20 49 2
clumps 1240 50 20 10
clumps 1375 20 38 2
clumps 1500 50 30 5
clumps 1520 50 40 5
clumps 1625 20 100 1
clumps 1875 30 15 15
clumps 1880 20 10 20
clumps 2000 50 50 10
clumps 2000 30 10 20
clumps 2400 50 200 3
clumps 2500 50 100 3
clumps 2500 5 2 60
clumps 2850 30 38 4
clumps 3125 50 25 8
clumps 3228 84 23 16
clumps 3720 300 60 2
clumps 6200 50 200 3
clumps 9900 5 20 5
cubes 200 100 4 2
cubes 250 8 2 2
cubes 300 30 3 2
cubes 400 100 2 2
cubes 409 57 13 2
cubes 700 20 5 2
cubes 800 30 2 2
cubes 1200 10 2 2
cubes 1306 20 8 2
cubes 1587 65 19 2
cubes 1604 26 13 2
cubes 2000 20 21 2
cubes 2000 20 60 2
cubes 2500 20 10 2
cubes 3000 20 35 2
cubes 3750 5 2 2
moons 6000 2 2 1
moons 9000 2 2 1
noise 400 20 2 1
noise 1200 20 2 1
"""
SETS = {line.replace(" ", "-"): line.split()[0] for line in _LISTED.strip().splitlines()}


def kinds(folder: Path | None) -> dict[str, str]:
    """Every set with the way it is drawn."""
    return SETS


def load(name: str, kind: str, folder: Path | None) -> Table:
    rows, features, classes, clumps = map(int, name.split("-")[1:])
    rng = np.random.default_rng(0)
    y = np.arange(rows) % classes
    if kind == "clumps":
        places = rng.normal(size=(classes, clumps, features))
        x = places[y, rng.integers(clumps, size=rows)] + 0.75 * rng.normal(size=(rows, features))
    elif kind == "cubes":
        x, y = make_classification(
            rows, features, n_informative=min(features, 10), n_redundant=0, n_classes=classes,
            n_clusters_per_class=clumps, random_state=0,
        )  # fmt: skip
    elif kind == "moons":
        x, y = make_moons(rows, noise=0.3, random_state=0)
    else:
        x = rng.normal(size=(rows, features))
    return Table(name, kind, x, np.asarray(y, np.int64))

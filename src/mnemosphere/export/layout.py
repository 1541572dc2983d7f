"""Where memories lie on a map: two coordinates each."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

LAYOUTS = ("auto", "pca", "umap")
_FEW = 50  # memories: principal components show them as well


def map_memories(w: NDArray[Any], layout: str = "auto") -> NDArray[np.float64]:
    """Points (P, 2) in [−1, 1] for memories (P, N).

    layout: "pca", principal components; "umap", neighbors stay neighbors (needs umap-learn);
    "auto": UMAP where it is installed and there are at least 50 memories.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if layout == "umap" and find_spec("umap") is None:
        raise ImportError("layout='umap' needs umap-learn: pip install 'mnemosphere[umap]'")
    crowd = len(w) >= _FEW and find_spec("umap") is not None
    points = _umap(w) if layout == "umap" or (layout == "auto" and crowd) else _pca(w)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    # Each axis by its own half: a map fills its frame.
    half = np.maximum(np.ptp(points, axis=0) / 2, 1e-12)
    filled: NDArray[np.float64] = (points - middle) / half
    return filled


def _pca(w: NDArray[Any]) -> NDArray[np.float64]:
    points = np.zeros((len(w), 2))
    axes = min(2, *w.shape)
    points[:, :axes] = PCA(axes, svd_solver="full").fit_transform(w)
    return points


def _umap(w: NDArray[Any]) -> NDArray[np.float64]:
    import umap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed costs its threads, that a graph is in pieces
        found = umap.UMAP(
            n_neighbors=min(15, len(w) - 1), metric="cosine", min_dist=0.3, random_state=0
        ).fit_transform(w)
    return np.asarray(found, dtype=np.float64)

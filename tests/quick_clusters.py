"""Clusters on the sphere, and a clusterer that finds them quickly."""

from types import SimpleNamespace

import numpy as np
import torch

import mnemosphere as mn
from mnemosphere.numerics import vmf

SIZES = (101, 61, 151, 37, 83)
N = 7


def blobs(seed=1, concentration=50.0):
    """Von Mises–Fisher clusters of distinct prime sizes."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.linalg.qr(torch.randn(N, N, generator=generator, dtype=torch.float64)).Q
    y = np.repeat(np.arange(5), SIZES)
    kappa = torch.tensor(concentration, dtype=torch.float64)
    x = vmf.sample(centers[:5][y], kappa, generator=generator).numpy()
    order = np.random.default_rng(seed).permutation(len(y))
    return SimpleNamespace(x=x[order], y=y[order])


def small(**settings):
    given = {"n_clusters": 5, "n_memories": 40, "geometry": "unit", "random_state": 0}
    return mn.DAMClusterer(**(given | settings))

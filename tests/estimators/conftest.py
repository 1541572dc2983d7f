"""Small clustered data, and one model of real images for everything that needs one."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import mnemosphere as mn
from geometry_formula import on_sphere


class Rows(NamedTuple):
    x: NDArray[np.float64]
    y: NDArray[np.int64]


def clusters(
    seed: int = 0,
    *,
    rows: int = 61,
    features: int = 5,
    classes: int = 3,
    spread: float = 0.6,
    places: int = 0,
) -> Rows:
    """Gaussian clusters, one per class, far apart; `places` is the seed of where they lie."""
    rng = np.random.default_rng(seed)
    centers = 3 * np.random.default_rng(places).normal(size=(classes, features))
    y = np.arange(rows) % classes
    return Rows(centers[y] + spread * rng.normal(size=(rows, features)), y)


@pytest.fixture(scope="session")
def data() -> Rows:
    return clusters()


@pytest.fixture(scope="session")
def fresh() -> Rows:
    """Rows from the same law that no model was fitted on."""
    return clusters(1, rows=47)


@pytest.fixture(scope="session")
def fitted(data: Rows) -> mn.DAMClassifier:
    """A small model; tests only read it."""
    return mn.DAMClassifier(7, objective="joint", random_state=0).fit(data.x, data.y)


@pytest.fixture(scope="session")
def images() -> mn.NamedData:
    return mn.load_data("mnist-small")


@pytest.fixture(scope="session")
def grown(images: mn.NamedData) -> mn.DAMClassifier:
    """A model of images grown from 5 to 23 memories."""
    model = mn.DAMClassifier(
        23,
        objective="joint",
        growth=5,
        geometry="center",
        varsigma=0.3,
        solver=mn.FixedPoint(None),
        max_iter=5,
        random_state=0,
    )
    return model.fit(images.x_train[:600], images.y_train[:600])


@pytest.fixture(scope="session")
def make_clusters():
    return clusters


@pytest.fixture(scope="session")
def digits() -> list[NDArray[np.float64]]:
    """x, test x, y, test y of scikit-learn's digits."""
    x, y = load_digits(return_X_y=True)
    return list(train_test_split(x, y, test_size=0.2, stratify=y, random_state=0))


class Read(NamedTuple):
    """A model of moderate β, rows on the sphere, and what the plain formulas say of them."""

    model: mn.DAMClassifier
    x: torch.Tensor
    log_joint: torch.Tensor  # (n, C+1)
    shares: NDArray[np.float64]  # (n, P+1) P(component | x)


@pytest.fixture(scope="session", params=["center", "unit", "standard", "circles"])
def read(request, data, fresh, oracle) -> Read:
    model = mn.DAMClassifier(
        7,
        objective="joint",
        geometry=request.param,
        varsigma=0.6,
        beta=9.0,
        max_iter=5,
        random_state=0,
    ).fit(data.x, data.y)
    x = torch.from_numpy(on_sphere(request.param, fresh.x, data.x))
    params = model.model_.density
    h = params.varsigma * params.beta * x @ params.w.T - oracle.log_omega(params.beta, x.shape[1])
    h = torch.cat([torch.zeros(len(x), 1, dtype=h.dtype), h], dim=1)
    shares = (params.p.sum(1).log() + h).softmax(1).numpy()
    return Read(model, x, oracle.log_joint(params, x), shares)


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    fitted.save(path)
    return path

"""Estimators fitted by many processes, from files of which each reads a part."""

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from mnemosphere.training.distributed import DistributedError
from processes import run_group

ROWS, CUTS = 163, (0, 53, 70, 163)
FAST: dict[str, Any] = {"varsigma": 0.9, "max_iter": 2, "random_state": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three files of unlike lengths; a row has no direction, weights differ."""
    place = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    y = np.arange(ROWS) % 3
    x = 3 * rng.normal(size=(3, 5))[y] + 1.2 * rng.normal(size=(ROWS, 5))
    x[97] = 0.0
    weight = rng.uniform(0.5, 1.5, ROWS)
    for k, (first, last) in enumerate(itertools.pairwise(CUTS)):
        for name, values in (("x", x), ("y", np.array(list("abc"))[y]), ("w", weight)):
            np.save(place / f"{name}{k}.npy", values[first:last])
    return place


def opened(folder: Path) -> mn.Dataset:
    names = {n: [str(folder / f"{n}{k}.npy") for k in range(3)] for n in "xyw"}
    return mn.Dataset.open(names["x"], label=names["y"], weight=names["w"], memory=2000)


JOINT: dict[str, Any] = FAST | {"objective": "joint"}
CASES = {
    "standard": lambda: mn.DAMClassifier(5, geometry="standard", **JOINT),
    "grown": lambda: mn.DAMClassifier(5, growth=2, geometry="unit", **JOINT),
    "conditional": lambda: mn.DAMClassifier(4, geometry="unit", objective="conditional", **FAST),
    "clusters": lambda: mn.DAMClusterer(3, n_memories=4, geometry="unit", **FAST),
    "batches": lambda: mn.DAMClassifier(
        5, geometry="unit", solver=mn.FixedPoint(50, tol=0), **JOINT | {"max_iter": 4}
    ),
}
BATCHES = ("batches", "conditional")  # of other rows, as each process reads its own


def fitted(folder: Path) -> dict[str, Any]:
    """All that a fit of each kind comes to."""
    found = {}
    for name, make in CASES.items():
        rows = opened(folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = make().fit(rows)
        found[name] = {
            "memories": model.memories_, "weights": model.class_weights_, "beta": model.beta_,
            "loss": model.history_[-1]["loss"], "support": model.support_,
            "temperature": getattr(model, "temperature_", 1.0), "predicted": model.predict(rows),
            "lost": [w.category.__name__ for w in caught if "row" in str(w.message)],
        }  # fmt: skip
    return found


@pytest.fixture(scope="module")
def alone(folder) -> dict[str, Any]:
    return fitted(folder)


@pytest.fixture(scope="module")
def together(folder) -> list[dict[str, Any]]:
    return run_group(3, lambda rank: fitted(folder))


def assert_same_models(alone: dict[str, Any], together: list[dict[str, Any]]) -> None:
    for key, value in alone.items():
        if key == "lost":
            assert [found[key] for found in together] == [value, *[[]] * (len(together) - 1)]
            continue
        if key == "predicted":
            assert np.mean(together[0][key] == value) > 0.99
            continue
        np.testing.assert_allclose(together[0][key], value, rtol=1e-10, atol=1e-10)
        assert all(np.array_equal(found[key], together[0][key]) for found in together)


@pytest.mark.parametrize("name", [name for name in CASES if name not in BATCHES])
def test_each_reads_a_part_and_all_have_the_model_of_one(alone, together, name):
    assert_same_models(alone[name], [found[name] for found in together])


def test_batches_of_other_rows_come_to_a_model_as_good(alone, together):
    # Each process draws its own order, so steps are of other rows: the loss is within 2%.
    assert together[0]["batches"]["loss"] == pytest.approx(alone["batches"]["loss"], rel=0.05)


def test_a_file_that_cannot_be_read_ends_all(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    rows = opened(tmp_path)
    (tmp_path / "x2.npy").unlink()
    found = run_group(2, lambda _: mn.DAMClassifier(5, geometry="unit", **FAST).fit(rows))
    assert "x2.npy cannot be read ([Errno 2] No such file" in str(found[0])
    assert isinstance(found[1], DistributedError)


def test_categories_are_the_same_in_all_processes(tmp_path):
    rng = np.random.default_rng(1)
    y = np.arange(ROWS) % 3
    color = np.where(rng.random(ROWS) < 0.8, np.array(["red", "tan", "blue"])[y], "red")
    frame = pd.DataFrame({"a": y + rng.normal(size=ROWS), "color": color, "kind": y})
    for k, (first, last) in enumerate(itertools.pairwise(CUTS)):
        frame[first:last].to_csv(tmp_path / f"{k}.csv", index=False)

    def fit(_: int = 0) -> Any:
        paths = [str(tmp_path / f"{k}.csv") for k in range(3)]
        rows = mn.Dataset.open(paths, label="kind", memory=1000)
        assert not rows.fits
        model = mn.DAMClassifier(5, geometry="standard", **JOINT).fit(rows)
        return model.feature_names_in_.tolist(), model.model_.columns.number_names, model.memories_

    alone = fit()
    assert "color=tan" in alone[1]
    for found in run_group(2, fit):
        assert found[:2] == alone[:2]
        np.testing.assert_allclose(found[2], alone[2], atol=1e-9)

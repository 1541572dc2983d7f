"""Rows of a table completed and drawn: by the density of the model, in the user's columns."""

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from surfaces.kinds import table

NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


@pytest.fixture(scope="module")
def penguins():
    frame, y = table("palmerpenguins", "penguins", "species")
    known = frame.notna().all(axis=1).to_numpy()
    order = np.random.default_rng(0).permutation(np.flatnonzero(known))
    train, test = order[:220], order[220:]
    return frame.iloc[train], y[train], frame.iloc[test].reset_index(drop=True)


@pytest.fixture(scope="module")
def model(penguins):
    x, y, _ = penguins
    settings = {"objective": "conditional", "geometry": "standard", "random_state": 0}
    return mn.DAMClassifier(6, **settings).fit(x, y)


def errors(model, rows):
    """Mean absolute error of each number where it was missing."""
    found = []
    for name in NUMBERS:
        completed = model.recall(rows.assign(**{name: np.nan}))[name].astype(float)
        found.append((completed - rows[name]).abs().mean())
    return np.array(found)


def test_a_conditional_model_imputes_as_well_as_a_joint_one(model, penguins):
    x, y, rows = penguins
    joint = mn.DAMClassifier(20, objective="joint", geometry="standard", random_state=0).fit(x, y)
    found, wanted = errors(model, rows), errors(joint, rows)
    means = (rows[NUMBERS] - x[NUMBERS].mean()).abs().mean().to_numpy()
    assert (found < 0.8 * means).all()
    assert (found / wanted).mean() < 1.2


def test_known_values_stay_as_they_are_and_whole_numbers_are_whole(model, penguins):
    _, _, rows = penguins
    given = rows.astype({"island": "category", "year": float})
    given.loc[:9, "sex"], given.loc[5:20, "year"], given.loc[3, "island"] = None, np.nan, None
    given.loc[2, "bill_depth_mm"] = np.nan
    given.index = given.index + 100
    found, known = model.recall(given), given.notna()
    assert list(found) == list(given)
    assert found.index.equals(given.index)
    for name in given:
        assert found[name][known[name]].tolist() == given[name][known[name]].tolist()
    assert found.notna().all(axis=None)
    assert set(found["sex"]) == {"male", "female"}
    assert (found["year"] % 1 == 0).all()
    assert found["flipper_length_mm"].dtype == given["flipper_length_mm"].dtype
    # What is not to be kept is found anew, also if it is known.
    free = np.ones((len(rows), 9), dtype=bool)
    free[:, model.model_.columns.number_names.index("body_mass_g")] = False
    other = model.recall(rows, known=free)
    assert (other["body_mass_g"] != rows["body_mass_g"]).any()
    pd.testing.assert_frame_equal(
        other.drop(columns="body_mass_g"), rows.drop(columns="body_mass_g")
    )

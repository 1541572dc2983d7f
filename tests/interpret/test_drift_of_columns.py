"""What new rows have in their columns: missing, renamed, moved, or as before."""

import numpy as np
import pytest

import mnemosphere as mn
from frames import clients


@pytest.fixture(scope="module")
def rows():
    x, y = clients()
    clf = mn.DAMClassifier(2, geometry="standard", search=None, random_state=0).fit(x[:90], y[:90])
    return clf, x[90:]


CHANGES = {
    "income": lambda own: own * np.nan,
    "calls": lambda own: own + 4,
    "plan": lambda own: own.map({"basic": "gold", "pro": "silver", "plus": "bronze"}),
    "paid": lambda own: own.where(own.isna(), other=True),
}


@pytest.mark.filterwarnings("ignore:.*categor:UserWarning", "ignore:.*level:UserWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_column_that_changed_is_named(rows, name):
    clf, x = rows
    found = clf.compare(x.assign(**{name: CHANGES[name](x[name])}))
    assert [own["column"] for own in found.changed_columns] == [name]
    assert found.columns[0]["column"] == name
    assert found.drifted
    assert name in str(found)


def test_rows_like_those_of_training_have_not_changed():
    """Of twenty tables of nine columns, hardly one is told apart at the level of a hundredth."""
    rng, told = np.random.default_rng(0), 0
    for _ in range(20):
        x = np.round(rng.normal(size=(260, 9)), 1)
        y = (x[:, 0] > 0).astype(int)
        clf = mn.DAMClassifier(2, geometry="standard", search=None, random_state=0, max_iter=3)
        found = clf.fit(x[:180], y[:180]).compare(x[180:])
        told += bool(found.changed_columns)
        assert len(found.columns) == 9
    assert told <= 1

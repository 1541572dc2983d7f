"""A row has one name on every surface: the index of the frame, else its place in what was passed."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from mnemosphere.export.payload import payload
from quick_models import reloaded, small

WINES, KINDS = load_wine(return_X_y=True, as_frame=True)


@pytest.mark.parametrize("by_name", [False, True])
def test_typical_rows_are_found_in_the_frame_by_their_names(by_name, tmp_path):
    x = WINES.sample(frac=0.4, random_state=0)
    y = KINDS[x.index]
    if by_name:
        x = x.set_axis([f"bottle {k}" for k in x.index])
        y = y.set_axis(x.index)
    model = small(geometry="standard").fit(x, y)
    for clf in (model, reloaded(model, tmp_path)):
        table = clf.memory_table()
        for m, rows in table["typical_rows"].items():
            shares = clf.transform(x.loc[rows])[:, m]
            assert shares.min() >= np.quantile(clf.transform(x)[:, m], 0.9)
        why = clf.explain(x[:3])
        assert why.names == [*map(str, x.index[:3])]
        assert set(why[0][0].typical_rows) <= set(x.index)
        assert str(why.similar_rows(0)[0].name) == str(x.index[0]) in str(why)
        assert clf.counterfactual(x[:3]).names == why.names
        assert payload(clf.model_, x, y)["rows"]["number"] == [*map(str, x.index)]


def test_rows_without_index_are_called_by_their_places():
    x, y = WINES.to_numpy(), KINDS.to_numpy()
    model = small(geometry="standard").fit(x, y)
    assert model.explain(x[50:52]).names == ["0", "1"]
    assert set(model.explain(x[50:52])[0][0].typical_rows) <= set(range(178))


def test_label_issues_call_rows_by_the_index():
    x = WINES.set_axis(WINES.index + 1000)
    y = KINDS.set_axis(x.index).copy()
    y.loc[[1003, 1100]] = [2, 0]
    found = small(geometry="standard").fit(x, y).label_issues(x, y, n_folds=2)
    told = {line["row"]: line for line in found.as_dicts()}
    assert {1003, 1100} <= set(told)
    assert set(told[1003]["typical_rows"]) <= set(x.index)
    assert x.index[found.rows].tolist() == found.names
    assert "1003" in str(found)
    pd.DataFrame(found.as_dicts()).set_index("row").loc[1003]

"""Ranks against other formulas; every part runs and finds what is easy."""

import json

import numpy as np
import pytest
from scipy import stats

from research import __main__ as start
from research.field import scores, store, summary
from research.field.parts import PARTS, folds
from research.field.sets import Table


def test_equal_scores_share_their_ranks():
    rows = [[0.9, 0.8, 0.9, 0.1], [0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4]]
    expected = [[1.5, 3, 1.5, 4], [2.5, 2.5, 2.5, 2.5], [4, 3, 2, 1]]
    np.testing.assert_array_equal(scores.ranks(rows, high_is_good=True), expected)
    low = scores.ranks(rows, high_is_good=False)
    np.testing.assert_array_equal(low, 5 - np.array(expected))


def test_pairs_are_corrected_by_holm():
    rng = np.random.default_rng(0)
    a = rng.normal(size=23)
    columns = np.stack([a, a + 0.1 * rng.random(23), a + 0.02 * rng.normal(size=23)], axis=1)
    found = scores.wilcoxon_holm(columns, "abc")
    raw = {
        (i, j): stats.wilcoxon(
            columns[:, "abc".index(i)], columns[:, "abc".index(j)], method="approx"
        ).pvalue
        for i, j in found
    }
    first, second, third = sorted(raw, key=raw.get)
    assert found[first] == pytest.approx(3 * raw[first])
    assert found[second] == pytest.approx(max(3 * raw[first], 2 * raw[second]))
    assert found[third] == pytest.approx(max(2 * raw[second], raw[third]))
    assert third == ("a", "c")
    same = scores.wilcoxon_holm(np.ones((5, 2)), "ab")
    assert same == {("a", "b"): 1.0}


def test_calibration_error_bin_by_bin():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([0.5, 0.7, 0.9], size=211)
    p[0] = [1, 0, 0]  # the edge of the last bin belongs to it
    y = rng.integers(3, size=211)
    confidence = p.max(1)
    total = 0.0
    for low in np.arange(15) / 15:
        top = low > 13.5 / 15
        inside = (confidence >= low) & ((confidence < low + 1 / 15) | top)
        if inside.any():
            accuracy = (p[inside].argmax(1) == y[inside]).mean()
            total += inside.mean() * abs(accuracy - confidence[inside].mean())
    parts = [
        {"calibration": scores.calibration_gaps(p[rows], y[rows]), "tested": len(y[rows])}
        for rows in (slice(0, 100), slice(100, None))
    ]
    assert store.gathered(parts) == {"calibration_error": pytest.approx(total, abs=1e-6)}
    assert not scores.calibration_gaps(np.eye(3)[y], y).any()


@pytest.mark.parametrize(
    ("part", "method", "key"),
    [
        ("cluster", "k-means", "rand_index"),
        ("few-labels", "label spreading", "accuracy"),
        ("novelty", "local outlier factor", "auroc"),
        ("classify", "logistic regression", "accuracy"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_separate_clusters_are_easy_for_every_part(part, method, key):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [23, 29, 19])
    x = rng.normal(size=(71, 4)) + 30 * np.eye(4)[y]
    table = Table("far", "", x, y)
    for fold in folds(table, 3, 0):
        assert PARTS[part].measure(table, method, fold, 0)[key] == pytest.approx(1.0)


@pytest.mark.filterwarnings("ignore")
def test_cells_are_stored_and_an_interrupted_run_goes_on(tmp_path):
    methods = ("--methods", "k-NN", "logistic regression", "--sets", "wine", "--folds", "2")
    places = ("--out", str(tmp_path), "--cells", str(tmp_path / "c"))
    options = ["field", "classify", *methods, *places]
    assert start.main(options) == 0
    before = (tmp_path / "classify.json").read_bytes()
    content = json.loads(before)
    assert {"command", "versions", "device", "defaults"} <= set(content["methods"]["k-NN"])
    assert [len(c["accuracy"]) for c in content["cells"]] == [2, 2]
    cells = sorted(tmp_path.rglob("wine *.json"))
    assert len(cells) == 4
    cells[0].write_text(cells[0].read_text().replace('"accuracy": 0', '"accuracy": 1'))
    cells[-1].unlink()
    assert start.main(options) == 0  # the last is measured, the first is not
    found = {
        c["method"]: c["accuracy"]
        for c in json.loads((tmp_path / "classify.json").read_text())["cells"]
    }
    assert found["k-NN"][0] > 1
    assert found["logistic regression"] == content["cells"][1]["accuracy"]
    with pytest.raises(SystemExit, match="no method"):
        start.main(["field", "classify", "--methods", "oracle", "--out", str(tmp_path)])


def test_ranks_by_auroc_are_those_of_tables_of_two_classes():
    """AUROC of a, b: two tables of two classes; of one method alone, it is not ranked."""
    cell = {"accuracy": [0.5], "log_loss": [1.0], "calibration_error": 0.1}
    found = store.Results("classify", {name: {"kind": "table"} for name in "uvw"})
    found.heads |= {"a": {}, "b": {}}
    for name in found.sets:
        for k, method in enumerate("ab"):
            ranked = {} if name == "w" else {"auroc": [0.7 + 0.1 * k]}
            found.cells[name, method] = cell | ranked
    assert summary.measures(found)[-1] == "auroc"
    ranking = summary.ranking(found, "auroc")
    assert ranking.sets == ["u", "v"]
    assert ranking.mean_ranks == {"a": 2, "b": 1}
    assert summary.ranking(found, "accuracy").sets == ["u", "v", "w"]
    del found.cells["u", "a"]["auroc"], found.cells["v", "b"]["auroc"]
    assert "auroc" not in summary.measures(found)

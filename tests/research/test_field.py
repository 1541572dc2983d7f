"""Ranks and critical differences against published values; every part runs and finds what is easy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from research import __main__ as start
from research.field import scores
from research.field.parts import PARTS
from research.field.sets import Table


def test_equal_scores_share_their_ranks():
    rows = [[0.9, 0.8, 0.9, 0.1], [0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4]]
    expected = [[1.5, 3, 1.5, 4], [2.5, 2.5, 2.5, 2.5], [4, 3, 2, 1]]
    np.testing.assert_array_equal(scores.ranks(rows, high_is_good=True), expected)
    low = scores.ranks(rows, high_is_good=False)
    np.testing.assert_array_equal(low, 5 - np.array(expected))


# Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006), Table 5a.
@pytest.mark.parametrize(
    ("n_methods", "level", "q"),
    [(2, 0.05, 1.960), (5, 0.05, 2.728), (10, 0.05, 3.164), (4, 0.10, 2.291), (10, 0.10, 2.920)],
)
def test_the_critical_difference_has_the_published_quantile(n_methods, level, q):
    n_sets = 13
    expected = q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets))
    found = scores.critical_difference(n_methods, n_sets, level)
    assert found == pytest.approx(expected, rel=3e-4)  # printed with three decimals


def test_the_worked_example_of_the_paper():
    """Its Section 3.2.2: four methods, 14 data sets, CD = 1.25."""
    assert scores.critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


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
    assert scores.calibration_error(p, y) == pytest.approx(total)
    sure = np.eye(3)[y]
    assert scores.calibration_error(sure, y) == 0


def test_log_loss_is_that_of_scikit_learn():
    p = np.random.default_rng(2).dirichlet([1, 1, 1], size=31)
    p[:2] = np.eye(3)[[0, 1]]
    y = np.arange(31) % 3
    y[1] = 2  # a row that was given no chance
    expected = metrics.log_loss(y, p, labels=[0, 1, 2])
    assert scores.log_loss(p, y) == pytest.approx(expected, rel=1e-9)


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
    found = PARTS[part].measure(Table("far", "", x, y), method, 3, 0, None)
    assert found[key] == pytest.approx([1.0] * 3)


def test_cells_are_stored_and_summed_up(tmp_path, capsys):
    methods = ("--methods", "Gaussian NB", "nearest centroid", "--sets", "wine", "--folds", "2")
    options = ["field", "classify", *methods, "--out", str(tmp_path)]
    assert start.main(options) == 0
    before = (tmp_path / "classify.json").read_bytes()
    content = json.loads(before)
    assert {"command", "versions", "device", "code"} <= set(content["methods"]["Gaussian NB"])
    assert [len(c["accuracy"]) for c in content["cells"]] == [2, 2]
    assert "mean rank" in capsys.readouterr().out
    assert start.main(options) == 0  # nothing is left to measure
    assert (tmp_path / "classify.json").read_bytes() == before
    with pytest.raises(SystemExit, match="no method"):
        start.main(["field", "classify", "--methods", "oracle", "--out", str(tmp_path)])

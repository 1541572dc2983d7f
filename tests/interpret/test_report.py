"""Reports of answers that may be rejections, against scikit-learn's and by hand."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

import mnemosphere as mn
from mnemosphere.interpret import classification_report
from mnemosphere.interpret.evaluation import ranking

OUT = mn.OUT_OF_SCOPE


def test_without_rejection_it_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, answers = rng.integers(5, size=(2, 211))
    found = classification_report(y, answers)
    assert found.confusion.shape == (5, 6)
    wanted = precision_recall_fscore_support(y, answers)
    figures = found.as_dict()
    each = figures["per_class"]
    for name, values in zip(("precision", "recall", "f1", "rows"), wanted, strict=True):
        np.testing.assert_allclose([own[name] for own in each], values)
    assert figures["accuracy"] == figures["accuracy_of_answers"] == np.mean(y == answers)
    assert figures["answered"] == 1.0
    assert figures["macro_f1"] == pytest.approx(np.mean(wanted[2]))


def test_rejection_is_the_class_of_rows_out_of_scope():
    y = ["a", "a", "b", OUT, OUT, "c"]
    answers = ["a", None, "a", None, "b", None]
    found = classification_report(y, answers, ["a", "b"])
    assert (found.truths, found.answers) == (["a", "b", OUT], ["a", "b", "rejected"])
    assert found.confusion.tolist() == [[1, 0, 1], [1, 0, 0], [0, 1, 2]]
    figures = found.as_dict()
    assert figures["answered"] == 0.5
    assert figures["accuracy_of_answers"] == pytest.approx(1 / 3)
    assert figures["accuracy"] == 0.5
    outside = figures["per_class"][2]
    assert (outside["precision"], outside["recall"]) == pytest.approx((2 / 3, 2 / 3))
    assert figures["per_class"][0]["rejected"] == 0.5
    assert "50.0% of 6 rows answered, 33.3% of the answers right" in str(found)


def test_clear_errors():
    for y, answers, message in (
        ([0, 1], ["a", "b"], "labels are like 0, the model's like 'a'"),
        (["a", "b"], ["a", OUT], "pass None for rejected rows"),
    ):
        with pytest.raises(ValueError, match=message):
            classification_report(y, answers)


def test_the_rarer_of_two_classes_is_ranked():
    rng = np.random.default_rng(0)
    truth = (rng.random(211) < 0.15).astype(int)
    p = np.clip(0.1 + 0.2 * truth + rng.normal(0, 0.1, 211), 0.001, 0.9).round(2)
    a, b = p[truth == 1], p[truth == 0]
    pairs = (a[:, None] > b).mean() + (a[:, None] == b).mean() / 2
    for classes, place, last in (("no yes", truth, p), ("yes no", 1 - truth, 1 - p)):
        found = ranking(place, last, classes.split())
        assert found["class"] == "yes"
        assert found["auroc"] == pytest.approx(pairs)
        recalls = (a >= found["threshold"]).mean(), (b < found["threshold"]).mean()
        best = min(abs((a >= t).mean() - (b < t).mean()) for t in np.unique(p))
        assert abs(recalls[0] - recalls[1]) == pytest.approx(best, abs=1e-9)
    precision = [truth[p >= t].mean() for t in a]  # at each positive, ties together
    assert ranking(truth, p, ["no", "yes"])["average_precision"] == pytest.approx(
        np.mean(precision)
    )
    assert ranking(np.zeros(5, dtype=int), p[:5], ["no", "yes"]) is None
    assert ranking(np.arange(3), p[:3], ["a", "b", "c"]) is None

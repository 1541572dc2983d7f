"""Reports of answers that may be rejections, against scikit-learn's and by hand."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

import mnemosphere as mn
from mnemosphere.interpret import classification_report

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

"""The model card: front matter that YAML reads, figures that scikit-learn finds too."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss

import mnemosphere as mn
from mnemosphere.export.facts import facts
from mnemosphere.interpret.evaluation import measures
from quick_models import small

yaml = pytest.importorskip("yaml")


def front(text):
    _, matter, body = text.split("---\n", 2)
    return yaml.safe_load(matter), body


def test_figures_are_those_of_scikit_learn(wine_model, wines):
    x, y = wines
    matter, body = front(
        mn.export.model_card(wine_model.model_, x, y, title="Wines: a 'test'", license="mit")
    )
    assert matter["library_name"] == "mnemosphere"
    assert (matter["license"], matter["pipeline_tag"]) == ("mit", "tabular-classification")
    assert "# Wines: a 'test'" in body
    assert f"| accuracy | {accuracy_score(y, wine_model.predict(x)):.4f} |" in body
    assert f"| log-loss | {log_loss(y, wine_model.predict_proba(x)):.4f} |" in body
    measured = facts(wine_model.model_, x, y)["measured"]
    count = confusion_matrix(y, wine_model.predict(x))
    assert measured["confusion"] == [[a, b, count[a, b]] for a, b in np.argwhere(count).tolist()]
    assert "| seed | 0 |" in body
    assert f"| temperature | {wine_model.temperature_:.6g} |" in body


def test_calibration_error_of_a_model_that_is_too_sure():
    sure = np.array([0.95] * 20 + [0.55] * 10)
    right = np.array([True] * 10 + [False] * 10 + [True] * 5 + [False] * 5)
    found = measures(np.zeros(30, int), np.where(right, 0, 1), sure, sure, 2)
    assert found["calibration"] == [(pytest.approx(0.55), 0.5, 10), (pytest.approx(0.95), 0.5, 20)]
    assert found["calibration_error"] == pytest.approx((20 * 0.45 + 10 * 0.05) / 30)


def test_names_cannot_break_out_of_their_cells():
    rng = np.random.default_rng(0)
    names = np.array(["a|b", "<script>", "line\nbreak", "---\x1b[31m"], dtype=object)
    x, y = rng.normal(size=(40, 5)), names[np.arange(40) % 4]
    model = small(n_memories=5, varsigma=0.5).fit(x, y)
    text = mn.export.model_card(model.model_, x, y, title="evil\n---\nname: [")
    matter, body = front(text)
    assert matter["library_name"] == "mnemosphere"
    assert "# evil --- name: \\[" in body
    assert "<script>" not in body
    assert "\x1b" not in body
    assert "a\\|b" in body
    assert "\nbreak" not in body


def test_a_clusterer_has_a_card_without_measures(wines):
    x, _ = wines
    model = mn.DAMClusterer(3, n_memories=7, random_state=0).fit(x)
    matter, body = front(mn.export.model_card(model.model_, x))
    assert "tabular-clustering" in matter["tags"]
    assert "metrics" not in matter
    assert "accuracy" not in body
    assert "3 clusters" in body

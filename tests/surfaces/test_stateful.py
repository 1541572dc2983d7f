"""Whatever is done to a model, in any order, it saves, loads and answers as before, or says why."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sklearn.datasets import load_wine

import mnemosphere as mn
from mnemosphere import interpret
from quick_models import graph_answers, reloaded

X, Y = load_wine(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(Y))
X, Y = X[ORDER], np.array(["a", "b", "c"])[Y[ORDER]]
GAPS = np.random.default_rng(1).random(X.shape) < 0.15
ROWS = st.sampled_from(["dense", "missing", "float32"])
GEOMETRIES = ["standard", "unit", "center", "whitened"]
CLEAR = (ValueError, TypeError, FloatingPointError)


def as_given(kind, part):
    x = X[part]
    if kind == "missing":
        return np.where(GAPS[part], np.nan, x)
    return x.astype(np.float32) if kind == "float32" else x


def one_line(error):
    text = str(error)
    assert text
    assert "\n" not in text


class Model(RuleBasedStateMachine):
    """A classifier, and everything that can be done to one."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.caught = warnings.catch_warnings()
        self.caught.__enter__()
        warnings.simplefilter("ignore")

    def teardown(self):
        self.caught.__exit__(None, None, None)
        self.folder.cleanup()

    @initialize(
        kind=ROWS, geometry=st.sampled_from(GEOMETRIES),
        objective=st.sampled_from(["joint", "conditional"]), smoothing=st.sampled_from([0, 0.1]),
        labels=st.sampled_from(["plain", "soft", "few"]), weighted=st.booleans(),
        n_memories=st.sampled_from([1, 5, 11]),
    )  # fmt: skip
    def fit(self, kind, geometry, objective, smoothing, labels, weighted, n_memories):
        y, more = Y[:97], {}
        if labels == "soft":
            y = 0.8 * (Y[:97, None] == np.array(["a", "b", "c"])) + 0.2 / 3
        if labels == "few":
            y, more = np.where(np.arange(97) % 3 == 0, y, ""), {"unlabeled": ""}
        weight = np.linspace(0.1, 2, 97) if weighted else None
        self.model = mn.DAMClassifier(
            n_memories, geometry=geometry, objective=objective, label_smoothing=smoothing,
            max_iter=2, random_state=0, **more,
        )  # fmt: skip
        self.model.fit(as_given(kind, slice(97)), y, weight)

    def change(self, make):
        """Replace the fitted model, unless that is refused in one line."""
        try:
            self.model.model_ = make(self.model.model_)
        except CLEAR as error:
            one_line(error)

    @rule(weights=st.lists(st.floats(0, 9), min_size=3, max_size=3))
    def prior(self, weights):
        self.change(lambda m: interpret.with_class_prior(m, np.resize(weights, len(m.classes))))

    @rule(memory=st.integers(0, 12), label=st.sampled_from([0, 1, 2, None]))
    def relabel(self, memory, label):
        def make(m):
            name = None if label is None else m.classes[label % len(m.classes)]
            return interpret.relabel_memory(m, memory, name)

        self.change(make)

    @rule(old=st.integers(0, 2), new=st.sampled_from([0, 1, 2, None]))
    def classes(self, old, new):
        def make(m):
            names = m.classes.tolist()
            return interpret.map_classes(
                m, {names[old % len(names)]: None if new is None else names[new % len(names)]}
            )

        self.change(make)

    @rule(kind=ROWS, first=st.integers(97, 130), new=st.booleans())
    def stream(self, kind, first, new):
        part = slice(first, first + 23)
        y = Y[part]
        if self.model.model_.classes.dtype.kind != "U":  # of soft labels
            y = np.searchsorted(["a", "b", "c"], y)
        elif new:
            y = np.where(np.arange(23) % 4 == 0, "d", y)
        try:
            self.model.partial_fit(as_given(kind, part), y)
        except CLEAR as error:
            one_line(error)

    @rule(kind=ROWS, rate=st.sampled_from([0.05, 0.3]))
    def calibrate(self, kind, rate):
        rows = as_given(kind, slice(100, 178))
        self.model.calibrate(rows)
        novel = [label is None for label in self.model.predict_or_reject(rows, rate=rate)]
        assert np.mean(novel) <= rate

    @rule()
    def export(self):
        rows = as_given("missing", slice(130, 150)).astype(np.float64)
        found = graph_answers(self.model, Path(self.folder.name), rows)
        wanted = self.model.predict_proba(rows)
        np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-5)
        score = self.model.novelty_score(rows)
        np.testing.assert_allclose(found["novelty_score"], score, rtol=1e-5, atol=1e-5)

    @rule()
    def go_on_from_the_file(self):
        self.model = mn.load(Path(self.folder.name) / "m.safetensors")

    @invariant()
    def answers_are_those_of_the_stored_model(self):
        other = reloaded(self.model, Path(self.folder.name))
        for kind in ("dense", "missing"):
            rows = as_given(kind, slice(150, 178))
            proba = self.model.predict_proba(rows)
            np.testing.assert_allclose(proba.sum(1), 1)
            np.testing.assert_array_equal(other.predict_proba(rows), proba)
            score = self.model.novelty_score(rows)
            assert np.isfinite(score).all()
            np.testing.assert_array_equal(other.novelty_score(rows), score)


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=6, stateful_step_count=6, deadline=None, derandomize=True,
    phases=[Phase.generate],
)  # fmt: skip

"""Callbacks, Ctrl-C and checkpoints: what is left, and how it goes on."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import mnemosphere as mn
from processes import run_forked
from quick_models import small
from runs import Break, Log


def without_time(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


TRAININGS = {
    "sgd": ({"solver": mn.SGD(batch_size=20, tol=0.0), "max_iter": 4}, {""}),
    "conditional": ({"objective": "conditional", "solver": "auto", "max_iter": 3}, {""}),
    "few labels, growth": (
        {"unlabeled": -1, "growth": 4, "max_iter": 2},
        {".settle", ".phase0", ".phase1"},
    ),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_interrupted_anywhere_it_goes_on_with_the_same_bits(make_clusters, tmp_path, name):
    settings, files = TRAININGS[name]
    x, y = make_clusters(rows=97, spread=2.0)
    if "unlabeled" in settings:
        y = np.where(np.arange(97) < 11, y, -1)
    plain = {"geometry": "standard", "varsigma": 0.7, "solver": mn.FixedPoint(tol=0.0)}
    settings = plain | settings
    whole = small(**settings).fit(x, y)
    n = len(whole.history_)
    for after in sorted({1, n // 2, n - 1}):
        folder = tmp_path / str(after)
        folder.mkdir()
        store = mn.Checkpoint(folder / "run")
        first = small(**settings, callbacks=[store, Break("pass", after)]).fit(x, y)
        assert first.status_ == "interrupted"
        assert first.predict(x).shape == y.shape
        log = Log()
        second = small(**settings, callbacks=[store, log]).fit(x, y)
        assert len(log.of("pass")) == n - after  # it did go on, not start again
        assert np.array_equal(whole.memories_, second.memories_)
        assert np.array_equal(whole.class_weights_, second.class_weights_)
        assert whole.temperature_ == second.temperature_
        assert whole.status_ == second.status_
        assert without_time(whole.history_) == without_time(second.history_)
        found = {path.name.removeprefix("run") for path in folder.iterdir()}
        assert found - {".again", ".run"} == files  # one per part, the last where it was gained
    # Finished: everything is read back, nothing trained.
    log = Log()
    again = small(**settings, callbacks=[log, store]).fit(x, y)
    assert log.of("pass") == []
    assert np.array_equal(whole.class_weights_, again.class_weights_)


def test_a_real_signal():
    """The signal of Ctrl-C to another process in the middle of a long fit."""

    class Signal(mn.Callback):
        def on_pass(self, run):
            if run.n_iter == 3:
                os.kill(os.getpid(), signal.SIGINT)

    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        x = np.random.default_rng(0).normal(size=(200, 5))
        model = mn.DAMClassifier(max_iter=10**6, callbacks=[Signal()]).fit(x, x[:, 0] > 0)
        return model.status_, len(model.history_), model.score(x, x[:, 0] > 0)

    status, passes, score = run_forked(work)
    assert status == "interrupted"
    assert score > 0.7
    assert 2 <= passes <= 4

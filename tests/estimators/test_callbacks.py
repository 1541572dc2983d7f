"""What looks on while a classifier is fitted: callbacks, Ctrl-C, the progress bar."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mnemosphere as mn
from mnemosphere.training.callbacks import Callback


class Listener(Callback):
    def __init__(self, stop_after=None):
        self.records = []
        self.stop_after = stop_after
        self.status = None

    def on_epoch(self, record, params):
        self.records.append(record.as_dict())
        if len(self.records) == self.stop_after:
            raise KeyboardInterrupt

    def on_end(self, status):
        self.status = status


def test_callbacks_see_every_pass(data):
    listener = Listener()
    model = mn.DAMClassifier(
        7, normalize="unit", varsigma=0.9, callbacks=[listener], random_state=0
    ).fit(data.x, data.y)
    assert listener.records == model.history_
    assert listener.status == model.status_ == "converged"


def test_interrupted_model_is_usable(data):
    model = mn.DAMClassifier(
        7, normalize="unit", varsigma=0.9, callbacks=[Listener(2)], random_state=0
    ).fit(data.x, data.y)
    assert model.status_ == "interrupted"
    assert len(model.history_) == 2
    assert model.score(data.x, data.y) > 0.8


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 20, "max_epochs": 6},
        {"solver": "sgd", "batch_size": 20, "max_epochs": 6},
        {"objective": "conditional", "max_epochs": 3},
        {"growth": "split", "n_initial": 2, "max_epochs": 4, "batch_size": None},
    ],
    ids=["fixed point", "sgd", "refinement", "growth"],
)
def test_interrupted_run_goes_on_with_the_same_bits(data, fresh, tmp_path, settings):
    settings = {
        "n_memories": 7, "normalize": "unit", "varsigma": 0.9, "tol": 0.0, "random_state": 0
    } | settings  # fmt: skip
    whole = mn.DAMClassifier(**settings).fit(data.x, data.y)
    settings["checkpoint"] = tmp_path / "run.safetensors"
    first = mn.DAMClassifier(**settings, callbacks=[Listener(4)]).fit(data.x, data.y)
    assert first.status_ == "interrupted"
    listener = Listener()
    second = mn.DAMClassifier(**settings, callbacks=[listener]).fit(data.x, data.y)
    assert len(listener.records) <= len(whole.history_) - 3  # it did go on, not start again
    assert np.array_equal(whole.memories_, second.memories_)
    assert np.array_equal(whole.predict_proba(fresh.x), second.predict_proba(fresh.x))

    def without_time(history):
        return [{k: v for k, v in record.items() if k != "seconds"} for record in history]

    assert without_time(whole.history_) == without_time(second.history_)


def test_progress_bar_goes_to_standard_error(data, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    mn.DAMClassifier(7, normalize="unit", varsigma=0.9, verbose=1, random_state=0).fit(*data)
    out, err = capsys.readouterr()
    assert out == ""
    assert "7 memories" in err


def test_quiet_by_default(data, capsys):
    mn.DAMClassifier(7, normalize="unit", varsigma=0.9, random_state=0).fit(*data)
    assert capsys.readouterr() == ("", "")


class PressCtrlC(Callback):
    def __init__(self, when):
        self.when = when

    def on_batch(self, epoch, share_done):
        self.when -= 1
        if self.when == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 10},
        {"solver": "sgd"},
        {"growth": "split", "n_initial": 1},
        {"objective": "conditional"},
    ],
    ids=lambda settings: " ".join(str(v) for v in settings.values()) or "plain",
)
@pytest.mark.parametrize("when", [1, 5])
def test_interruption_leaves_a_usable_model(data, settings, when):
    model = mn.DAMClassifier(
        5, normalize="unit", varsigma=0.9, random_state=0, **settings, max_epochs=30, tol=0.0,
        callbacks=[PressCtrlC(when)],
    )  # fmt: skip
    model.fit(data.x, data.y)
    assert model.status_ == "interrupted"
    probability = model.predict_proba(data.x)
    assert np.allclose(probability.sum(axis=1), 1)
    assert model.partial_fit(data.x, data.y).score(data.x, data.y) > 0.3


def test_a_real_signal(tmp_path):
    """The signal of Ctrl-C to another process in the middle of a long fit."""
    code = """
        import os, signal, threading, numpy as np, mnemosphere as mn
        from mnemosphere.training.callbacks import Callback

        class Signal(Callback):
            def on_epoch(self, record, params):
                if record.epoch == 3:
                    os.kill(os.getpid(), signal.SIGINT)

        x = np.random.default_rng(0).normal(size=(200, 5))
        model = mn.DAMClassifier(
            9, normalize="unit", varsigma=0.9, max_epochs=10**6, tol=0.0, callbacks=[Signal()]
        )
        model.fit(x, x[:, 0] > 0)
        print(model.status_, len(model.history_), model.score(x, x[:, 0] > 0) > 0.7)
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    status, passes, good = out.stdout.split()
    assert (status, good) == ("interrupted", "True")
    assert 2 <= int(passes) <= 4

"""A fit that was ended goes on from its checkpoint: the same call ends with the same model."""

import numpy as np
import pytest
from sklearn.base import clone

import mnemosphere as mn
from mnemosphere.estimators.progress import Progress
from runs import Break

SMALL = {"n_memories": 5, "geometry": "unit", "random_state": 0, "max_iter": 4}
KINDS = {
    "joint": mn.DAMClassifier(objective="joint", **SMALL),
    "joint, grown": mn.DAMClassifier(objective="joint", growth=2, **SMALL),
    "conditional": mn.DAMClassifier(objective="conditional", **SMALL),
    "clusters": mn.DAMClusterer(3, **SMALL),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_call_goes_on_after_its_last_pass(data, tmp_path, kind):
    """Law: broken off after any pass, and fitted again, a model has the same bits."""
    straight = clone(KINDS[kind]).fit(data.x, data.y)
    for k in range(1, straight.n_iter_ + 1):
        saved = mn.Checkpoint(tmp_path / f"run{k}")
        model = clone(KINDS[kind]).set_params(callbacks=[saved, Break("pass", k, EOFError)])
        with pytest.raises(EOFError):
            model.fit(data.x, data.y)
        found = clone(KINDS[kind]).set_params(callbacks=[saved]).fit(data.x, data.y)
        assert found.n_iter_ == straight.n_iter_
        assert np.array_equal(found.memories_, straight.memories_)
        assert np.array_equal(found.class_weights_, straight.class_weights_)
        assert not saved.path.exists()  # of a finished fit nothing is left to go on from


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_leaves_a_usable_model_and_the_file(data, tmp_path, kind):
    straight = clone(KINDS[kind]).fit(data.x, data.y)
    saved = mn.Checkpoint(tmp_path / "run")
    model = clone(KINDS[kind]).set_params(callbacks=[saved, Break("pass", 2)])
    model.fit(data.x, data.y)
    assert model.status_ == "interrupted"
    assert len(model.predict(data.x)) == len(data.x)
    found = clone(KINDS[kind]).set_params(callbacks=[saved]).fit(data.x, data.y)
    assert np.array_equal(found.memories_, straight.memories_)


@pytest.mark.parametrize(
    ("name", "value"), [("n_memories", 6), ("beta", 3.0), ("class_weight", "balanced")]
)
def test_other_settings_are_refused(data, tmp_path, name, value):
    saved = mn.Checkpoint(tmp_path / "run")
    model = clone(KINDS["joint"]).set_params(callbacks=[saved, Break("pass", 1)])
    model.fit(data.x, data.y)
    other = clone(KINDS["joint"]).set_params(callbacks=[saved], **{name: value})
    with pytest.raises(
        ValueError, match=rf"run is of another fit \({name} is .* there and .* here"
    ):
        other.fit(data.x, data.y)
    with pytest.raises(ValueError, match="rows is 61 there and 60 here"):
        model.fit(data.x[:-1], data.y[:-1])
    more = clone(KINDS["joint"]).set_params(callbacks=[saved], max_iter=6, device="cpu")
    assert more.fit(data.x, data.y).n_iter_ == 6


def test_a_drawn_seed_is_kept(data, tmp_path):
    saved = mn.Checkpoint(tmp_path / "run")
    model = mn.DAMClassifier(5, objective="joint", solver=mn.FixedPoint(16), max_iter=3)
    model.set_params(callbacks=[saved, Break("pass", 1)]).fit(data.x, data.y)
    memories = []
    stored = saved.path.read_bytes()
    for _ in range(2):
        saved.path.write_bytes(stored)
        memories.append(model.set_params(callbacks=[saved]).fit(data.x, data.y).memories_)
    assert np.array_equal(*memories)


@pytest.mark.parametrize("stop", [0, 2, 9999])
def test_ctrl_c_in_the_search_leaves_the_best_so_far(data, monkeypatch, stop):
    """Once a candidate was evaluated on all splits there is a model."""
    stages = []

    def show(self, stage, done, total, note=""):
        if not stage.startswith("training"):
            stages.append(stage)
            if len(stages) > stop:
                raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "show", show)
    model = mn.DAMClassifier(random_state=0)
    model.fit(data.x, data.y)
    assert (model.status_ == "interrupted") == (len(stages) > stop)
    assert model.score(data.x, data.y) > 0.9

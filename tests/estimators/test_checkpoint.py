"""A checkpoint knows its run: every setting and all data, the seed that was drawn, folds."""

import numpy as np
import pytest
from sklearn.base import clone

import mnemosphere as mn
from mnemosphere.base.files import read_tensors
from mnemosphere.training.checkpoint import VERSION
from runs import Break

# Another value of every setting that tells runs apart; a new one must be added here.
OTHER = {
    "DAMClassifier": {
        "n_memories": 6, "objective": "conditional", "search": None, "growth": 2, "varsigma": 0.5,
        "beta": 3.0,
        "geometry": "center", "solver": mn.FixedPoint(16), "label_smoothing": 0.2,
        "uniform_weight": 2.0, "unlabeled": 7, "class_weight": {0: 1.0, 1: 2.0, 2: 1.0},
        "precision": "float32", "random_state": 1, "categories": ("a",), "min_frequency": 0.1,
    },
    "DAMClusterer": {
        "n_clusters": 2, "n_memories": 6, "growth": 2,
        "varsigma": 0.5, "beta": 3.0, "smoothing": 0.2, "geometry": "center", "solver": "sgd",
        "uniform_weight": 2.0, "precision": "float32", "random_state": 1, "categories": ("a",), "min_frequency": 0.1,
    },
}  # fmt: skip
SAME = {"callbacks", "device", "encoder", "max_iter", "verbose"}
SMALL = {"n_memories": 5, "geometry": "unit", "varsigma": 0.9, "max_iter": 1, "random_state": 0}


def estimator(name, path, **settings):
    more = {"n_clusters": 3} if name == "DAMClusterer" else {"objective": "joint"}
    return getattr(mn, name)(**SMALL | more | settings).set_params(callbacks=[mn.Checkpoint(path)])


@pytest.mark.parametrize("name", OTHER)
def test_every_setting_tells_runs_apart(data, tmp_path, name):
    path = tmp_path / "run"
    model = estimator(name, path).fit(data.x, data.y)
    assert set(model.get_params()) == SAME | OTHER[name].keys()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for setting, value in OTHER[name].items():
        other = clone(model).set_params(**{setting: value})
        with pytest.raises(
            ValueError, match=rf"run.run is of another run \({setting} is .* here\)"
        ):
            other.fit(data.x, data.y)
    clone(model).set_params(device="cpu").fit(data.x, data.y)
    if name == "DAMClassifier":  # one part, which goes on for longer
        assert clone(model).set_params(max_iter=2).fit(data.x, data.y).n_iter_ == 2
    assert before.keys() == {p.name for p in tmp_path.iterdir()}


def test_all_data_tell_runs_apart(data, tmp_path):
    path = tmp_path / "run"
    weight = np.linspace(1, 2, len(data.x))
    model = estimator("DAMClassifier", path).fit(data.x, data.y, weight)
    moved = data.x.copy()
    moved[-1, -1] += 1e-9
    for x, y, w in (
        (moved, data.y, weight),
        (data.x[:-1], data.y[:-1], weight[:-1]),
        (data.x, np.roll(data.y, 1), weight),
        (data.x, data.y + 1, weight),
        (data.x, data.y, weight[::-1]),
        (data.x, data.y, None),
    ):
        with pytest.raises(ValueError, match="its rows or labels are others"):
            clone(model).fit(x, y, w)


@pytest.mark.parametrize("source", [None, "generator"])
def test_a_drawn_seed_is_kept(data, fresh, tmp_path, source):
    """A run that drew its seed goes on with it, and ends as if the seed had been given."""
    settings = {"max_iter": 3, "solver": mn.FixedPoint(16, tol=0)}
    path = tmp_path / "run"
    given = None if source is None else np.random.RandomState(3)
    broken = estimator("DAMClassifier", path, **settings, random_state=given)
    again = None if source is None else np.random.RandomState(3)  # as a new process makes it
    broken.set_params(callbacks=[*broken.callbacks, Break("pass", 2)]).fit(*data)
    assert broken.status_ == "interrupted"
    resumed = estimator("DAMClassifier", path, **settings, random_state=again).fit(*data)
    if source is not None:
        other = estimator("DAMClassifier", path, **settings, random_state=np.random.RandomState(4))
        with pytest.raises(ValueError, match=r"of another run \(random_state is"):
            other.fit(*data)
    seed = read_tensors(tmp_path / "run.run", "mnemosphere-run", VERSION)[0]["seed"]
    straight = estimator("DAMClassifier", tmp_path / "straight", **settings, random_state=seed)
    straight.fit(*data)
    assert resumed.n_iter_ == straight.n_iter_ == 3
    assert np.array_equal(resumed.predict_proba(fresh.x), straight.predict_proba(fresh.x))


def test_files_of_the_same_size_with_other_numbers_are_another_run(data, tmp_path):
    """Every number counts, and so do the labels."""
    np.save(tmp_path / "x.npy", data.x)
    np.save(tmp_path / "y.npy", data.y)
    np.save(tmp_path / "other.npy", np.roll(data.y, 1))

    def rows(name="x", label="y"):
        label = str(tmp_path / f"{label}.npy")
        return mn.Dataset.open(tmp_path / f"{name}.npy", label=label, memory=1 << 10)

    model = estimator("DAMClassifier", tmp_path / "run").fit(rows())
    moved = data.x.copy()
    moved[-1, -1] += 1e-9
    np.save(tmp_path / "moved.npy", moved)
    for other in (rows("moved"), rows(label="other")):
        assert not other.fits
        with pytest.raises(ValueError, match="its rows or labels are others"):
            clone(model).fit(other)
    (tmp_path / "x.npy").rename(tmp_path / "same.npy")
    assert np.array_equal(clone(model).fit(rows("same")).memories_, model.memories_)

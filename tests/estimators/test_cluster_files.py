"""Files of a clusterer, and fits of one that are broken off and go on with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import mnemosphere as mn
from quick_clusters import blobs, small
from runs import Break


@pytest.fixture(scope="module")
def data():
    return blobs()


def test_file(data, tmp_path):
    model = small(max_iter=2).fit(data.x)
    model.save(tmp_path / "clusters.safetensors")
    loaded = mn.load(tmp_path / "clusters.safetensors")
    assert isinstance(loaded, mn.DAMClusterer)
    assert np.array_equal(loaded.predict_proba(data.x), model.predict_proba(data.x))
    assert np.array_equal(loaded.labels_, model.labels_)
    assert np.array_equal(loaded.memory_labels_, model.memory_labels_)
    assert loaded.history_ == model.history_
    assert np.array_equal(loaded.cluster_centers_, model.cluster_centers_)
    assert clone(loaded).fit(data.x).labels_.tolist() == model.labels_.tolist()


@pytest.mark.parametrize("passes", [2, 6])  # of the memories, then of the classes
@pytest.mark.parametrize(
    "solver", [mn.FixedPoint(tol=0), mn.SGD(0.003, batch_size=40, tol=0)], ids=["", "sgd"]
)
def test_interrupted_is_usable_and_goes_on_with_the_same_bits(data, tmp_path, passes, solver):
    settings = {"max_iter": 4, "solver": solver}
    store = mn.Checkpoint(tmp_path / "run")
    stopped = small(**settings, callbacks=[store, Break("pass", passes)]).fit(data.x)
    assert (stopped.status_, stopped.converged_) == ("interrupted", False)
    assert adjusted_rand_score(data.y, stopped.labels_) > 0.9
    resumed = small(**settings, callbacks=[store]).fit(data.x)
    straight = small(**settings).fit(data.x)
    assert np.array_equal(resumed.class_weights_, straight.class_weights_)
    assert np.array_equal(resumed.memories_, straight.memories_)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "run.classes", "run.run"}

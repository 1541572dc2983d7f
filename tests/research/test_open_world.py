"""The benchmark of embeddings: its protocol, its measures and its tables."""

import json

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

from research import report
from research.benchmarks import open_world, resplit
from research.pages import open_world as page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight clusters in 13 dimensions, and test rows of no class, as a set of vectors."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("vectors")
    centers, found = rng.normal(size=(8, 13)), {}
    for part, n in (("train", 160), ("dev", 120), ("test", 80)):
        y = np.arange(n) % 8
        found[f"x_{part}"] = (centers[y] + 0.5 * rng.normal(size=(n, 13))).astype(np.float16)
        found[f"y_{part}"] = np.array([f"class {k}" for k in y])
    found["x_test"] = np.concatenate([found["x_test"], rng.normal(size=(9, 13))])
    found["y_test"] = np.append(found["y_test"], ["oos"] * 9)
    np.savez(path / "banking-minilm.npz", **found)
    return path


def test_rows_of_unknown_classes_are_open(folder):
    data = open_world.load(folder / "banking-minilm.npz")
    own = open_world.split(data, 0.25, 3)
    assert len(own.classes) == 2
    assert set(own.y) == set(own.y_dev) == set(own.classes)
    assert (own.y_test == open_world.OPEN).sum() == 60 + 9
    assert set(own.more[3]).isdisjoint({*own.classes, "oos"})
    np.testing.assert_allclose(np.linalg.norm(own.x_test, axis=1), 1.0, rtol=1e-5)
    other = open_world.split(data, 0.25, 4)
    assert set(other.classes) != set(own.classes)


def test_the_mahalanobis_distance_is_that_of_scipy(folder):
    data = open_world.split(open_world.load(folder / "banking-minilm.npz"), 0.75, 0)
    means = np.stack([data.x[data.y == name].mean(0) for name in data.classes])
    own = np.searchsorted(data.classes, data.y)
    inverse = np.linalg.inv(np.cov(data.x - means[own], rowvar=False, bias=True))
    for x, found in zip((data.x_dev, data.x_test), open_world._mahalanobis(data), strict=True):
        expected = [min(mahalanobis(row, mean, inverse) for mean in means) for row in x]
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_a_part_is_measured_once_and_shown(folder, tmp_path, monkeypatch):
    part = open_world.measure(folder, "banking-minilm", 0.75, 0)
    own = part["methods"]["ours"]
    assert own["known_accuracy"] > 0.8
    assert own["auroc"] > 0.7
    assert part["new_class"]["recall"] > 0.3
    (tmp_path / "run").mkdir()
    for share in open_world.SHARES:  # a part that is there is not measured again
        (tmp_path / "run" / f"banking-minilm-{share}-0.json").write_bytes(report.to_json(part))
    open_world.main(["--vectors", str(folder), "--sets", "banking-minilm", "--seeds", "1",
                     "--out", str(tmp_path / "run.json")])  # fmt: skip
    run = json.loads((tmp_path / "run.json").read_text())
    stored = page.read
    monkeypatch.setattr(page, "read", lambda name: run if name == "open_world" else stored(name))
    tables = {name: table().text for name, table in page.TABLES.items()}
    shown = tables["open world open"].split("`DAMClassifier` | ")[1].split(" |")[0].split(" / ")
    assert [float(v) for v in shown] == pytest.approx([100 * own["f1"]] * 3, abs=0.06)
    assert "DA-ADB, fine-tuned BERT | 73.7 / 82.5 / 85.7" in tables["open world open"]
    assert all("None" not in table for table in tables.values())


def test_other_splits_have_the_same_two_methods(folder):
    found = resplit.measure(folder, "banking-minilm", 1)
    assert set(found) == {"ours", "logistic regression"}
    assert all(own["known_accuracy"] > 0.8 for own in found.values())

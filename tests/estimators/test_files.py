"""Estimators on rows in files that memory does not hold."""

import numpy as np
import pandas as pd
import pytest
import torch

import mnemosphere as mn
from quick_models import small

pytestmark = pytest.mark.usefixtures("quick_choice")

N_ROWS, N, C = 1103, 5, 3
MEMORY = 16 * 8 * N * 64


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    y = rng.integers(0, C, N_ROWS)
    x = rng.normal(size=(N_ROWS, N)) + 2.0 * (np.arange(N) % C == y[:, None])
    return x, y


@pytest.fixture(scope="module")
def source(tmp_path_factory, rows):
    where = tmp_path_factory.mktemp("rows")
    np.save(where / "x.npy", rows[0])
    np.save(where / "y.npy", rows[1])
    return mn.Dataset.open(where / "x.npy", label=str(where / "y.npy"), memory=MEMORY)


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize("kind", ["unit", "standard"])
@pytest.mark.parametrize("more", [{}, {"growth": 3}, {"class_weight": "balanced"}], ids=str)
def test_full_passes_are_those_in_memory(source, rows, kind, device, more):
    """Law: a file of rows is rows in memory, up to rounding."""
    assert not source.fits
    settings = {"geometry": kind, "solver": mn.FixedPoint(None), "device": device, **more}
    one, other = small(**settings).fit(source), small(**settings).fit(*rows)
    for name in ("memories_", "class_weights_", "temperature_", "support_", "typical_rows_"):
        wanted = getattr(other, name)
        np.testing.assert_allclose(getattr(one, name), wanted, rtol=0, atol=1e-10, err_msg=name)
    assert one.score(source) == other.score(*rows)


def test_a_file_that_memory_holds_is_an_array(source, rows):
    held = mn.Dataset.open(source.blocks[0].path, label=source.blocks[0].path.replace("x.", "y."))
    assert held.fits
    one, other = small().fit(held), small().fit(*rows)
    np.testing.assert_array_equal(one.memories_, other.memories_)
    assert one.model_.held is not None


@pytest.mark.filterwarnings("ignore:most of these rows were trained on")
def test_answers_are_arrays(source, rows):
    model = small().fit(source)
    for name in ("predict", "predict_proba", "novelty_score", "transform"):
        found, wanted = (getattr(model, name)(x) for x in (source, rows[0]))
        np.testing.assert_array_equal(found, wanted)
    assert [*map(list, model.predict_set(source))] == [*map(list, model.predict_set(rows[0]))]
    assert model.score(source) == model.score(*rows)
    one, other = small().fit(source), small().fit(source)
    assert one.calibrate(source).temperature_ == other.calibrate(*rows).temperature_
    assert one.novelty_threshold_ == other.novelty_threshold_
    assert str(one.certify(source, max_iter=0)) == str(other.certify(*rows, max_iter=0))


def test_labels_and_weights_beside_a_dataset_are_refused(source, rows):
    model, other = small().fit(source), 1 - rows[1]
    for verb in (model.score, model.calibrate, model.certify, small().fit):
        for given in ({"y": other}, {"sample_weight": np.ones(N_ROWS)}):
            with pytest.raises(
                ValueError, match="a Dataset has labels and weights of its own: leave"
            ):
                verb(source, **given)
    with pytest.raises(TypeError, match="this takes rows in memory, got a Dataset: pass it to fit"):
        small().partial_fit(source, rows[1])


@pytest.mark.parametrize(
    "settings",
    [{"objective": "conditional"}, {"solver": mn.SGD(learning_rate=0.1)}, {"unlabeled": 2}],
    ids=["conditional", "sgd", "few labels"],
)
def test_every_training_goes_through_files(source, rows, settings):
    y = rows[1]
    found = small(**settings).fit(source)
    known = np.isin(y, found.classes_)
    assert np.mean(found.predict(source)[known] == y[known]) > 0.8


def test_rows_like_those_held_out_are_not_trained_on(tmp_path, rows, monkeypatch):
    """Every row twice: a copy of a held-out row would tell its label."""
    monkeypatch.setattr("mnemosphere.estimators.class_training.HELD_OUT_FROM", 1000)
    x, y = np.tile(rows[0], (2, 1)), np.tile(rows[1], 2)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.random.default_rng(0).permutation(rows[1])[[*range(N_ROWS)] * 2])
    source = mn.Dataset.open(tmp_path / "x.npy", label=str(tmp_path / "y.npy"), memory=MEMORY)
    model = mn.DAMClassifier(
        400, geometry="standard", objective="conditional", max_iter=30, random_state=0
    ).fit(source)
    assert model.temperature_ > 1.5  # labels are chance: what was not seen says so
    assert y.shape == model.predict(source).shape


def test_columns_that_differ(tmp_path, rows):
    np.save(tmp_path / "x.npy", rows[0][:, :2])
    with pytest.raises(ValueError, match="has 2 features, but TrainingColumns is expecting 5"):
        small().fit(*rows).predict(mn.Dataset.open(tmp_path / "x.npy"))


def test_clusters_of_files(source, rows):
    settings = {"n_memories": 7, "geometry": "unit", "max_iter": 5, "random_state": 0}
    found = mn.DAMClusterer(C, **settings).fit(source)
    inside = mn.DAMClusterer(C, **settings).fit(rows[0])
    assert found.labels_.shape == (N_ROWS,)
    table = np.zeros((C, C))
    np.add.at(table, (found.labels_, inside.labels_), 1)
    assert table.max(axis=1).sum() > 0.85 * N_ROWS
    assert found.score(source) == pytest.approx(found.score(rows[0]))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_columns_of_any_kind_are_encoded_as_in_memory(tmp_path, rows, suffix):
    x, y = rows
    color = np.array(["red", "green", "blue"])[y].astype(object)
    color[::7] = "red"
    color[5] = None
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N_ROWS) % 300, unit="D")
    frame = pd.DataFrame({"a": x[:, 0], "count": y % 2, "color": color, "day": day})
    frame.loc[23, "a"] = np.nan
    path = tmp_path / f"rows{suffix}"
    table = frame.assign(kind=y)
    if suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, row_group_size=100)
    source = mn.Dataset.open(path, label="kind", memory=MEMORY // 4)
    assert not source.fits
    found = small(geometry="standard").fit(source)
    wanted = small(geometry="standard").fit(frame.astype({"count": float}), y)
    assert found.model_.columns.number_names == wanted.model_.columns.number_names
    assert "color=green" in found.model_.columns.number_names
    np.testing.assert_allclose(found.predict_proba(source), found.predict_proba(frame), atol=1e-12)
    np.testing.assert_allclose(found.memories_, wanted.memories_, atol=0.1)
    assert found.score(source) == pytest.approx(found.score(frame, y))


def test_levels_of_files_are_told_by_their_log_odds(tmp_path):
    rng = np.random.default_rng(0)
    n = 700
    level = rng.integers(0, 90, n)
    y = np.where(rng.random(n) < rng.beta(0.4, 0.4, 90)[level], "military", "civil")
    frame = pd.DataFrame({"country": [f"land {k}" for k in level], "x": rng.normal(size=n)})
    frame.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    source = mn.Dataset.open(tmp_path / "rows.parquet", label="y", memory=MEMORY // 4)
    settings = {"geometry": "standard", "min_frequency": 0.05, "random_state": 0, "max_iter": 3}
    found = mn.DAMClassifier(3, **settings).fit(source)
    held = mn.DAMClassifier(3, **settings).fit(frame, y)
    (country, _), (expected, _) = (m.model_.columns.each for m in (found, held))
    assert country.other_levels
    assert dict(zip(country.levels, country.counts, strict=True)) == {
        name: tuple(pytest.approx(v) for v in counts)
        for name, counts in zip(expected.levels, expected.counts, strict=True)
    }
    assert found.score(frame, y) > 0.75


def test_a_row_without_direction_is_set_aside_with_a_warning(tmp_path, rows):
    x = rows[0].copy()
    x[[3, 500]] = 0.0
    np.save(tmp_path / "x.npy", x)
    source = mn.Dataset.open(tmp_path / "x.npy", memory=MEMORY)
    model = mn.DAMClusterer(2, n_memories=4, geometry="unit", max_iter=2, random_state=0)
    with pytest.warns(UserWarning, match="2 of 1103 rows of X are .*row 3, 500"):
        model.fit(source)

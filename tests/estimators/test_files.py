"""Estimators on data sets that are larger than memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import mnemosphere as mn
from mnemosphere.rows.streams import FileRows, column_names
from mnemosphere.rows.tables import read_table
from mnemosphere.training.dataset import FileDataset
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


def reopened(source):
    """The same files, with nothing noted yet."""
    return FileDataset(FileRows(source.files.readers, MEMORY))


@pytest.fixture(scope="module")
def model(source):
    return small().fit(source)


@pytest.mark.parametrize("kind", ["unit", "standard"])
def test_full_passes_are_those_in_memory(source, rows, kind):
    settings = {"geometry": kind, "solver": mn.FixedPoint(None), "objective": "joint"}
    one, other = small(**settings).fit(source), small(**settings).fit(*rows)
    for name in ("memories_", "class_weights_", "temperature_", "support_", "typical_rows_"):
        wanted = getattr(other, name)
        np.testing.assert_allclose(getattr(one, name), wanted, rtol=0, atol=1e-10, err_msg=name)
    assert one.score(source) == other.score(*rows)


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
@pytest.mark.parametrize("kind", ["unit", "standard"])
def test_class_weights_of_files_are_those_in_memory(source, rows, kind, device):
    settings = {"geometry": kind, "solver": mn.FixedPoint(None), "class_weight": "balanced"}
    settings |= {"device": device, "max_iter": 1}
    one, other = small(**settings).fit(source), small(**settings).fit(*rows)
    assert one.model_.device.type == other.model_.device.type == device
    found, wanted = (model.predict_proba(rows[0]) for model in (one, other))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)


def test_batches_are_as_good_as_in_memory(source, rows, model):
    """Their order is another one."""
    inside = small().fit(*rows)
    assert not source.fits
    assert model.classes_.tolist() == inside.classes_.tolist()
    assert model.score(source) == pytest.approx(inside.score(*rows), abs=0.08)
    assert model.temperature_ == pytest.approx(inside.temperature_, rel=0.5)
    np.testing.assert_allclose(model.class_prior_, inside.class_prior_, atol=0.01)
    assert model.support_.sum() == pytest.approx(inside.support_.sum(), rel=0.05)


@pytest.mark.filterwarnings("ignore:most of these rows were trained on")
def test_answers_batch_by_batch(source, rows, model):
    x = rows[0]
    for name in ("predict", "predict_proba", "novelty_score"):
        parts = list(getattr(model, name)(source))
        assert len(parts) > 5
        np.testing.assert_array_equal(np.concatenate(parts), getattr(model, name)(x))
    assert model.score(source) == model.score(*rows)
    one, other = small().fit(source), small().fit(source)
    assert one.calibrate(source).temperature_ == other.calibrate(*rows).temperature_
    assert one.novelty_threshold_ == other.novelty_threshold_
    assert str(one.certify(source, max_iter=0)) == str(other.certify(*rows, max_iter=0))


@pytest.mark.parametrize(
    "settings",
    [
        {"growth": 3},
        {"objective": "conditional"},
        {"solver": mn.SGD(learning_rate=0.1)},
        {"unlabeled": 2},
    ],
    ids=["growth", "refinement", "sgd", "few labels"],
)
def test_every_training_goes_through_files(source, rows, settings):
    y = rows[1]
    found = small(**settings).fit(source)
    known = np.isin(y, found.classes_)
    assert np.mean(np.concatenate(list(found.predict(source)))[known] == y[known]) > 0.8


def test_columns_that_differ(rows, model):
    narrow = mn.Dataset.from_batches(lambda: [rows[0][:, :2]])
    with pytest.raises(ValueError, match="has 2 features, but DAMClassifier is expecting 5"):
        model.predict(narrow)


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
    color = np.array(["red", "green", "blue"])[y]
    color[::7] = "red"
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N_ROWS) % 300, unit="D")
    frame = pd.DataFrame({"a": x[:, 0], "count": y % 2, "color": color, "day": day})
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
    assert found.model_.features.names == wanted.model_.features.names
    assert "color=green" in found.model_.features.names
    proba = np.concatenate(list(found.predict_proba(source)))
    np.testing.assert_allclose(proba, found.predict_proba(frame), atol=1e-12)
    np.testing.assert_allclose(found.memories_, wanted.memories_, atol=0.1)
    assert found.score(source) == pytest.approx(found.score(frame, y))


def test_missing_values_are_refused_in_training_alone(tmp_path, rows):
    x, y = rows
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "color": np.array(["red", "blue", "tan"])[y]})
    frame.assign(kind=y).to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    model = small().fit(
        mn.Dataset.open(tmp_path / "rows.parquet", label="kind", memory=MEMORY // 4)
    )
    frame.loc[23, "color"] = None
    frame.assign(kind=y).to_parquet(tmp_path / "gaps.parquet", row_group_size=100)
    gaps = mn.Dataset.open(tmp_path / "gaps.parquet", label="kind", memory=MEMORY // 4)
    with pytest.raises(ValueError, match=r"gaps\.parquet: row 23 is NaN in column 'color'"):
        small().fit(gaps)
    proba = np.concatenate(list(model.predict_proba(gaps)))
    np.testing.assert_allclose(proba, model.predict_proba(frame), atol=1e-12)


@pytest.mark.parametrize("name", [None, "flower"])
def test_the_index_that_pandas_wrote_is_no_column(tmp_path, rows, name):
    x, y = rows
    index = pd.Index(np.arange(len(x))[::-1], name=name)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": y}, index=index)
    frame.to_parquet(tmp_path / "rows.parquet")
    source = mn.Dataset.open(tmp_path / "rows.parquet", label="kind", memory=MEMORY)
    assert source.n_features == 2
    assert read_table(tmp_path / "rows.parquet").columns == ["a", "b", "kind"]
    assert column_names(tmp_path / "rows.parquet") == ["a", "b", "kind"]
    asked = mn.Dataset.open(
        tmp_path / "rows.parquet", label="kind", memory=MEMORY,
        features=["a", name or "__index_level_0__"],
    )  # fmt: skip
    np.testing.assert_array_equal(np.concatenate([x for x, *_ in asked])[:, 1], index)


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_batches_may_be_frames(rows, package):
    x, y = rows
    frame = pd.DataFrame(x, columns=list("abcde"))
    make = pa.Table.from_pandas if package == "pyarrow" else lambda part: part
    parts = np.array_split(np.arange(N_ROWS), 9)

    def opened(table):
        batches = [(make(table.iloc[p]), y[p]) for p in parts]
        return mn.Dataset.from_batches(batches, memory=MEMORY // 4)

    plain = small().fit(opened(frame))
    wanted = small().fit(mn.Dataset.from_batches([(x[p], y[p]) for p in parts], memory=MEMORY // 4))
    np.testing.assert_array_equal(plain.memories_, wanted.memories_)
    color = np.array(["red", "green", "blue"])[y]
    model = small().fit(opened(frame.assign(color=color)))
    assert model.score(opened(frame.assign(color=color))) > 0.9
    assert "color=red" in model.model_.features.names


def test_levels_of_files_are_counted_in_one_look_at_all_rows(tmp_path):
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
    (country, _), (expected, _) = (m.model_.features.encoding.columns for m in (found, held))
    assert country.rare
    assert dict(zip(country.levels, country.counts, strict=True)) == {
        name: tuple(pytest.approx(v) for v in counts)
        for name, counts in zip(expected.levels, expected.counts, strict=True)
    }
    assert found.score(frame, y) > 0.75

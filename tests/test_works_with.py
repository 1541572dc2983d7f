"""The newest of other packages, each with a small model; `python -m research works_with` stores what ran with which version.

The name of a test is that of the package, its docstring is what the page "Works with" says.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mnemosphere as mn
from quick_models import small

CLASS = "mnemosphere.estimators.classifier.DAMClassifier"


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def model(wine):
    return make_pipeline(StandardScaler(), small(geometry="standard")).fit(*wine)


def assert_same(one, two, X):
    assert np.array_equal(one.predict_proba(X), two.predict_proba(X))


def test_scikit_learn(wine):
    """`GridSearchCV` over a pipeline, `set_output`"""
    pipeline = make_pipeline(StandardScaler(), small(geometry="standard"))
    grid = GridSearchCV(pipeline, {"damclassifier__n_memories": [3, 6]}, cv=2).fit(*wine)
    assert grid.best_score_ > 0.9
    shares = small().set_output(transform="pandas").fit(*wine).transform(wine[0])
    assert isinstance(shares, pd.DataFrame)


def test_joblib(model, wine, tmp_path):
    """`dump` and `load` of a pipeline"""
    joblib = pytest.importorskip("joblib")
    joblib.dump(model, tmp_path / "m.joblib")
    assert_same(joblib.load(tmp_path / "m.joblib"), model, wine[0])


def test_cloudpickle(wine):
    """`dumps` and `loads` of a model of texts with an encoder that is a function of a notebook"""
    cloudpickle = pytest.importorskip("cloudpickle")
    texts = ["one word", "two words of it", "three more of those words", "word"] * 5

    def encoder(given):
        return np.array([[len(text), text.count(" "), 1.0] for text in given])

    clf = small(n_memories=2, encoder=encoder).fit(texts, np.arange(20) % 4 > 1)
    assert_same(cloudpickle.loads(cloudpickle.dumps(clf)), clf, texts)


def test_skops(model, wine):
    """`dumps` and `loads` of a pipeline, `trusted` names the class of the estimator alone"""
    skops = pytest.importorskip("skops.io")
    held = skops.dumps(model)
    assert skops.get_untrusted_types(data=held) == [CLASS]
    assert_same(skops.loads(held, trusted=[CLASS]), model, wine[0])


def test_mlflow(model, wine, tmp_path):
    """`sklearn.save_model` of a pipeline in the default format, `sklearn.load_model`, `pyfunc.load_model`"""
    mlflow = pytest.importorskip("mlflow")
    warnings.simplefilter("default")  # it may warn
    where = str(tmp_path / "m")
    mlflow.sklearn.save_model(model, where, skops_trusted_types=[CLASS])
    assert_same(mlflow.sklearn.load_model(where), model, wine[0])
    found = mlflow.pyfunc.load_model(where).predict(wine[0])
    assert np.array_equal(found, model.predict(wine[0]))


def test_onnxruntime(wine, tmp_path):
    """`InferenceSession` on the graph of `to_onnx`: a table with a category, float32 and strings in"""
    onnxruntime = pytest.importorskip("onnxruntime")
    frame = wine[0][["alcohol", "hue"]].astype(np.float32)
    frame["strong"] = np.where(frame["alcohol"] > 13, "yes", "no")
    clf = small(geometry="standard").fit(frame, wine[1])
    mn.to_onnx(clf, tmp_path / "m.onnx", frame)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    given = {name: frame[[name]].to_numpy(np.float32) for name in ("alcohol", "hue")}
    given["strong"] = frame[["strong"]].to_numpy(object)
    found = session.run(["probabilities"], given)[0]
    np.testing.assert_allclose(found, clf.predict_proba(frame), atol=1e-5)


def test_skl2onnx(model, wine, tmp_path):
    """A pipeline by `mn.to_onnx` and by `skl2onnx.to_onnx`"""
    skl2onnx = pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    x = wine[0].to_numpy(np.float32)
    mn.to_onnx(model, tmp_path / "m.onnx", x)
    for graph in (tmp_path / "m.onnx", skl2onnx.to_onnx(model, x).SerializeToString()):
        found = onnxruntime.InferenceSession(graph).run(["probabilities"], {"X": x})[0]
        np.testing.assert_allclose(found, model.predict_proba(wine[0]), atol=1e-5)


def test_torch(wine):
    """`torch.export` of `DAMModule`"""
    clf = small().fit(*wine)
    x = torch.tensor(wine[0].to_numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        layer = torch.export.export(mn.export.DAMModule(clf.model_), (x,)).module()
    np.testing.assert_allclose(layer(x).exp(), clf.predict_proba(wine[0]), atol=1e-9)


def test_pandas(wine):
    """Frames with categories, dates and gaps in, frames out of `recall`"""
    frame = wine[0][["hue"]].assign(day=pd.Timestamp("2026-01-01"), kind=["a", "b"] * 89)
    frame.loc[::5, "hue"] = np.nan
    frame.loc[::2, "day"] += pd.Timedelta(days=3)
    filled = small(geometry="standard").fit(frame, wine[1]).recall(frame)
    assert list(filled) == ["hue", "day", "kind"]
    assert filled["hue"].notna().all()


def test_polars(wine):
    """`fit` and `predict` on frames"""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(wine[0].to_dict(orient="list"))
    clf = small(geometry="standard")
    assert_same(clf.fit(frame, wine[1].to_numpy()), small(geometry="standard").fit(*wine), wine[0])


def test_pyarrow(wine, tmp_path):
    """`Dataset.open` of a Parquet file"""
    pytest.importorskip("pyarrow")
    wine[0].assign(label=wine[1]).to_parquet(tmp_path / "rows.parquet")
    rows = mn.Dataset.open(tmp_path / "rows.parquet", label="label")
    assert small(geometry="standard").fit(rows).score(*wine) > 0.9


def test_interpret_core(wine):
    """`blackbox.PartialDependence` of `predict_proba`"""
    blackbox = pytest.importorskip("interpret.blackbox")
    warnings.simplefilter("default")
    x = wine[0].to_numpy()
    found = blackbox.PartialDependence(small().fit(x, wine[1] == 0).predict_proba, x)
    assert len(found.explain_global().feature_names) == x.shape[1]

"""The ONNX graph in onnxruntime, and the torch module exported: the same answers."""

import functools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mnemosphere as mn
from mnemosphere.geometry import KINDS, Product
from mnemosphere.model.one_pass import log_joint
from problems import slow_but
from quick_models import graph_answers, small

assert_close = functools.partial(np.testing.assert_allclose, rtol=0)
B = 1000


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(B) % 5
    x = 2 * np.random.default_rng(9).normal(size=(5, 13))[y] + rng.normal(size=(B, 13))
    return (x * 3 + 1).astype(np.float32), y


def fit(kind, y=None, **settings):
    x, labels = rows(kind)
    model = small(n_memories=29, geometry=kind, varsigma=0.6, **settings)
    return model.fit(x, labels if y is None else y[labels])


# Other geometries are in surfaces/test_matrix.


@pytest.mark.parametrize("objective", ["joint", "conditional"])
@pytest.mark.parametrize("again", [False, True])
def test_the_graph_rejects_the_same_rows_for_the_same_reasons(objective, again, tmp_path):
    x, y = rows("standard")
    labels = np.where(y == 4, mn.OUT_OF_SCOPE, y.astype(str))
    model = mn.DAMClassifier(search=None, objective=objective, random_state=0).fit(x, labels)
    fresh, truth = rows("standard", 1)
    if again:  # rejection goes by the temperature of the fit
        model.calibrate(fresh[truth < 4], truth[truth < 4].astype(str))
    asked = np.vstack([fresh, -3 * fresh[:50], np.full((1, 13), np.nan)])
    wanted = mn.interpret.rejections(model.model_, asked)
    found = graph_answers(model, tmp_path, asked)
    assert_close(found["reasons"], wanted.tails, rtol=1e-3, atol=1e-2)
    agree = found["is_rejected"] == wanted.rejected
    assert agree.mean() > 0.995
    assert {"like rows out of scope", "unlike all known rows", None} <= {*wanted.reasons}
    assert_close(found["shares"], model.model_.shares(asked), atol=1e-5)


def test_without_a_uniform_component_rows_far_from_all_memories_keep_their_class(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = np.eye(3)[y] + 0.02 * rng.normal(size=(300, 3))
    model = small(n_memories=3, varsigma=1.0, uniform_weight=0.0, max_iter=None).fit(x, y)
    model.model_ = model.model_.replace(votes=model.model_.votes.at(0.1))
    far = np.array([[1.0, 0.95, 0.9], [0.9, 1.0, 0.95], [0.95, 0.9, 1.0]], dtype=np.float32)
    proba = model.predict_proba(far)
    assert proba.argmax(1).tolist() == [0, 1, 2]
    assert proba.max(1).min() > 0.9
    found = graph_answers(model, tmp_path, far)
    assert_close(found["probabilities"], proba, atol=1e-5)


def test_images_at_full_size(digits, tmp_path):
    # The blank border is hundreds of equal products, which single precision rounds alike.
    x, fresh = (v.astype(np.float32) for v in (digits.x_train[:500], digits.x_test))
    settings = {"geometry": "center", "varsigma": 0.3, "precision": "float32", "max_iter": 2}
    model = small(n_memories=53, **settings).fit(x, digits.y_train[:500])
    found = graph_answers(model, tmp_path, fresh)
    wanted = model.predict_proba(fresh)
    unit, _ = model.model_.geometry.place(torch.from_numpy(fresh))
    scores = log_joint(model.model_.votes.to(dtype=torch.float64), unit)[:, :-1]
    assert_close(wanted, scores.softmax(1), atol=1e-12)
    assert_close(found["probabilities"], wanted, atol=1e-6)
    np.testing.assert_array_equal(found["label"], model.predict(fresh))
    assert 0.02 < np.median(1 - wanted.max(1)) < 0.98  # probabilities in between, not 0 and 1


def test_what_holds_no_model_is_refused(tmp_path):
    with pytest.raises(TypeError, match="DAMClassifier or DAMClusterer is wanted, got StandardSc"):
        mn.to_onnx(StandardScaler(), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "names", [["a", "b", "ü 🦆", "d", ""], [7, -3, 11, 2, 5], [1.0, 3.0, 5.0, 7.0, 9.0]]
)
def test_labels_keep_their_type(names, tmp_path):
    model = fit("unit", np.array(names))
    x, _ = rows("unit", 2)
    found = graph_answers(model, tmp_path, x)["label"]
    assert found.tolist() == model.predict(x).tolist()
    assert len(set(found.tolist())) == 5


def test_any_number_of_rows_and_rows_without_direction(tmp_path):
    model = fit("center")
    x = np.stack([np.zeros(13), np.full(13, 7.0), np.arange(13.0)]).astype(np.float32)
    for part in (x, x[:1]):
        found = graph_answers(model, tmp_path, part)
        assert_close(found["probabilities"], model.predict_proba(part), atol=1e-5)
        np.testing.assert_allclose(found["novelty_score"], model.novelty_score(part), rtol=1e-6)


def test_novelty_of_far_rows_keeps_its_digits(tmp_path):
    """In single precision, the digits of hundreds end before the fifth after the point."""
    x, _ = rows("unit")
    model = fit("standard")
    far = x * np.geomspace(1, 1e3, len(x))[:, None]
    found = graph_answers(model, tmp_path, far)
    assert_close(found["novelty_score"], model.novelty_score(far), atol=1e-9)
    assert_close(found["probabilities"], model.predict_proba(far), atol=1e-6)


def test_a_clusterer(tmp_path):
    x, _ = rows("unit")
    model = mn.DAMClusterer(5, n_memories=11, geometry="unit", random_state=0).fit(x)
    found = graph_answers(model, tmp_path, x)
    np.testing.assert_array_equal(found["label"], model.predict(x))
    assert_close(found["probabilities"], model.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("kind", slow_but(["circles"], KINDS))
def test_the_torch_module_can_be_exported(kind):
    x, y = rows(kind, 3)
    if KINDS[kind].of is Product:
        frame = pd.DataFrame(x[:, 3:]).rename(columns=str).assign(text=list(x[:, :3]))
        model = small(n_memories=7, geometry=kind, max_iter=2).fit(frame, y).model_
        more = torch.from_numpy(x[:53, [*range(3, 13), *range(3)]].astype(np.float64))
    else:
        model = small(n_memories=7, geometry=kind, max_iter=2).fit(x, y).model_
        more = torch.from_numpy(x[:53].astype(np.float64))
    more[::5, 4] = torch.nan
    module = mn.export.DAMModule(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        exported = torch.export.export(
            module, (more[:7],), dynamic_shapes=({0: torch.export.Dim("batch")},)
        ).module()
    torch.testing.assert_close(exported(more), model.log_proba(more), rtol=0, atol=1e-9)
    torch.testing.assert_close(exported(more * 1e200), module(more * 1e200), rtol=0, atol=1e-12)


def test_times_in_seconds_keep_their_digits(tmp_path):
    """Rows far from zero, whose differences single precision does not hold."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    x = np.c_[1.7e9 + 30 * y + rng.normal(size=200), rng.normal(size=200)]
    model = mn.DAMClassifier(4, geometry="standard", search=None, random_state=0).fit(x, y)
    assert graph_answers(model, tmp_path, x)["label"].tolist() == model.predict(x).tolist()


def columns_of(frame, kind=np.float64):
    """A frame as a graph takes it: its columns, categories as strings."""
    texts = frame.select_dtypes(exclude="number")
    numbers = {
        name: frame[[name]].to_numpy(kind) for name in frame.columns.difference(texts.columns)
    }
    return numbers | {name: texts[[name]].fillna("").to_numpy(object) for name in texts}


def answers(path, given):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(
        zip([own.name for own in session.get_outputs()], session.run(None, given), strict=True)
    )


@pytest.fixture
def table():
    """Numbers with gaps, a category of many levels with missing ones, a pair, and classes that go by them."""
    x, y = rows("standard")
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(x[:400, :3], columns=["a", "b", "shade"]).mask(rng.random((400, 3)) < 0.1)
    colors = np.array(["red", "green", "blue", "ünder  way", *(f"rare {k}" for k in range(6))])
    frame["color"] = colors[np.minimum(rng.geometric(0.4, 400), 10) - 1]
    frame.loc[0, "color"] = "seen once"
    frame["size"] = rng.choice(["small", "large", None], 400, p=[0.5, 0.4, 0.1])
    return frame, np.where(frame["color"] == "red", y[:400] % 2, y[:400] % 3)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_categories_go_in_as_strings(table, kind, tmp_path):
    frame, y = table
    frame = frame.astype(dict.fromkeys(("a", "b", "shade"), kind))
    model = mn.DAMClassifier(9, geometry="standard", search=None, random_state=0).fit(frame, y)
    kinds = {(own.by_odds, own.is_pair) for own in model.model_.columns.each}
    assert {(True, False), (False, True)} <= kinds
    fresh = frame.assign(color=["never seen", None, *frame["color"][2:]], id=1)[[*frame]]
    mn.to_onnx(model, tmp_path / "m.onnx", frame)
    found = answers(tmp_path / "m.onnx", columns_of(fresh, kind))
    assert_close(found["probabilities"], model.predict_proba(fresh), atol=1e-6)
    assert found["label"].tolist() == model.predict(fresh).tolist()
    with pytest.raises(ValueError, match="'shares' has the name of an output"):
        mn.to_onnx(small().fit(frame.rename(columns={"color": "shares"}), y), tmp_path / "n.onnx")


def test_single_precision_goes_in(tmp_path):
    x, _ = rows("center")
    model = fit("center")
    mn.to_onnx(model, tmp_path / "m.onnx", x)
    found = answers(tmp_path / "m.onnx", {"rows": x})
    assert_close(found["probabilities"], model.predict_proba(x), atol=1e-6)


def test_a_pipeline_is_one_graph(table, tmp_path):
    pytest.importorskip("skl2onnx")
    frame, y = table
    frame = frame.astype({"color": object}).assign(size=frame["size"].fillna("none"))
    scaled = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (scaled, ["a", "b", "shade"]),
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["color", "size"]),
    )
    clf = mn.DAMClassifier(9, search=None, random_state=0)
    model = make_pipeline(columns, clf).fit(frame, y)
    mn.to_onnx(model, tmp_path / "m.onnx", frame)
    found = answers(tmp_path / "m.onnx", columns_of(frame, np.float32))
    assert_close(found["probabilities"], model.predict_proba(frame), atol=1e-5)
    inner = model[:-1].transform(frame)
    assert found["is_rejected"].mean() == pytest.approx(
        mn.interpret.rejections(model[-1].model_, inner).rejected.mean(), abs=0.01
    )
    x = frame[["a", "b", "shade"]].fillna(0).to_numpy()
    plain = make_pipeline(StandardScaler(), clf).fit(x, y)
    mn.to_onnx(plain, tmp_path / "n.onnx", x)
    found = answers(tmp_path / "n.onnx", {"X": x})
    assert_close(found["probabilities"], plain.predict_proba(x), atol=1e-5)
    with pytest.raises(ValueError, match="a pipeline needs X"):
        mn.to_onnx(plain, tmp_path / "n.onnx")


@pytest.mark.parametrize("n_classes", [2, 5])
def test_skl2onnx_converts_it_within_other_estimators(n_classes):
    """Here calibrated ones, of rows with gaps."""
    skl2onnx = pytest.importorskip("skl2onnx")
    mn.export.register_converter(mn.DAMClassifier)
    x, y = rows("standard")
    x[::7, 3] = np.nan
    x, y = x[y < n_classes], y[y < n_classes]
    model = CalibratedClassifierCV(small(geometry="standard"), cv=2).fit(x, y)
    proto = skl2onnx.to_onnx(model, x, options={"zipmap": False}, target_opset=18)
    found = answers(proto.SerializeToString(), {"X": x})
    assert_close(found["probabilities"], model.predict_proba(x), atol=1e-5)

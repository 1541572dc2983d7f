"""Every surface says the same, on every kind of data: the table is in docs/guide/deploy.md."""

import re
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import TunedThresholdClassifierCV

import mnemosphere as mn
from commands import caller
from mnemosphere.cli import app
from mnemosphere.rows.rows import Rows
from quick_models import graph_answers, reloaded
from surfaces.kinds import KINDS, SLOW, Fitted

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "deploy.md"
run = caller(app)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of a kind, fitted once."""
    found: dict[tuple[str, bool], Fitted] = {}

    def get(kind: str, default: bool) -> Fitted:
        if (kind, default) not in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # remarks on columns and labels
                folder = tmp_path_factory.mktemp("kind")
                found[kind, default] = Fitted(kind, folder, default=default)
        return found[kind, default]

    return get


def file_of(f: Fitted) -> Path:
    path = f.folder / "model.safetensors"
    if not path.exists():
        mn.save(f.model, path)
    return path


def check_fit(f):
    proba = f.proba()
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(1), 1)
    truth = np.asarray(f.rows.y_test)
    right = np.mean(f.model.classes_[proba.argmax(1)] == truth)
    most = np.unique(truth, return_counts=True)[1].max() / len(truth)
    assert right >= min(most, 0.9) - 0.1


def check_file(f):
    """Loaded on a processor; a model that was trained there answers bitwise identically."""
    loaded = mn.load(file_of(f))
    most = 0.0 if f.model.model_.device.type == "cpu" else 1e-9
    np.testing.assert_allclose(as_array(loaded.predict_proba(f.x_test)), f.proba(), 0, most)


def check_graph(f):
    rows = f.raw().astype(np.float64)
    found = graph_answers(f.model, f.folder, rows)
    model = f.model.model_
    given = Rows.of(rows, model.device)
    wanted = model.log_proba(given).exp().cpu().numpy()
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-5)
    score = model.novelty_score(given).cpu().numpy()
    np.testing.assert_allclose(found["novelty_score"], score, rtol=1e-4, atol=1e-4)
    assert found["label"].tolist() == model.classes[wanted.argmax(1)].tolist()


def check_page(f):
    browser = f.browser()
    f.model.explore(f.folder / "p.html", f.x_test[:4])
    browser.open(f.folder / "p.html")
    every = "Array.from({length: mnemosphere.rows().n}, (_, r) => mnemosphere.predictRow(r))"
    found = browser.evaluate(every)
    assert browser.evaluate("document.getElementById('check').hidden")
    most = 1e-5 if f.model.model_.votes.w.numel() <= 20_000 else 1e-3
    np.testing.assert_allclose([row["proba"] for row in found], f.proba()[:4], atol=most)
    assert not browser.complaints()


def check_command_line(f):
    data = f.folder / "rows_test.csv"
    x = f.x_test if isinstance(f.x_test, pd.DataFrame) else pd.DataFrame(f.raw())
    x.to_csv(data, index=False)
    run("predict", file_of(f), data, "--out", f.folder / "p.csv", "--overwrite")
    found = pd.read_csv(f.folder / "p.csv").filter(like="probability_")
    np.testing.assert_allclose(found, f.proba(), atol=1e-9)


def check_reasons(f):
    why = f.model.explain(f.x_test, n_memories=f.model.n_memories_)
    prior = f.model.model_.votes.p[0].double().cpu().numpy()
    parts = np.einsum("bk,bkc->bc", why.share, why.soft_label)
    parts = (parts + why.uniform_share[:, None] * prior / max(prior.sum(), 1e-300))[:, :-1]
    known = why.uniform_share < 1  # a row without direction gets the prior
    share = parts[known] / parts[known].sum(1, keepdims=True)
    np.testing.assert_allclose(share, why.proba[known], atol=1e-5)
    if why.shows_features:
        assert all(np.isfinite(own.pull) for own in why.pulls(0))
        assert why.column_table(0) or not any(own.pull for own in why.pulls(0))


def as_array(values):
    return np.asarray(torch.as_tensor(values).cpu())


def check_shares(f):
    """`transform` has the shares that `explain` shows; memories that are alike are shown as one."""
    model, why = f.model, f.model.explain(f.x_test, n_memories=f.model.n_memories_)
    share = as_array(model.transform(f.x_test))
    shown, standing = np.zeros_like(share), model.model_.standing.cpu().numpy()
    np.add.at(shown.T, standing, share.T)
    close = 1e-12 if share.dtype == np.float64 else 1e-6
    np.testing.assert_allclose(np.take_along_axis(shown, why.memory, 1), why.share, atol=close)
    np.testing.assert_allclose(share.sum(1) + why.uniform_share, 1, atol=1e-6)


def check_layer(f):
    layer = mn.export.DAMModule(f.model.model_)
    rows = f.raw()
    given = torch.from_numpy(rows).to(f.model.model_.device).requires_grad_()
    found = layer(given).exp()
    np.testing.assert_allclose(as_array(found.detach()), f.proba(), atol=1e-6)
    found.sum().backward()  # nothing that a fit leaves keeps autograd from it


def check_exemplars(f):
    """Support is the sum of shares in the votes, and typical rows have the largest ones."""
    rows, model = f.rows, f.model
    x = rows.x
    share = as_array(model.transform(x)).astype(np.float64)
    if rows.weight is None and model.class_weight is None:
        here = share.any(1).mean()  # a row without direction is nobody's
        np.testing.assert_allclose(model.support_, share.sum(0) / here, rtol=1e-5, atol=1e-6)
    for memory, typical in enumerate(model.typical_rows_):
        known = typical[typical >= 0]
        if len(known):
            assert share[known, memory].min() >= np.sort(share[:, memory])[-3:].min() - 2e-3


def check_novelty(f):
    model = clone(f.model)
    model.model_ = f.model.model_
    assert np.isfinite(as_array(model.novelty_score(f.x_test))).all()
    model.calibrate(f.x_test)
    novel = np.array([label is None for label in model.predict_or_reject(f.x_test, rate=0.2)])
    assert novel.mean() <= 0.2


def check_recall(f):
    rows = f.raw()[:5]
    some = rows.copy()
    some[:, ::3] = np.nan
    some[np.isnan(some).all(1)] = 1.0
    found = mn.interpret.recall(f.model.model_, Rows.of(some, f.model.model_.device))
    assert np.isfinite(np.asarray(found)).all()
    if isinstance(f.x_test, pd.DataFrame):  # a frame like the one that came
        frame = f.x_test[f.x_test.notna().any(axis=1)]
        some = frame.copy()
        some.iloc[:5, 1] = None
        found = f.model.recall(some)
        known = some.notna()
        pd.testing.assert_frame_equal(found.where(known), some.where(known), check_dtype=False)
        assert list(found) == list(frame)
        assert found.iloc[:, 1].notna().all()


def check_sample(f):
    x, y = f.model.sample(7, random_state=0)
    assert {*y.tolist()} <= {None, *f.model.classes_.tolist()}
    if isinstance(f.x_test, pd.DataFrame):
        assert set(x) <= set(f.x_test)
        rows = f.x_test.reset_index(drop=True).loc[[0] * 7]
        rows = rows.assign(**{name: x[name].to_numpy() for name in x})
        assert np.isfinite(f.model.predict_proba(rows)).all()
    else:
        assert np.isfinite(np.asarray(x)).all()


def in_memory(f):
    """Rows to train on, as the model is given them, and one label for each."""
    rows = f.rows
    if rows.dataset is not None:
        raise TypeError("cross-validation takes rows in memory")
    x = rows.x
    return x, rows.y if np.ndim(rows.y) == 1 else np.asarray(rows.y).argmax(1)


def check_folds(f):
    """A threshold that is found by cross-validation."""
    x, y = in_memory(f)
    known = np.flatnonzero(y != f.model.unlabeled) if f.model.unlabeled is not None else slice(None)
    x, y = x.iloc[known] if isinstance(x, pd.DataFrame) else x[known], y[known]
    names = np.unique(y)
    rare = np.where(np.isin(y, names[: len(names) // 5 + 1]), "rare", "other")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick = f.quick().set_params(unlabeled=None)
        tuned = TunedThresholdClassifierCV(quick, scoring="balanced_accuracy", cv=2).fit(x, rare)
    proba = as_array(tuned.predict_proba(x))[:, 1]
    expected = np.where(proba >= tuned.best_threshold_, "rare", "other")
    np.testing.assert_array_equal(tuned.predict(x), expected)
    assert tuned.best_score_ > 0.5


def check_stream(f):
    rows = f.rows
    model = f.quick()
    if rows.dataset is not None:
        model.partial_fit(rows.dataset, None)
    if model.class_weight == "balanced":
        model.class_weight = {"ill": 10.0, "well": 1.0}
    x = rows.x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        half = len(rows.y) // 2
        weight = rows.weight
        for part in (slice(None, half), slice(half, None)):
            some = x.iloc[part] if isinstance(x, pd.DataFrame) else x[part]
            given = None if weight is None else weight[part]
            model.partial_fit(some, rows.y[part], sample_weight=given)
    found = as_array(reloaded(model, f.folder).predict_proba(f.x_test))
    np.testing.assert_allclose(found, as_array(model.predict_proba(f.x_test)), rtol=1e-6)


def check_examples(f):
    model = f.model.model_
    truth = np.asarray(f.rows.y_test)
    labels = truth if truth.ndim == 1 else model.classes[truth.argmax(1)]
    wider = mn.interpret.add_examples(model, f.x_test, labels)
    assert wider.n_memories > model.n_memories
    back = reloaded(mn.as_estimator(wider), f.folder).model_
    assert torch.equal(back.votes.p, wider.votes.p.cpu())


def check_label_issues(f):
    x, y = in_memory(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = f.quick().label_issues(x, y, n_folds=2)
    assert len(found.scores) == len(y)
    assert (found.given != found.suggested).all()


SURFACES = {
    "`fit`": check_fit,
    "model file": check_file,
    "ONNX": check_graph,
    "page": check_page,
    "command line": check_command_line,
    "reasons add up": check_reasons,
    "`transform`": check_shares,
    "`DAMModule`": check_layer,
    "`support_`, `typical_rows_`": check_exemplars,
    "novelty": check_novelty,
    "recall": check_recall,
    "sample": check_sample,
    "cross-validation": check_folds,
    "`partial_fit`": check_stream,
    "`add_examples`": check_examples,
    "`label_issues`": check_label_issues,
}
# Cells that cannot work, with the one line that says so.
REFUSED = {
    ("files", "cross-validation"): "cross-validation takes rows in memory",
    ("files", "`partial_fit`"): "this takes rows in memory, got a Dataset: pass it to fit",
    ("files", "`label_issues`"): "cross-validation takes rows in memory",
}


LONG = {
    "page", "cross-validation", "`label_issues`", "`partial_fit`", "`add_examples`",
}  # fmt: skip
ALWAYS = {"numbers", "missing values"}  # kinds that are tried whole in every run


def cells(default):
    for kind in [kind for kind, (_, given) in KINDS.items() if given or not default]:
        for surface in SURFACES:
            long = kind in SLOW or ((default or surface in LONG) and kind not in ALWAYS)
            marks = [pytest.mark.slow] * long
            name = f"{kind}-{surface}" + "-default" * default
            yield pytest.param(kind, surface, default, marks=marks, id=name)


@pytest.mark.parametrize(("kind", "surface", "default"), [*cells(False), *cells(True)])
def test_cell(fitted, request, kind, surface, default):
    f = fitted(kind, default)
    f.browser = partial(request.getfixturevalue, "browser")
    if (kind, surface) not in REFUSED:
        SURFACES[surface](f)
        return
    with pytest.raises((TypeError, ValueError), match=re.escape(REFUSED[kind, surface])):
        SURFACES[surface](f)


def written() -> str:
    """The exceptions in the documentation."""
    lines = ["| data | surface | message |", "|---|---|---|"]
    lines += [f"| {kind} | {surface} | `{line}` |" for (kind, surface), line in REFUSED.items()]
    return "\n".join(lines) + "\n\n"


def test_the_page_lists_the_exceptions():
    assert written() in PAGE.read_text(encoding="utf-8"), written()

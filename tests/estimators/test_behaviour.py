"""What a fitted classifier does, against explicit formulas in float64 and finite differences."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_score

import mnemosphere as mn
from mnemosphere.numerics import sphere, vmf

mpl.use("Agg")

KINDS = ["center", "unit", "standard"]


def on_sphere(kind, x, training):
    """What each normalization means, written down once more."""
    if kind == "standard":
        x = (x - training.mean(axis=0)) / training.std(axis=0)
        x = np.hstack([x, np.full((len(x), 1), math.sqrt(x.shape[1]))])
    elif kind == "center":
        x = x - x.mean(axis=1, keepdims=True)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture(scope="module", params=KINDS)
def read(request, data, fresh, oracle):
    """(model of moderate β, unit rows, log_joint of them by the plain formula), each kind."""
    model = mn.DAMClassifier(
        7, normalize=request.param, varsigma=0.6, beta=9.0, max_epochs=5, random_state=0
    ).fit(data.x, data.y)
    x = torch.from_numpy(on_sphere(request.param, fresh.x, data.x))
    return model, x, oracle.log_joint(model.params_, x)


# defaults


def test_defaults_on_iris():
    x, y = load_iris(return_X_y=True)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    assert cross_val_score(mn.DAMClassifier(random_state=0), x, y, cv=folds).mean() >= 0.93


def test_defaults_on_digits(digits):
    x, test_x, y, test_y = digits
    assert mn.DAMClassifier(random_state=0).fit(x, y).score(test_x, test_y) >= 0.975


@pytest.mark.slow
def test_defaults_on_digits_five_folds():
    x, y = load_digits(return_X_y=True)
    # In the order of the file a fold holds writers that the others do not: harder for all.
    assert cross_val_score(mn.DAMClassifier(random_state=0), x, y, cv=5).mean() >= 0.95
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    assert cross_val_score(mn.DAMClassifier(random_state=0), x, y, cv=folds).mean() >= 0.975


def embeddings(seed, rows, concentration, classes=4, modes=2):
    """Von Mises–Fisher clusters in 384 dimensions, several to a class."""
    places = torch.Generator().manual_seed(99)
    mean = sphere.sample_uniform(classes * modes, 384, generator=places, dtype=torch.float64)
    x = vmf.sample(
        mean.repeat_interleave(rows, 0),
        torch.tensor(concentration, dtype=torch.float64),
        generator=torch.Generator().manual_seed(seed),
    )
    return x.numpy(), np.repeat(np.arange(classes * modes) % classes, rows)


@pytest.mark.parametrize("concentration", [180.0, 600.0])
def test_defaults_on_embeddings(concentration):
    """Rows of one cluster have a cosine of 0.15 with each other, or of 0.5."""
    model = mn.DAMClassifier(random_state=0).fit(*embeddings(0, 30, concentration))
    assert model.score(*embeddings(1, 20, concentration)) >= 0.95


def test_defaults_on_images(image_model, images):
    assert image_model.score(images.x_test, images.y_test) >= 0.945


def test_choices_are_shown(image_model):
    model = image_model
    assert model.n_memories_ == 1000  # a fifth of 5000 rows
    fine = [trial for trial in model.selection_ if trial["stage"] == "fine"]
    best = min(fine, key=lambda trial: trial["log_loss"])
    assert (best["normalize"], best["varsigma"]) == (model.normalize_, model.varsigma_)
    tried = {trial["normalize"] for trial in model.selection_}
    assert tried == {"center", "unit", "standard"}
    assert model.history_[-1]["n_memories"] == 1000
    assert model.status_ in {"converged", "max_epochs"}


def test_number_of_memories_counts_distinct_rows(make_clusters):
    x, y = make_clusters(rows=205)
    model = mn.DAMClassifier(normalize="unit", varsigma=0.9, max_epochs=1, random_state=0)
    assert model.fit(x, y).n_memories_ == 41
    assert model.fit(np.r_[x, x], np.r_[y, y]).n_memories_ == 41
    assert model.fit(x[:9], y[:9]).n_memories_ == 6  # two a class


# predictions and what is behind them


def test_probabilities_are_those_of_the_formula(read, fresh):
    model, _, log_joint = read
    expected = log_joint[:, :-1].softmax(1).numpy()
    found = model.predict_proba(fresh.x)
    assert np.allclose(found, expected, rtol=1e-10, atol=1e-14)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-12)
    assert np.array_equal(model.predict(fresh.x), expected.argmax(axis=1))
    assert np.allclose(model.decision_function(fresh.x), np.log(expected), rtol=1e-9)


def test_density_and_novelty_are_those_of_the_formula(read, fresh):
    model, x, log_joint = read
    n = x.shape[1]
    area = math.log(2) + n / 2 * math.log(math.pi) - math.lgamma(n / 2)
    log_density = log_joint.logsumexp(1).numpy()
    assert np.allclose(model.score_samples(fresh.x), log_density - area, rtol=1e-10)
    expected = model.class_weights_[0].sum() / np.exp(log_density)
    assert np.allclose(model.novelty(fresh.x), expected, rtol=1e-9)


def explicit_shares(model, x, oracle):
    """P(component | x), (n, P+1), from the whole array."""
    params = model.params_
    h = params.varsigma * params.beta * x @ params.w.T
    h = h - oracle.log_omega(params.beta, x.shape[1])
    h = torch.cat([torch.zeros(len(x), 1, dtype=h.dtype), h], dim=1)
    return (params.p.sum(1).log() + h).softmax(1).numpy()


def test_shares_of_the_memories(read, fresh, oracle):
    model, x, _ = read
    shares = explicit_shares(model, x, oracle)
    assert np.allclose(model.transform(fresh.x), shares[:, 1:], rtol=1e-9, atol=1e-14)


def test_explanations_add_up_to_the_prediction(read, data, fresh, oracle):
    model, x, log_joint = read
    found = model.explain(fresh.x, n_nearest=7)
    shares = explicit_shares(model, x, oracle)
    assert np.allclose(np.take_along_axis(shares[:, 1:], found.memory, 1), found.share, rtol=1e-9)
    assert (np.diff(found.share, axis=1) <= 0).all()
    assert np.allclose(found.uniform_share, shares[:, 0], rtol=1e-9)
    overlap = (x @ model.params_.w.T).numpy()
    assert np.allclose(np.take_along_axis(overlap, found.memory, 1), found.overlap, rtol=1e-9)
    # Σ share × soft label over all components is P(class | x), "none of them" included.
    uniform = model.class_weights_[0] / model.class_weights_[0].sum()
    total = np.einsum("nk,nkc->nc", found.share, found.soft_label)
    total += found.uniform_share[:, None] * uniform
    assert np.allclose(total, log_joint.softmax(1).numpy(), rtol=1e-6, atol=1e-9)
    assert np.array_equal(found.verdict, model.predict(fresh.x))
    assert np.allclose(found.probability, model.predict_proba(fresh.x).max(axis=1))
    assert np.array_equal(found.memories, model.memories_[found.memory])
    if model.normalize_ == "standard":
        assert np.allclose(found.rows, fresh.x)
        assert np.abs(model.memories_).max() < 2 * np.abs(data.x).max()
    else:
        assert np.allclose(found.rows, x)


def test_explanation_as_table_and_picture(image_model, images):
    found = image_model.explain(images.x_test[:3], n_nearest=4)
    assert len(found) == 3
    assert [len(reasons) for reasons in found] == [4, 4, 4]
    text = str(found)
    first = found[0][0]
    assert f"row 0: {found.verdict[0]}" in text
    assert f"{first.memory}" in text.splitlines()[2]
    assert len(found.as_dicts()) == 12
    assert found.as_dicts()[5]["row"] == 1
    assert found.as_dicts()[5]["rank"] == 2
    figure = found.plot(1, image_shape=images.image_shape, truth=images.y_test[1])
    figure.canvas.draw()
    assert figure.axes


def test_explanation_of_standardized_images_can_be_drawn(images):
    """The coordinate that normalize='standard' appends is no pixel."""
    model = mn.DAMClassifier(5, normalize="standard", varsigma=0.5, max_epochs=1, random_state=0)
    model.fit(images.x_train[:50], images.y_train[:50])
    found = model.explain(images.x_test[:1])
    found.plot(image_shape=images.image_shape)
    assert np.allclose(found.rows, images.x_test[:1])


def test_density_on_the_circle_integrates_to_one(make_clusters):
    x, y = make_clusters(features=2)
    model = mn.DAMClassifier(5, normalize="unit", varsigma=1.0, random_state=0).fit(x, y)
    assert model.beta_ > 2  # not the trivial density
    angle = np.arange(4096) * (2 * np.pi / 4096)
    density = np.exp(model.score_samples(np.c_[np.cos(angle), np.sin(angle)]))
    assert density.mean() * 2 * np.pi == pytest.approx(1.0, rel=1e-9)


def test_noise_is_novel(image_model, images):
    noise = np.random.default_rng(0).normal(size=(50, 784))
    assert image_model.novelty(noise).min() > np.quantile(image_model.novelty(images.x_test), 0.9)
    assert image_model.score_samples(noise).max() < np.median(
        image_model.score_samples(images.x_test)
    )


def test_attributes_fit_together(read):
    model, _, _ = read
    assert np.allclose(model.class_weights_.sum(axis=1), model.memory_prior_, rtol=1e-9)
    assert np.allclose(model.class_weights_.sum(axis=0), model.class_prior_, rtol=1e-9)
    assert np.allclose(model.memory_prior_, 1 / 8)
    assert model.beta_ == 9.0  # held fixed
    if model.normalize_ != "standard":
        assert np.allclose(np.linalg.norm(model.memories_, axis=1), 1)


def test_uniform_weight_is_that_of_the_uniform_component(data):
    model = mn.DAMClassifier(7, uniform_weight=3.0, normalize="unit", varsigma=0.9, random_state=0)
    assert model.fit(data.x, data.y).memory_prior_ == pytest.approx([0.3] + 7 * [0.1])
    model.set_params(uniform_weight=0.0).fit(data.x, data.y)
    assert model.memory_prior_[0] == 0.0
    assert np.array_equal(model.novelty(data.x), np.zeros(61))


def test_without_label_smoothing_nothing_is_none_of_them(data):
    model = mn.DAMClassifier(
        7, label_smoothing=0.0, normalize="unit", varsigma=0.9, random_state=0
    ).fit(data.x, data.y)
    assert model.class_prior_[-1] == 0.0
    assert model.score(data.x, data.y) > 0.9


# recall and sampling


@pytest.mark.parametrize("kind", KINDS)
def test_recall_completes_what_is_not_known(data, fresh, kind):
    model = mn.DAMClassifier(3, normalize=kind, varsigma=0.9, random_state=0).fit(data.x, data.y)
    known = np.random.default_rng(0).random(fresh.x.shape) < 0.4
    known[:, :2] = True
    x = np.where(known, fresh.x, fresh.x.mean())
    found = model.recall(x, known=known)
    assert found.shape == x.shape
    if kind == "standard":
        assert np.allclose(found[known], x[known])
    elif kind == "unit":  # known up to one factor a row
        for row in range(len(x)):
            a, b = found[row, known[row]], x[row, known[row]]
            assert np.allclose(a * np.linalg.norm(b), b * np.linalg.norm(a), atol=1e-9)
    assert (model.score_samples(found) >= model.score_samples(x) - 1e-9).all()


def test_recall_of_a_class_climbs_the_density_of_that_class(image_model, images):
    x = images.x_test[:20].astype(float)
    found = image_model.recall(x, y=np.full(20, 7))
    layer = image_model.to_torch()
    before, after = (layer(torch.from_numpy(z))[:, 7] for z in (x, found))
    assert (after > before).all()
    free = layer(torch.from_numpy(image_model.recall(x)))[:, 7]
    assert (after >= free - 1e-3).all()


def test_completed_images_are_recognized_better(image_model, images):
    """The lower half is gone: filled in by recall, more digits are told right."""
    x = images.x_test[:200].astype(float)
    known = np.zeros((200, 28, 28), dtype=bool)
    known[:, :14] = True
    known = known.reshape(200, 784)
    x = np.where(known, x, 0.0)
    filled = image_model.recall(x, known=known)
    truth = images.y_test[:200]
    before, after = image_model.score(x, truth), image_model.score(filled, truth)
    assert after > before - 0.02
    # What was filled in looks like the lower half that was there.
    real = images.x_test[:200] * ~known
    shown = filled * ~known
    if image_model.normalize_ == "center":
        real = real - np.where(~known, images.x_test[:200].mean(axis=1, keepdims=True), 0)
    cosine = (real * shown).sum(1) / np.linalg.norm(real, axis=1) / np.linalg.norm(shown, axis=1)
    assert np.median(cosine) > 0.5


def test_samples_look_like_their_class(image_model):
    x, y = image_model.sample(30, y=3, random_state=0)
    assert x.shape == (30, 784)
    assert (y == 3).all()
    assert (image_model.predict(x) == 3).mean() > 0.8
    again, _ = image_model.sample(30, y=3, random_state=0)
    assert np.array_equal(x, again)


def test_samples_of_all_classes_come_in_proportion(data):
    names = np.array(["ant", "bee", "wasp"])
    rare = np.where(data.y == 2, np.where(np.arange(61) % 4 == 0, 2, 0), data.y)
    model = mn.DAMClassifier(5, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, names[rare])
    _, labels = model.sample(3000, random_state=0)
    share = [(labels == name).mean() for name in names] + [np.mean([v is None for v in labels])]
    assert share == pytest.approx(model.class_prior_, abs=0.03)


# as a torch layer


def test_layer_gives_the_same_predictions(read, fresh):
    model, _, log_joint = read
    layer = model.to_torch()
    out = layer(torch.from_numpy(fresh.x))
    assert torch.allclose(out, log_joint, rtol=1e-10)
    # Whatever the precision that comes in; moved to float32 as layers are.
    single = torch.from_numpy(fresh.x).float()
    assert torch.allclose(layer(single), log_joint, atol=1e-3)
    assert torch.allclose(layer.float()(single).double(), log_joint, atol=1e-3)
    assert not list(layer.parameters())


def test_gradient_of_the_layer_is_that_of_finite_differences(read, fresh):
    model, _, _ = read
    layer = model.to_torch()
    x = torch.from_numpy(fresh.x[:3]).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), eps=1e-6, atol=1e-6, rtol=1e-5)

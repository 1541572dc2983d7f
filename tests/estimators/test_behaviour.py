"""What a fitted classifier does, against explicit formulas in float64 and finite differences."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split

import mnemosphere as mn
from mnemosphere.numerics import sphere, vmf
from mnemosphere.training.callbacks import Callback

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


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)


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


# streaming


def test_streaming_comes_close_to_fitting(digits):
    x, test_x, y, test_y = digits
    settings = {"n_memories": 150, "normalize": "center", "varsigma": 0.75, "random_state": 0}
    whole = mn.DAMClassifier(**settings, max_epochs=15).fit(x, y).score(test_x, test_y)
    stream = mn.DAMClassifier(**settings)
    rng = np.random.default_rng(0)
    stream.partial_fit(x[:200], y[:200], classes=range(10))
    for _ in range(2):
        for rows in np.array_split(rng.permutation(len(x)), 12):
            stream.partial_fit(x[rows], y[rows])
    assert stream.score(test_x, test_y) > whole - 0.02
    assert stream.status_ == "streaming"


def test_streaming_learns_a_class_that_comes_late(make_clusters):
    x, y = make_clusters(rows=305)
    early = y < 2
    model = mn.DAMClassifier(9, normalize="unit", varsigma=0.9, random_state=0)
    model.partial_fit(x[early], y[early], classes=[0, 1, 2])
    assert not (model.predict(x) == 2).any()
    for rows in np.array_split(np.random.default_rng(0).permutation(305), 5) * 6:
        model.partial_fit(x[rows], y[rows])
    assert model.score(x, y) > 0.9


def test_streaming_goes_on_from_a_fitted_and_from_a_loaded_model(data, fresh, tmp_path):
    model = mn.DAMClassifier(7, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, data.y)
    model.save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    before = model.memories_.copy()
    for one in (model, loaded):
        one.partial_fit(fresh.x, fresh.y)
    assert np.array_equal(model.memories_, loaded.memories_)
    assert np.array_equal(model.class_weights_, loaded.class_weights_)
    moved = np.linalg.norm(model.memories_ - before, axis=1)
    assert 0 < moved.max() < 0.2  # one batch does not overturn what was learned
    assert model.score(data.x, data.y) > 0.9


def test_streaming_takes_rows_without_labels(data, fresh):
    model = mn.DAMClassifier(7, unlabeled=-1, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, data.y)
    prior = model.class_prior_.copy()
    before = model.memories_.copy()
    model.partial_fit(fresh.x, np.full(47, -1))
    assert model.class_prior_ == pytest.approx(prior, abs=1e-5)
    assert not np.array_equal(before, model.memories_)
    assert model.classes_.tolist() == [0, 1, 2]


# growth


def test_growth_records_its_tree(grown):
    assert grown.n_memories_ == 23
    lineage = grown.lineage_
    sizes = [len(nodes) for nodes in lineage.members]
    assert sizes[0] == 5
    assert sizes[-1] == 23
    assert sizes == sorted(sizes)
    assert grown.status_ == "grown"
    assert grown.memory_prior_[0] == pytest.approx(1 / 24)  # P_0 = 1 at the final width


def test_levels_of_growth_are_models(grown, images):
    x, y = images.x_test[:300], images.y_test[:300]
    levels = [grown.at_level(k) for k in range(grown.lineage_.n_levels)]
    assert [m.n_memories_ for m in levels] == [len(n) for n in grown.lineage_.members]
    assert np.array_equal(grown.at_level(-1).predict_proba(x), grown.predict_proba(x))
    losses = [log_loss(y, m.predict_proba(x)) for m in levels]
    assert losses[-1] < losses[0]
    assert levels[0].memories_.shape == (5, 784)
    with pytest.raises(ValueError, match="did not grow"):
        levels[0].at_level(0)


def test_shrinking_keeps_most_of_what_was_known(grown, images):
    x, y = images.x_train[:600], images.y_train[:600]
    small = grown.shrink(x, y, 17)
    assert small.n_memories_ == 17
    assert grown.n_memories_ == 23
    assert small.score(x, y) > grown.score(x, y) - 0.1
    assert grown.shrink(x, y, 23).score(x, y) == grown.score(x, y)


def test_certificate_of_a_converged_model(data):
    model = mn.DAMClassifier(
        3, normalize="unit", varsigma=0.9, tol=1e-6, max_epochs=300, random_state=0
    ).fit(data.x, data.y)
    found = model.certify(data.x, data.y)
    assert found.converged
    assert found.beta_eff == pytest.approx(0.9 * model.beta_)
    early = mn.DAMClassifier(3, normalize="unit", varsigma=0.9, max_epochs=1, random_state=0)
    assert not early.fit(data.x, data.y).certify(data.x, data.y).converged


def test_certificate_leaves_the_model_as_it_is(data):
    names = np.array(["ant", "bee", "wasp"])
    model = mn.DAMClassifier(3, normalize="unit", varsigma=0.9, random_state=0)
    model.fit(data.x, names[data.y])
    model.certify(data.x[:9], np.eye(3)[data.y[:9]])  # soft labels
    assert model.classes_.tolist() == names.tolist()


# objectives and solvers


@pytest.mark.parametrize("rows", [97, 401])
def test_conditional_objective_improves_the_log_loss(make_clusters, rows):
    x, y = make_clusters(rows=rows, spread=2.0)
    settings = {"n_memories": 7, "normalize": "standard", "varsigma": 0.7, "random_state": 0}
    settings["max_epochs"] = 15
    joint = mn.DAMClassifier(**settings).fit(x, y)
    both = [
        mn.DAMClassifier(**settings, objective=objective).fit(x, y)
        for objective in ("conditional", 0.5)
    ]
    cost = [log_loss(y, m.predict_proba(x)) for m in (joint, *both)]
    assert cost[1] < cost[0]
    assert cost[2] <= cost[0] + 1e-3
    assert 1 in {record["phase"] for record in both[0].history_}


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_sgd(make_clusters, objective):
    x, y = make_clusters(rows=305)
    model = mn.DAMClassifier(
        5,
        solver="sgd",
        objective=objective,
        normalize="unit",
        varsigma=0.9,
        batch_size=50,
        max_epochs=60,
        random_state=0,
    ).fit(x, y)
    assert model.score(x, y) > 0.95
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]
    assert model.history_[0]["validation_loss"] is not None


def test_sgd_defaults(make_clusters):
    x, y = make_clusters(rows=305)
    model = mn.DAMClassifier(5, solver="sgd", normalize="unit", varsigma=0.9, random_state=0)
    assert model.fit(x, y).score(x, y) > 0.95


def test_exact_steps_never_increase_the_loss(data):
    model = mn.DAMClassifier(7, normalize="unit", varsigma=0.8, tol=0.0, random_state=0)
    losses = [record["loss"] for record in model.fit(data.x, data.y).history_]
    assert len(losses) == 50
    assert (np.diff(losses) <= 1e-12).all()


# runs


def test_same_seed_same_bits(data, fresh):
    def fit(seed):
        return mn.DAMClassifier(random_state=seed).fit(data.x, data.y).predict_proba(fresh.x)

    assert np.array_equal(fit(0), fit(0))
    assert not np.array_equal(fit(0), fit(1))
    generators = [np.random.RandomState(5), np.random.RandomState(5)]
    assert np.array_equal(*[fit(generator) for generator in generators])


def test_global_random_state_is_left_alone(data):
    before = np.random.mtrand._rand.get_state()[1].copy(), torch.get_rng_state()
    mn.DAMClassifier(5, normalize="unit", varsigma=0.9, random_state=0).fit(data.x, data.y)
    assert np.array_equal(before[0], np.random.mtrand._rand.get_state()[1])
    assert torch.equal(before[1], torch.get_rng_state())


def test_single_precision_is_close_to_double(data, fresh):
    settings = {"n_memories": 7, "normalize": "unit", "varsigma": 0.9, "random_state": 0}
    one, two = (
        mn.DAMClassifier(**settings, dtype=dtype, max_epochs=10).fit(data.x, data.y)
        for dtype in ("float32", "float64")
    )
    assert one.memories_.dtype == np.float32
    assert two.memories_.dtype == np.float64
    assert np.allclose(one.predict_proba(fresh.x), two.predict_proba(fresh.x), atol=1e-3)


class Listener(Callback):
    def __init__(self, stop_after=None):
        self.records = []
        self.stop_after = stop_after
        self.status = None

    def on_epoch(self, record, params):
        self.records.append(record.as_dict())
        if len(self.records) == self.stop_after:
            raise KeyboardInterrupt

    def on_end(self, status):
        self.status = status


def test_callbacks_see_every_pass(data):
    listener = Listener()
    model = mn.DAMClassifier(
        7, normalize="unit", varsigma=0.9, callbacks=[listener], random_state=0
    ).fit(data.x, data.y)
    assert listener.records == model.history_
    assert listener.status == model.status_ == "converged"


def test_interrupted_model_is_usable(data):
    model = mn.DAMClassifier(
        7, normalize="unit", varsigma=0.9, callbacks=[Listener(2)], random_state=0
    ).fit(data.x, data.y)
    assert model.status_ == "interrupted"
    assert len(model.history_) == 2
    assert model.score(data.x, data.y) > 0.8


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 20, "max_epochs": 6},
        {"solver": "sgd", "batch_size": 20, "max_epochs": 6},
        {"objective": "conditional", "max_epochs": 3},
        {"growth": "split", "n_initial": 2, "max_epochs": 4, "batch_size": None},
    ],
    ids=["fixed point", "sgd", "refinement", "growth"],
)
def test_interrupted_run_goes_on_with_the_same_bits(data, fresh, tmp_path, settings):
    settings = {
        "n_memories": 7, "normalize": "unit", "varsigma": 0.9, "tol": 0.0, "random_state": 0
    } | settings  # fmt: skip
    whole = mn.DAMClassifier(**settings).fit(data.x, data.y)
    settings["checkpoint"] = tmp_path / "run.safetensors"
    first = mn.DAMClassifier(**settings, callbacks=[Listener(4)]).fit(data.x, data.y)
    assert first.status_ == "interrupted"
    listener = Listener()
    second = mn.DAMClassifier(**settings, callbacks=[listener]).fit(data.x, data.y)
    assert len(listener.records) <= len(whole.history_) - 3  # it did go on, not start again
    assert np.array_equal(whole.memories_, second.memories_)
    assert np.array_equal(whole.predict_proba(fresh.x), second.predict_proba(fresh.x))

    def without_time(history):
        return [{k: v for k, v in record.items() if k != "seconds"} for record in history]

    assert without_time(whole.history_) == without_time(second.history_)


def test_progress_bar_goes_to_standard_error(data, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    mn.DAMClassifier(7, normalize="unit", varsigma=0.9, verbose=1, random_state=0).fit(*data)
    out, err = capsys.readouterr()
    assert out == ""
    assert "7 memories" in err


def test_quiet_by_default(data, capsys):
    mn.DAMClassifier(7, normalize="unit", varsigma=0.9, random_state=0).fit(*data)
    assert capsys.readouterr() == ("", "")

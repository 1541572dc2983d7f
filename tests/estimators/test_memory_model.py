"""What a fitted model does without labels, classifier and clusterer alike, against formulas."""

import math

import numpy as np
import torch
from sklearn.base import clone

import mnemosphere as mn
from quick_models import small

# density, novelty, shares


def test_density_and_novelty_are_those_of_the_formula(read, fresh):
    model, x, log_joint, _ = read
    n = x.shape[1]
    area = math.log(2) + n / 2 * math.log(math.pi) - math.lgamma(n / 2)
    log_density = log_joint.logsumexp(1).numpy()
    assert np.allclose(
        mn.interpret.score_samples(model.model_, fresh.x), log_density - area, rtol=1e-10
    )
    memories = np.exp(log_density) - model.class_weights_[0].sum()
    assert np.allclose(model.novelty_score(fresh.x), -np.log(memories), rtol=1e-9)


def test_gradient_of_the_torch_layer_is_that_of_finite_differences(read, fresh):
    layer = mn.export.DAMModule(read.model.model_)
    x = torch.from_numpy(fresh.x[:3]).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), eps=1e-6, atol=1e-6, rtol=1e-5)
    assert not list(layer.parameters())


def test_certificate_of_a_copy_that_came_to_rest(data):
    names = np.array(["ant", "bee", "wasp"])
    model = small(n_memories=3, max_iter=1)
    model.fit(data.x, names[data.y])
    before, proba = model.model_.density, model.predict_proba(data.x)
    assert model.certify(data.x, names[data.y], max_iter=0).residual.largest > 1e-3
    assert model.certify(data.x, names[data.y], max_iter=2).n_iter == 2
    found = model.certify(data.x, names[data.y])
    assert found.residual.largest <= found.tol
    assert 2 < found.n_iter < 100
    # The same as training to the end would have given, and the model is as it was.
    exact = mn.FixedPoint(batch_size=None, tol=0.0)
    to_the_end = clone(model).set_params(max_iter=found.n_iter + 1, solver=exact)
    to_the_end.fit(data.x, names[data.y])
    torch.testing.assert_close(found.params.w, to_the_end.model_.density.w)
    torch.testing.assert_close(found.params.beta, to_the_end.model_.density.beta)
    assert model.model_.density is before
    assert np.array_equal(model.predict_proba(data.x), proba)


def test_a_certificate_knows_whether_weights_were_learned():
    """Learned weights of equal clusters are equal, and move with rows of which one cluster has more."""
    rng = np.random.default_rng(0)
    y = np.arange(2).repeat(60)
    x = np.where(y[:, None] == 0, [4.0, 0.0, 0.0], [0.0, 4.0, 0.0]) + rng.normal(size=(120, 3))
    settings = {"n_memories": 2, "objective": "joint", "geometry": "unit", "random_state": 0}
    for held in (False, True):
        solver = mn.FixedPoint(batch_size=None, learn_weights=not held)
        model = mn.DAMClassifier(solver=solver, search=None, **settings).fit(x, y).model_
        assert model.learns_weights is not held
        certificate = mn.interpret.certify(model, x[:80], y[:80])
        weights = certificate.params.p_h[1:]
        assert torch.allclose(weights, weights.mean()) is held
    assert not mn.DAMClassifier(growth=1, **settings).fit(x, y).model_.learns_weights

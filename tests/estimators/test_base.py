"""What every estimator shares: tensors, frames, rows without direction."""

import numpy as np
import pytest
import torch

import mnemosphere as mn
from quick_models import small

# frames, arrays, tensors


ANSWERS = ["predict", "predict_proba", "predict_log_proba", "decision_function", "transform",
           "novelty_score", "recall"]  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_tensors_in_tensors_out(fitted, fresh, name):
    """Bitwise the numbers of arrays, where the question came from, without a graph."""
    x = torch.from_numpy(fresh.x).requires_grad_()
    answer, expected = getattr(fitted, name)(x), getattr(fitted, name)(fresh.x)
    assert isinstance(answer, torch.Tensor)
    assert answer.device == x.device
    assert not answer.requires_grad
    np.testing.assert_array_equal(answer.numpy(), expected, strict=True)


def test_rows_are_left_as_they_were_given(data):
    """Nothing writes to the memory of the caller, tensors that share it among them."""
    x, y = data.x.copy(), data.y.copy()
    model = small().fit(torch.from_numpy(x), torch.from_numpy(y))
    model.partial_fit(x, y)
    model.recall(x)
    assert np.array_equal(x, data.x)
    assert np.array_equal(y, data.y)


# rows without direction


@pytest.fixture(params=["classifier", "clusterer"])
def kind(request):
    """(an unfitted model, fit of it to rows)."""
    if request.param == "classifier":
        model = small()
        return model, lambda x, y, **options: model.fit(x, y, **options)
    model = mn.DAMClusterer(3, n_memories=11, geometry="unit", max_iter=3, random_state=0)
    return model, lambda x, y, **options: model.fit(x, **options)


def test_rows_without_direction_are_set_aside_counted_and_named(data, kind):
    model, fit = kind
    x = data.x.copy()
    lost = np.array([3, 7, 11, 13, 17, 19, 23])
    x[lost] = 0.0
    with pytest.warns(UserWarning, match=r"7 of 61 rows of X are all zeros, .*3, 7, 11, 13, 17, …"):
        fit(x, data.y)
    found = model.class_weights_
    fit(x, data.y, sample_weight=np.isin(np.arange(61), lost, invert=True))  # no warning
    # Memories are those of the other rows; class frequencies are those of all rows.
    assert np.allclose(found.sum(1), model.class_weights_.sum(1), rtol=1e-9)
    with pytest.warns(UserWarning, match=r"14 of 122 rows of X are all zeros, .*3, 7, 11, 13, 17"):
        fit(np.r_[x, x], np.r_[data.y, data.y])  # which merges copies
    with pytest.warns(UserWarning, match=r"7 of 61 rows of X are all zeros"):
        model.partial_fit(x, data.y)
    with pytest.raises(ValueError, match="every row of X is all zeros, so none has a direction"):
        model.partial_fit(0 * x, data.y)


def test_at_prediction_they_get_the_prior_and_novelty_one(data, kind):
    model, fit = kind
    fit(data.x, data.y)
    rows = np.r_[np.zeros((1, 5)), data.x[:2]]
    prior = model.class_prior_[:-1] / model.class_prior_[:-1].sum()
    assert np.allclose(model.predict_proba(rows)[0], prior, rtol=1e-12)
    assert model.predict(rows)[0] == model.classes_[prior.argmax()]
    assert model.novelty_score(rows)[0] == model.novelty_score(rows).max() < np.inf
    model.calibrate(data.x + 1e-3)
    assert model.novelty_score(rows)[0] > model.novelty_threshold_
    assert not model.transform(rows)[0].any()
    # The memories' shares and that of the uniform component make one, for every row.
    uniform = model.explain(rows).uniform_share
    assert np.allclose(model.transform(rows).sum(1) + uniform, 1, rtol=1e-12)
    # The rows beside it are what they are alone.
    for name in ("predict_proba", "novelty_score", "transform"):
        together, alone = getattr(model, name)(rows)[1:], getattr(model, name)(rows[1:])
        assert np.allclose(together, alone, rtol=1e-12), name
    # Of the density the uniform component is left: its weight over the area 8π²/3 of the sphere.
    density = model.memory_prior_[0] / (8 * np.pi**2 / 3)
    assert np.exp(mn.interpret.score_samples(model.model_, rows)[0]) == pytest.approx(
        density, rel=1e-12
    )

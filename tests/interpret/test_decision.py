"""Who decides: shares of memories against float64 sums written down once more, class frequencies, features."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

import class_formula
import mnemosphere as mn
from quick_models import small

SETS = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}


def fitted(name, objective, precision="float64", **settings):
    x, y = SETS[name](return_X_y=True)
    given = {"n_memories": 11, "objective": objective, "varsigma": "auto", "max_iter": 20}
    model = small(geometry="standard", precision=precision, **given, **settings)
    return model.fit(x[::2], y[::2]), x[1::2]


def by_hand(model, x):
    """(share of the uniform component, whether class frequencies decide) of each row."""
    model_ = model.model_
    params = model_.trained
    unit = model_.on_sphere(x, torch.float64)[0].numpy()
    net = model_.votes.p.double().numpy()
    log_shares = class_formula.log_shares(
        params.w.double().numpy(), net.sum(1), float(params.beta), params.varsigma,
        model.temperature_, unit,
    )  # fmt: skip
    shares, soft = np.exp(log_shares), net / np.maximum(net.sum(1, keepdims=True), 1e-300)
    prior = model.class_prior_[:-1] / model.class_prior_[:-1].sum()
    found = []
    for s in shares:
        label = (s @ soft[:, :-1]).argmax()
        proba = s @ soft[:, :-1] / (s @ soft[:, :-1]).sum()
        factor = (proba / (1 - proba)) / (prior / (1 - prior))  # by which odds are off
        frequent = label == prior.argmax() and (factor >= 2 / 3).all() and (factor <= 1.5).all()
        found.append((s[0], frequent))
    return [np.array(column) for column in zip(*found, strict=True)]


@pytest.mark.parametrize(
    ("name", "objective"),
    [("iris", "joint"), ("wine", "conditional"), ("cancer", "joint"), ("cancer", "conditional")],
)
def test_votes_are_shares_at_the_temperature_of_the_classes(name, objective):
    model, x = fitted(name, objective)
    uniform, decide = by_hand(model, x)
    shown = model.explain(x, n_memories=3)
    np.testing.assert_allclose(shown.uniform_share, uniform, rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(shown.frequencies_decide, decide)


def test_copies_split_the_vote_and_are_shown_as_one():
    model, x = fitted("wine", "joint")
    before, n = model.explain(x[:20], n_memories=3), model.n_memories_
    votes = model.model_.votes
    p = torch.cat([votes.p[:1], votes.p[1:] / 2, votes.p[1:] / 2])
    share = torch.cat([votes.p_h[:1], votes.p_h[1:] / 2, votes.p_h[1:] / 2])
    votes = votes.replace(w=torch.cat([votes.w, votes.w]), p=p, p_h=share)
    twice = model.model_.replace(votes=votes, exemplars=None)
    after = mn.interpret.explain(twice, x[:20], n_memories=3)
    np.testing.assert_array_equal(after.memory, before.memory)
    np.testing.assert_allclose(after.share, before.share, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(after.soft_label, before.soft_label, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(after.n_alike, 2 * before.n_alike)
    assert mn.interpret.memory_table(twice)["n_alike"].sum() == 2 * n


def test_the_explanation_says_first_that_no_memory_decides():
    model, x = fitted("iris", "joint", uniform_weight=1.0)
    far = np.array([[9.0, -9.0, -40.0, 30.0]])
    named = model.model_
    found = mn.interpret.explain(named, np.concatenate([x[:1], far]))
    assert found.remark(0) == ""
    assert found.remark(1) == "No memory resembles this row: class frequencies decide."
    assert str(found).splitlines().count(found.remark(1)) == 1
    assert found.frequencies_decide.tolist() == [False, True]
    # Memories that hold all classes alike distinguish none.
    votes = model.model_.votes
    mixed = named.replace(votes=votes.replace(p=votes.weights[:, None] * votes.p_q))
    told = mn.interpret.explain(mixed, x[:1]).remark(0)
    assert told.startswith("Memories that resemble this row hold, taken together, about")


def test_features_explain_odds_of_rows_that_the_model_is_sure_of():
    """The floor under every class used to leave nothing to the features."""
    model, x = fitted("wine", "conditional")
    found = model.explain(x)
    for row in np.argsort(-found.probability)[:20]:
        odds = np.log(np.sort(found.proba[row])[::-1])
        pulls = found.pulls(int(row))
        assert sum(own.pull for own in pulls[:5]) > 0.1 * (odds[0] - odds[1])
        assert found.remark(int(row)) == ""


def test_class_frequencies_decide_only_where_memories_change_little():
    """Rows of the minority class: a memory that holds twice their frequency does say something."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(190, 3)), rng.normal([1.5, 0, 0], 1.0, size=(30, 3))])
    y = np.repeat(["well", "ill"], [190, 30])
    model = mn.DAMClassifier(random_state=0).fit(x, y)
    found, frequent = model.explain(x), np.mean(y == "well")
    told = np.array([found.remark(k).endswith("class frequencies decide.") for k in range(len(x))])
    assert 0 < told.sum() < len(x)
    well = found.proba[:, list(model.classes_).index("well")]
    assert (found.predicted[told] == "well").all()
    factor = (well / (1 - well)) / (frequent / (1 - frequent))
    assert factor[told].max() < 1.6  # the model's own frequencies are near
    assert factor[told].min() > 0.6
    assert found.frequencies_decide.tolist() == told.tolist()

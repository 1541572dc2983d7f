"""The known rows most like a row: by hand, named as the user names them, after edits and from files."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import mnemosphere as mn
from quick_models import reloaded

X, Y = load_wine(return_X_y=True)
TRAIN, TEST = np.arange(0, 178, 2), np.arange(1, 178, 2)


@pytest.fixture(scope="module", params=["standard", "circles", "center"])
def fitted(request):
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(13)])
    frame.iloc[::7, 3] = np.nan
    made = mn.DAMClassifier(5, geometry=request.param, random_state=0)
    return made.fit(frame.iloc[TRAIN], Y[TRAIN]), frame


def unit(model, rows):
    return model.on_sphere(rows, model.precise_votes.w.dtype)[0].nan_to_num(0.0).numpy()


def test_they_are_the_nearest_of_those_that_the_deciding_memories_hold(fitted):
    clf, frame = fitted
    model, asked = clf.model_, frame.iloc[TEST]
    kept = model.held.names.astype(int)
    assert set(kept) <= set(TRAIN)
    assert len(set(kept)) == len(kept) > 60
    known, standing = unit(model, frame.loc[kept]), model.standing.numpy()
    owner = standing[model.shares(frame.loc[kept]).numpy().argmax(1)]
    sums, why = np.eye(5)[standing], clf.explain(asked)  # copies of a memory are one
    for row, (x, share) in enumerate(
        zip(unit(model, asked), model.shares(asked).numpy(), strict=True)
    ):
        share = share @ sums
        deciding = np.flatnonzero(share >= min(0.1, share.max()))
        cosine = known @ x / np.linalg.norm(x)
        cosine[~np.isin(owner, deciding)] = -2
        best = np.argsort(-cosine)[: min(3, (cosine > -2).sum())]
        told = why.similar_rows(row)
        places = [kept.tolist().index(own.name) for own in told]
        assert [own.label for own in told] == Y[kept][places].tolist()
        np.testing.assert_allclose([own.similarity for own in told], cosine[best], atol=1e-6)
        np.testing.assert_allclose(cosine[places], cosine[best], atol=1e-6)


def test_added_rows_are_shown_themselves_and_files_keep_them(fitted, tmp_path):
    clf, frame = fitted
    odd = frame.iloc[[1, 3]] * 1.3
    wider = mn.as_estimator(clf.model_).add_examples(odd, [2, 2])
    wider.add_class(frame.iloc[[5]] * [3, *[1] * 12], 7)
    again = reloaded(wider, tmp_path)
    asked = pd.concat([odd, frame.iloc[[5]] * [3, *[1] * 12]])
    names = [again.explain(asked).similar_rows(row)[0][:2] for row in range(3)]
    assert names == [("added 1", 2), ("added 3", 2), ("added 5", 7)]
    rates = [model.model_.calibration.novelty.size for model in (clf, wider)]
    assert rates[0] == rates[1]  # no rate holds by rows that somebody chose


def test_a_model_without_known_rows_shows_none(fitted):
    clf, frame = fitted
    why = mn.interpret.explain(clf.model_.replace(held=None), frame.iloc[:2])
    assert why.similar_rows(0) == []
    assert "known rows like it" not in str(why)
    assert "known rows like it" in str(clf.explain(frame.iloc[:2]))


def test_more_rows_than_are_searched_keep_their_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(21_000, 3))
    clf = mn.DAMClassifier(2, geometry="standard", search=None, random_state=0, max_iter=2)
    clf.fit(x, (x[:, 0] > 0).astype(int))
    near = clf.explain(x[:50])
    for row in range(50):
        for own in near.similar_rows(row):
            overlap = unit(clf.model_, x[[row]])[0] @ unit(clf.model_, x[[own.name]])[0]
            assert own.similarity == pytest.approx(overlap, abs=1e-5)
            assert own.label == int(x[own.name, 0] > 0)


def test_rows_are_named_afterwards():
    clf = mn.DAMClassifier(3, geometry="standard", random_state=0).fit(X[TRAIN], Y[TRAIN])
    names = np.array([f"bottle {k}" for k in TRAIN])
    before = [own.name for own in clf.explain(X[:9]).similar_rows(4)]
    for prefix in ("bottle", "wine"):
        own = [name.replace("bottle", prefix) for name in names]
        named = mn.interpret.name_rows(clf.model_, own)
        after = [own.name for own in mn.interpret.explain(named, X[:9]).similar_rows(4)]
        assert after == [own[k] for k in before]
        clf.model_ = named
        before = [[*own].index(name) for name in after]

"""Texts in, texts out: estimators with an encoder."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.metrics import log_loss

import mnemosphere as mn
import quick_models
from hashed_words import N_NUMBERS, hashed_words, other_words


def small(**more):
    given = {"n_memories": 20, "varsigma": 0.5, "max_iter": None, "encoder": hashed_words}
    return quick_models.small(**given | more)


@pytest.fixture(scope="module")
def data():
    return mn.load_data("banking-small")


@pytest.fixture(scope="module")
def model(data):
    return small().fit(pd.Series(data.x_train, name="message"), data.y_train)


def test_a_model_of_texts_is_the_model_of_their_vectors(model, data):
    plain = small(encoder=None).fit(hashed_words(list(data.x_train)), data.y_train)
    vectors = hashed_words(list(data.x_test))
    wanted = plain.predict_proba(vectors)
    encoded = mn.interpret.encode(model.model_, pd.DataFrame({"message": data.x_test}))
    for X in (encoded, data.x_test, list(data.x_test), pd.DataFrame({"message": data.x_test}),
              pd.DataFrame({"n": 1, "message": data.x_test}), vectors):  # fmt: skip
        assert_array_equal(model.predict_proba(X), wanted)
    found = model.predict_proba(torch.from_numpy(vectors))
    assert isinstance(found, torch.Tensor)
    assert model.score(data.x_test, data.y_test) > 0.6
    assert model.n_features_in_ == 1
    assert model.feature_names_in_.tolist() == ["message"]
    assert model.memories_.shape == (20, N_NUMBERS)


def test_rows_that_come_back_are_vectors(model, data):
    frame = pd.DataFrame({"message": data.x_test[:3]})
    for X in (frame, frame["message"], list(frame["message"])):
        assert model.recall(X).shape == model.counterfactual(X).rows.shape == (3, N_NUMBERS)


def test_texts_stand_behind_memories_and_reasons(model, data):
    clean = {" ".join(text.split())[:200] for text in data.x_train}
    table = model.memory_table()
    assert all(text in clean for line in table.typical_rows for text in line)
    assert table.features.tolist() == [[]] * 20
    found = model.explain(["Somebody stole\n my card!"])
    reason = found[0][0]
    assert reason.typical_rows == tuple(table.typical_rows[reason.memory])
    assert str(found).startswith('row 0 "Somebody stole my card!": lost_or_stolen_card')
    nearest = found.similar_rows(0)[0].name
    assert nearest in clean
    assert nearest[:40] in str(found)


def test_texts_of_other_topics_are_rejected(model, data):
    model = mn.as_estimator(model.model_).calibrate(data.x_test)
    odd = ["quokka wombat numbat bandicoot", "", "change my PIN please"]
    assert model.predict_or_reject(odd, rate=0.1).tolist() == [None, None, "change_pin"]
    assert model.novelty_score([*odd, *data.x_test]).argmax() == 1
    few = ["Please upgrade my plan", "What does the premium plan cost?", "Switch me to premium"]
    model.add_class(few, "premium")
    assert model.predict(["premium plan"]).tolist() == ["premium"]
    table = model.memory_table()
    own = table[table.label == "premium"]
    assert {text for line in own.typical_rows for text in line} == {*few}


def test_a_file_knows_its_encoder(model, data, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    wanted = model.predict_proba(data.x_test)
    found = mn.load(path, encoder=hashed_words)
    assert found.encoder is hashed_words
    assert_array_equal(found.predict_proba(data.x_test), wanted)
    again = mn.load(path)
    assert again.memory_table().typical_rows.tolist() == model.memory_table().typical_rows.tolist()
    assert_array_equal(again.predict_proba(hashed_words(list(data.x_test))), wanted)
    with pytest.raises(ValueError, match=r"encoder 'hashed_words', which its file does not hold"):
        again.predict(data.x_test)
    with pytest.raises(
        ValueError, match=r"trained with the encoder 'hashed_words'.*got 'other_words'"
    ):
        mn.load(path, encoder=other_words)
    again.save(tmp_path / "twice.safetensors")
    twice = mn.load(tmp_path / "twice.safetensors", encoder=hashed_words)
    assert_array_equal(twice.predict_proba(data.x_test), wanted)


def test_missing_texts_are_set_aside(data):
    x = [None, " ", *data.x_train]
    y = ["change_pin", "change_pin", *data.y_train]
    with pytest.warns(UserWarning, match="set aside"):
        found = small().fit(x, y)
    plain = small().fit(data.x_train, data.y_train)
    assert np.mean(found.predict(data.x_test) == plain.predict(data.x_test)) > 0.9
    assert all(line for line in found.memory_table().typical_rows)


def test_pickles_and_streams(model, data):
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(data.x_test), model.predict(data.x_test))
    stream = small()
    for half in (slice(0, None, 2), slice(1, None, 2)):
        stream.partial_fit(list(data.x_train[half]), data.y_train[half])
    assert stream.score(data.x_test, data.y_test) > 0.6


def test_texts_without_an_encoder_are_refused():
    with pytest.raises(ValueError, match="X holds texts: pass encoder='wordllama'"):
        small(encoder=None).fit(["a text", "another"], ["a", "b"])


def test_the_packaged_encoder_is_found_by_its_name(data, tmp_path):
    pytest.importorskip("wordllama")
    model = small(encoder="wordllama").fit(data.x_train, data.y_train)
    model.save(tmp_path / "model.safetensors")
    found = mn.load(tmp_path / "model.safetensors")
    assert found.encoder == "wordllama"
    assert_array_equal(found.predict_proba(data.x_test), model.predict_proba(data.x_test))
    assert model.score(data.x_test, data.y_test) > 0.9


def tickets(data, part="train"):
    """A frame of texts and of two columns that tell some classes apart."""
    texts, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
    classes = np.unique(y)
    place, rng = np.searchsorted(classes, y), np.random.default_rng(len(y))
    plan = np.where((place // 2 % 2 == 1) ^ (rng.random(len(y)) < 0.1), "basic", "plus")
    fee = 3.0 * (place % 2) + rng.normal(size=len(y))
    frame = pd.DataFrame({"fee": fee, "message": texts, "plan": plan})
    frame.loc[7, "message"] = None
    frame.loc[9, "fee"] = np.nan
    return frame, y


@pytest.fixture(scope="module")
def both(data):
    return mn.DAMClassifier(encoder=hashed_words, random_state=0).fit(*tickets(data))


def test_texts_and_columns_together_beat_either(both, data):
    seen, fresh = tickets(data), tickets(data, "test")
    texts = mn.DAMClassifier(encoder=hashed_words, random_state=0)
    columns = mn.DAMClassifier(random_state=0)
    with pytest.warns(UserWarning, match="set aside"):
        texts.fit(seen[0][["message"]], seen[1])
    columns.fit(seen[0].drop(columns="message"), seen[1])
    loss = {
        name: log_loss(fresh[1], model.predict_proba(fresh[0][of]))
        for name, model, of in (
            ("both", both, [*fresh[0]]), ("texts", texts, ["message"]), ("columns", columns, ["fee", "plan"]),
        )
    }  # fmt: skip
    assert loss["both"] < 0.95 * min(loss["texts"], loss["columns"])
    assert both.geometry_.startswith("text")


def test_a_column_of_texts_is_one_line(both, data):
    fresh, _ = tickets(data, "test")
    found = both.explain(fresh[:1])
    pulls = {own.column: own.value for own in found.pulls(0)}
    assert {*pulls} == {"fee", "message", "plan"}
    assert pulls["message"][1:20] == fresh.message[0][:19]
    assert {name for line in both.memory_table().features for name in line} <= {
        "fee",
        "message",
        "plan",
    }
    other = both.counterfactual(fresh[:7])  # no text has a changed vector
    assert other.rows.message.tolist() == fresh.message[:7].tolist()
    issues = both.label_issues(*tickets(data))
    assert issues.proba.shape == (300, 10)
    assert both.recall(fresh[:9]).fee.notna().all()


def test_a_column_of_texts_can_be_named(data):
    frame, y = tickets(data)
    short = frame.assign(message=[" ".join(str(m).split()[:2]) for m in frame.message])
    with pytest.raises(ValueError, match="no column of X holds texts of 5 words or more: name it"):
        small().fit(short, y)
    with pytest.raises(ValueError, match="encoder names 'text', which X does not have"):
        small(encoder={"text": hashed_words}).fit(frame, y)
    named = mn.DAMClassifier(
        10, encoder={"message": hashed_words}, geometry="text50+standard", random_state=0
    ).fit(short, y)  # fmt: skip
    assert named.model_.columns.vectors == tuple(range(1, 1 + N_NUMBERS))
    with pytest.raises(
        ValueError, match="needs a column of texts, or of lists of numbers, and others"
    ):
        mn.DAMClassifier(10, geometry="text50+standard").fit(frame[["fee", "plan"]], y)

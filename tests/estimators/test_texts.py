"""Texts in, texts out: estimators with an encoder."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

import mnemosphere as mn
import quick_models
from hashed_words import N_NUMBERS, hashed_words, other_words
from mnemosphere.interpret import memory_table


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
        np.testing.assert_array_equal(model.predict_proba(X), wanted)
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
    other = memory_table(model.model_, data.x_test, data.y_test)
    assert {text for line in other.typical_rows for text in line} <= {
        " ".join(text.split())[:200] for text in data.x_test
    }
    found = model.explain(["Somebody stole\n my card!"])
    reason = found[0][0]
    assert reason.typical_rows == tuple(table.typical_rows[reason.memory])
    assert str(found).startswith('row 0 "Somebody stole my card!": lost_or_stolen_card')
    assert reason.typical_rows[0][:40] in str(found)


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
    np.testing.assert_array_equal(found.predict_proba(data.x_test), wanted)
    again = mn.load(path)
    assert again.memory_table().typical_rows.tolist() == model.memory_table().typical_rows.tolist()
    np.testing.assert_array_equal(again.predict_proba(hashed_words(list(data.x_test))), wanted)
    with pytest.raises(ValueError, match=r"encoder 'hashed_words', which its file does not hold"):
        again.predict(data.x_test)
    with pytest.raises(ValueError, match="'other_words' gives other vectors than 'hashed_words'"):
        mn.load(path, encoder=other_words)
    again.save(tmp_path / "twice.safetensors")
    twice = mn.load(tmp_path / "twice.safetensors", encoder=hashed_words)
    np.testing.assert_array_equal(twice.predict_proba(data.x_test), wanted)


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
    np.testing.assert_array_equal(again.predict(data.x_test), model.predict(data.x_test))
    stream = small()
    for half in (slice(0, None, 2), slice(1, None, 2)):
        stream.partial_fit(list(data.x_train[half]), data.y_train[half])
    assert stream.score(data.x_test, data.y_test) > 0.6


def test_clusters_of_texts(data):
    found = mn.DAMClusterer(10, encoder=hashed_words, random_state=0).fit(data.x_train)
    assert found.predict(data.x_test).shape == (100,)
    texts = found.memory_table().typical_rows.tolist()
    assert all(isinstance(text, str) for line in texts for text in line)


def test_texts_without_an_encoder_are_refused():
    with pytest.raises(ValueError, match="X holds texts: pass encoder='wordllama'"):
        small(encoder=None).fit(["a text", "another"], ["a", "b"])


def test_the_packaged_encoder_is_found_by_its_name(data, tmp_path):
    pytest.importorskip("wordllama")
    model = small(encoder="wordllama").fit(data.x_train, data.y_train)
    model.save(tmp_path / "model.safetensors")
    found = mn.load(tmp_path / "model.safetensors")
    assert found.encoder == "wordllama"
    np.testing.assert_array_equal(
        found.predict_proba(data.x_test), model.predict_proba(data.x_test)
    )
    assert model.score(data.x_test, data.y_test) > 0.9

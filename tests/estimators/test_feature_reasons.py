"""What each feature did: parts that add up to overlaps and odds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import class_formula
import mnemosphere as mn
from estimators.conftest import on_sphere
from quick_models import small


def test_parts_of_overlaps_and_of_the_odds(read, data, fresh):
    model, x, _, _ = read
    x = x.numpy()
    circles = model.normalize_ == "circles"
    average = on_sphere("circles", data.x, data.x).mean(0)

    def by_feature(parts):
        """On circles, eight coordinates of each feature; else one, and perhaps a constant."""
        return parts.reshape(*parts.shape[:-1], 5, 8).sum(-1) if circles else parts

    w = model.model_.votes.w.numpy()
    shares, soft, _ = class_formula.of_model(model, x)
    beta = model.varsigma_ * model.beta_ / model.temperature_
    log_proba = model.predict_log_proba(fresh.x)
    mix = model.class_weights_[:, :-1].sum(0) / model.class_weights_[:, :-1].sum()
    own = soft[1:, :-1] - (soft[1:, :-1] / mix).min(1, keepdims=True) * mix
    held = model.transform(data.x)
    rows = (held.T @ data.x) / held.sum(0)[:, None]  # that memories stand for
    standard = (rows - data.x.mean(0)) / data.x.std(0)
    own[own <= 0.003] = 0.0
    found = model.explain(fresh.x, n_nearest=3)
    for row in range(0, 47, 5):
        why, n = found.features(row), 5
        parts = by_feature(x[row] * w[found.memory[row]])  # (3, N')
        np.testing.assert_allclose(why.contribution, parts[:, :n], rtol=1e-10, atol=1e-14)
        total = why.contribution.sum(1) + why.constant
        np.testing.assert_allclose(total, found.overlap[row], rtol=0, atol=1e-10)
        a, b = np.argsort(-log_proba[row])[:2]
        assert (why.predicted, why.runner_up) == (a, b)
        mean, said, weights = [], [], []
        for y in (a, b):
            within = shares[row, 1:] * own[:, y]  # without what repeats the class frequencies
            mean.append(within / within.sum() @ w)
            said.append(np.log(within.sum()))
            weights.append(within / within.sum())
        nearer = beta / 2 * ((x[row] - mean[1]) ** 2 - (x[row] - mean[0]) ** 2)
        if circles:  # by how much more than for an average row
            nearer = by_feature(beta * (mean[0] - mean[1]) * (x[row] - average))
        np.testing.assert_allclose(why.difference, nearer[:n], rtol=1e-8, atol=1e-12)
        assert why.difference_constant == pytest.approx(nearer[n:].sum(), abs=1e-12)
        odds = log_proba[row, a] - log_proba[row, b]
        assert why.log_odds == pytest.approx(odds, abs=1e-10)
        summed = why.difference.sum() + why.difference_constant + why.difference_rest
        assert summed == pytest.approx(said[0] - said[1], abs=1e-9)
        assert summed + why.difference_frequencies == pytest.approx(odds, abs=1e-10)
        np.testing.assert_array_equal(why.value, fresh.x[row])
        if circles:
            rank = [np.interp(v, np.sort(own), (np.arange(61) + 0.5) / 61)
                    for v, own in zip(fresh.x[row], data.x.T, strict=True)]  # fmt: skip
            np.testing.assert_allclose(why.position, rank, rtol=1e-9)
            continue
        length = np.linalg.norm((fresh.x[row] - data.x.mean(0)) / data.x.std(0))
        unit = np.hypot(length, n**0.5) if model.normalize_ == "standard" else n**0.5
        np.testing.assert_allclose(why.position, unit * x[row, :n], rtol=1e-9)
        at = standard if model.normalize_ == "standard" else unit * w[:, :n]
        np.testing.assert_allclose(why.memories, at[found.memory[row]], rtol=1e-9)
        np.testing.assert_allclose(why.predicted_position, weights[0] @ at, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(why.runner_up_value, weights[1] @ rows, rtol=1e-8)


def test_single_precision_and_a_table_with_names(data):
    frame = pd.DataFrame(data.x, columns=["height", "width", "age", "income", "debt"])
    model = small(normalize="standard", varsigma=0.6, precision="float32").fit(
        frame, np.array(["ant", "bee", "cat"])[data.y]
    )
    found = model.explain(frame[:3])
    why = found.features(2)
    total = why.contribution.sum(1) + why.constant
    np.testing.assert_allclose(total, found.overlap[2], rtol=0, atol=1e-10)
    table = {line["feature"]: line for line in why.table(3)}
    first = why.as_dicts()[0]
    assert next(iter(table)) == first["feature"] in frame.columns
    assert table[first["feature"]]["value"] == f"{frame[first['feature']].iloc[2]:.4g}"
    shown = [float(line["difference"]) for line in list(table.values())[:-1]]
    assert sum(shown) == pytest.approx(why.log_odds, abs=0.005 * len(shown))
    assert f"why {found.predicted[2]} rather than {found.runner_up[2]}: odds " in str(found)


def test_a_row_without_direction_has_the_odds_of_the_prior(data):
    model = small()
    model.fit(data.x, data.y)
    found = model.explain(np.zeros((1, 5)))
    why = found.features()
    assert not why.contribution.any()
    assert not why.difference.any()
    odds = model.predict_log_proba(np.zeros((1, 5)))[0]
    assert why.log_odds == pytest.approx(np.sort(odds)[-1] - np.sort(odds)[-2], abs=1e-12)
    assert str(found)


@pytest.fixture(scope="module")
def named(data):
    model = small(max_iter=None).fit(data.x, data.y)
    names = [f"a text about row {k} and other things" for k in range(61)]
    return mn.as_estimator(mn.interpret.name_rows(model.model_, names))


def test_the_odds_rise_towards_the_memories_of_the_predicted_class(named, fresh):
    """The slope of F_a − F_b along the sphere is β (m_a − m_b), by finite differences."""
    model = named
    row, step = fresh.x[7] / np.linalg.norm(fresh.x[7]), 1e-6
    why = model.explain(row[None]).features()
    beta = float(model.model_.votes.slope)
    slope = beta * (why.predicted_position - why.runner_up_position) / 5**0.5
    across = np.eye(5) - np.outer(row, row)
    a, b = why.predicted, why.runner_up
    for direction in np.eye(5):
        moved = model.explain(np.array([row + step * direction, row - step * direction]))
        ends = [moved.features(k) for k in range(2)]
        assert all((end.predicted, end.runner_up) == (a, b) for end in ends)
        above, below = (end.log_odds - end.difference_frequencies for end in ends)
        assert (above - below) / (2 * step) == pytest.approx(slope @ across @ direction, abs=1e-6)


def test_rows_by_name(named, data, tmp_path):
    names = named.explain(data.x[:1])[0][0].typical_rows
    memory = named.explain(data.x[:1]).memory[0, 0]
    numbers = [k for k in named.typical_rows_[memory] if k >= 0]
    assert list(names) == [f"a text about row {k} and other things" for k in numbers]
    assert named.memory_table()["typical_rows"][memory] == list(names)
    assert named.memory_table(data.x, data.y)["typical_rows"][memory] == numbers
    assert names[0] in str(named.explain(data.x[:1]))
    named.save(tmp_path / "m.safetensors")
    back = mn.load(tmp_path / "m.safetensors")
    assert back.explain(data.x[:1])[0][0].typical_rows == names


def test_categories_are_one_feature_and_a_metric_is_part_of_the_weights(data):
    """The strongest features of a memory are those of the largest weight in overlaps with it."""
    frame = pd.DataFrame(data.x, columns=["height", "width", "age", "income", "debt"])
    frame["plan"] = np.array(["basic", "plus", "pro"])[np.digitize(data.x[:, 0], [-0.5, 0.5])]
    model = small(normalize="whitened", varsigma=0.6).fit(frame, data.y)
    names = model.model_.features.names
    assert len(names) == 8  # three numbers for the category
    why = model.explain(frame.iloc[:2]).features(1)
    assert why.names == [*frame.columns]
    assert why.written[5] == frame["plan"][1]
    weight = model.model_.votes.w.numpy() @ model.model_.normalizer.mixing.numpy()
    best = np.abs(weight[:, : len(names)]).argmax(1)
    table = model.memory_table()
    assert [line[0] for line in table["features"]] == [names[k] for k in best[table.index]]
    strongest = mn.interpret.strongest_features(model.model_, 1)
    assert strongest["weight"].tolist() == pytest.approx(
        weight[np.arange(7), best].tolist(), rel=1e-5
    )

"""Stored patterns against softmax retrieval, written out in NumPy."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import mnemosphere as mn

P, N, B, BETA = 7, 11, 5, 13.0


@pytest.fixture
def patterns():
    return np.random.default_rng(0).normal(size=(P, N))


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_step_is_softmax_retrieval(patterns):
    x = np.random.default_rng(1).normal(size=(B, N))
    memory = mn.DAMClusterer.from_memories(patterns, beta=BETA)
    share = softmax(BETA * unit(x) @ unit(patterns).T, axis=1)
    np.testing.assert_allclose(memory.transform(x), share, rtol=1e-12)
    found = memory.recall(x, steps=1)
    np.testing.assert_allclose(found, unit(share @ unit(patterns)), rtol=1e-12)


def test_a_lost_half_comes_back(patterns, tmp_path):
    patterns = np.hstack([patterns, np.random.default_rng(2).normal(size=(P, 53))])
    memory = mn.DAMClusterer.from_memories(patterns, beta=200)
    damaged = np.where(np.arange(N + 53) % 2, np.nan, patterns)
    np.testing.assert_allclose(memory.recall(damaged), unit(patterns), atol=1e-3)
    memory.save(tmp_path / "m")
    assert np.array_equal(mn.load(tmp_path / "m").recall(damaged), memory.recall(damaged))


def test_a_table_keeps_its_units(patterns):
    frame = pd.DataFrame(100 + 5 * patterns, columns=[f"c{k}" for k in range(N)])
    memory = mn.DAMClusterer.from_memories(frame, geometry="standard")
    np.testing.assert_allclose(memory.memories_, frame, rtol=1e-9)
    found = memory.recall(frame.assign(c3=np.nan))
    assert (found["c3"] - frame["c3"]).abs().max() < 0.5 * frame["c3"].std()


def test_what_has_no_direction_is_refused(patterns):
    with pytest.raises(ValueError, match="memory 2 is all zeros: drop it"):
        mn.DAMClusterer.from_memories(np.where(np.arange(P)[:, None] == 2, 0.0, patterns))
    with pytest.raises(ValueError, match="geometry"):
        mn.DAMClusterer.from_memories(patterns, geometry="nowhere")

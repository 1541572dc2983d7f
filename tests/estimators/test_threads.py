"""Fitted models in many threads and processes, and searches in several jobs."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV

import mnemosphere as mn
from processes import forking
from quick_models import small


@pytest.fixture(scope="module")
def wide():
    """A model, rows enough for torch to share out among threads, and the right answer."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2003, 41))
    model = small(n_memories=53, max_iter=1)
    model.fit(x[:307], (x[:307, 0] > 0).astype(int))
    return model, x, model.predict_proba(x)


def test_sixteen_threads_get_the_right_answers(wide):
    model, x, expected = wide
    with ThreadPoolExecutor(16) as pool:
        parts = list(pool.map(lambda k: model.predict_proba(x[k::16]), range(16), timeout=100))
    for k, part in enumerate(parts):
        np.testing.assert_allclose(part, expected[k::16], rtol=1e-12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_answers_after_its_parent_used_threads(wide):
    """OpenMP's threads are not there after a fork: it waited for them for ever."""
    model, x, expected = wide
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.predict_proba(x)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if np.allclose(model.predict_proba(x), expected, rtol=1e-12) else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "backend", ["multiprocessing", pytest.param("loky", marks=pytest.mark.slow)]
)
def test_jobs_answer_and_share_the_processors(wide, data, backend):
    """As many threads in all as there are processors; a search gives what it gives in one job.

    Forked jobs have all imports; spawned ones take ten seconds for theirs.
    """

    @joblib.wrap_non_picklable_objects  # processes get it without importing tests
    def answer(model, x):
        return torch.get_num_threads(), os.getpid(), model.predict_proba(x)

    model, x, expected = wide
    small = mn.DAMClassifier(5, objective="joint", geometry="unit", max_iter=1, random_state=0)
    search = GridSearchCV(small, {"varsigma": [0.5, 0.9]}, cv=2, refit=False)
    alone = search.fit(*data).cv_results_["mean_test_score"]
    with joblib.parallel_config(backend, n_jobs=2), forking():
        jobs = joblib.Parallel()(joblib.delayed(answer)(model, x[k::2]) for k in range(2))
        together = search.fit(*data).cv_results_["mean_test_score"]
    assert sum(threads for threads, *_ in jobs) <= max(2, joblib.cpu_count())
    assert os.getpid() not in [process for _, process, _ in jobs]
    for k, (*_, answer) in enumerate(jobs):
        np.testing.assert_allclose(answer, expected[k::2], rtol=1e-12)
    assert np.array_equal(alone, together)

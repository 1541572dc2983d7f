"""Fitted models in many threads and processes, and searches in several jobs."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV

import mnemosphere as mn
from mnemosphere.base import machine
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


@pytest.fixture
def three():
    """Three threads, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def in_a_new_thread(read):
    """What is read there."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(read).result(timeout=100)


class Watch(mn.Callback):
    """How many threads a fit has, and a thread that begins meanwhile."""

    def __init__(self):
        self.seen = set()

    def on_batch(self, run, share_done):
        own, new = torch.get_num_threads(), in_a_new_thread(torch.get_num_threads)
        self.seen.add((own, new))


class Rows:
    """Rows that watch how many threads there are where they are read."""

    def __init__(self, x):
        self.x, self.shape, self.seen = x, x.shape, set()

    def __array__(self, dtype=None, copy=None):
        self.seen.add(torch.get_num_threads())
        return np.asarray(self.x, dtype)


@pytest.mark.parametrize("kind", [mn.DAMClassifier, mn.DAMClusterer])
def test_small_work_is_one_thread_and_concerns_no_other(three, data, kind):
    watch = Watch()
    model = kind(5, geometry="unit", max_iter=2, random_state=0, callbacks=[watch])
    model.fit(*data)
    assert watch.seen == {(1, 3)}
    assert torch.get_num_threads() == 3
    rows = Rows(data[0])
    model.predict(rows)
    assert rows.seen == {1}
    assert torch.get_num_threads() == 3


class Refusal(mn.Callback):
    def on_batch(self, run, share_done):
        raise RuntimeError("enough")


def test_after_an_error_threads_are_as_before(three, wide, data):
    with pytest.raises(RuntimeError, match="enough"):
        small(callbacks=[Refusal()]).fit(*data)
    assert torch.get_num_threads() == 3
    with pytest.raises(ValueError, match="features"):
        wide[0].predict(wide[1][:, 1:])
    assert torch.get_num_threads() == in_a_new_thread(torch.get_num_threads) == 3


def test_two_fits_in_two_threads_are_as_alone(three, data):
    x, y = data
    both = threading.Barrier(2, timeout=100)

    class Meet(mn.Callback):
        def on_pass(self, run):
            both.wait()

    def learned(callbacks=()):
        model = small(callbacks=callbacks).fit(x, y)
        return model.predict_proba(x), torch.get_num_threads()

    alone, _ = learned()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: learned([Meet()]), range(2), timeout=100))
    for probabilities, left in found:
        assert np.array_equal(probabilities, alone)
        assert left == 3


def test_large_products_have_the_threads_that_were_set(three):
    for work, number in ((0, 1), (1e6, 1), (1e12, 3)):
        with machine.threads(work):
            assert torch.get_num_threads() == number
            with machine.threads(1e12):
                assert torch.get_num_threads() == 3
            with machine.threads(0):
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == number


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="Linux counts them")
def test_a_product_starts_no_thread(three):
    """Matrix products have a number of threads of their own, beside that of OpenMP."""
    w = torch.ones(800, 800)

    def started(work):
        def read():
            torch.set_num_threads(3)  # of this thread's products, too
            before = len(os.listdir("/proc/self/task"))
            with machine.threads(work):
                w @ w
            return len(os.listdir("/proc/self/task")) - before

        return in_a_new_thread(read)

    assert started(0) <= 0
    assert started(1e12) > 0


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

"""The parts of benchmarks that decide what is measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mnemosphere import DAMClassifier
from mnemosphere.data import load
from research import fits
from research.benchmarks import processor
from research.benchmarks.conditional import fidelity
from research.benchmarks.training_time import StopAtGoal, slope


def test_training_ends_with_the_first_pass_that_reaches_the_goal(problem):
    made = problem(5, rows=211, features=7, memories=11, labels="full", clustered=True)
    rows, validation = fits.split_tail(made.batch, 0.4)

    def train(*callbacks):
        return fits.continue_training(
            made.params, rows, fits.sgd(learning_rate=0.3, momentum=0.5, batch_size=37),
            passes=9, validation=validation, callbacks=callbacks,
        )  # fmt: skip

    reached = [record.validation_accuracy for record in train().history]
    # Higher than all passes before, and not the first.
    first = next(k for k in range(1, len(reached)) if reached[k] > max(reached[:k]))
    watch = StopAtGoal(reached[first])
    result = train(watch)
    assert result.status == "reached"
    assert len(result.history) == first + 1
    assert watch.accuracy == reached[first]
    # The last parameters, whichever pass had the lowest validation loss.
    assert fits.accuracy(watch.params, validation) == reached[first]
    never = StopAtGoal(1.1)
    assert len(train(never).history) == 9


def test_slopes_are_exponents():
    sizes = [10, 20, 50]
    assert slope(sizes, [3.0 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert slope([10], [1.0]) is None


def test_fidelity_asks_the_memory_of_largest_overlap():
    stored = load("digits")
    x, y = stored.x_train[:400], stored.y_train[:400]
    model = DAMClassifier(
        31,
        objective="joint",
        varsigma=0.25,
        normalize="center",
        max_iter=3,
        random_state=0,
        device="cpu",
    ).fit(x, y)
    rows = stored.x_test
    predicted = model.predict(rows)
    centered = rows - rows.mean(1, keepdims=True)
    nearest = (centered @ model.memories_.T).argmax(1)
    soft = torch.from_numpy(model.class_weights_)[1:, :-1]
    word = model.classes_[soft.argmax(1).numpy()[nearest]]
    expected = np.mean(word == predicted)
    assert expected < 1
    assert fidelity(model, rows, predicted) == expected


def test_the_products_of_a_pass_are_those_with_all_rows(problem, monkeypatch):
    monkeypatch.setattr("mnemosphere.model.kernel._CHUNK_ELEMENTS", {"cpu": 1})
    made = problem(5, rows=131, features=7, memories=11)
    x, w = made.batch.x.double(), made.params.w.double()
    found = processor.products(made.params, made.batch, narrowed=False)
    torch.testing.assert_close(found.double(), torch.einsum("bn,mn,bk->mk", x, w, x))


@pytest.mark.parametrize(
    ("name", "shapes", "kind"),
    [
        ("aten::mm", [[2000, 784], [784, 1000]], "large products"),
        ("aten::addmm_", [[1000, 784], [1000, 2000], [2000, 784], [], []], "large products"),
        ("aten::mm", [[2000, 11], [11, 1000]], "small products"),
        ("aten::addmm_", [[11, 1000], [11, 2000], [2000, 1000], [], []], "small products"),
        ("aten::exp_", [[2000, 1000]], "exponentials"),
        ("aten::exp2_", [[2000, 1000]], "exponentials"),
        ("aten::expand", [[2000, 1000]], "other operations"),
        ("aten::sub_", [[2000, 1000], [2000, 1], []], "other operations"),
    ],
)
def test_operations_of_a_profile_are_told_apart(name, shapes, kind):
    assert processor.kind_of(name, shapes) == kind


def test_each_iteration_of_k_means_is_timed(tmp_path):
    pytest.importorskip("faiss")
    rows = np.random.default_rng(0).normal(size=(97, 5)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    times = processor.kmeans(tmp_path / "rows.npy", 7)
    assert len(times) == processor.ITERATIONS
    assert min(times) >= 0

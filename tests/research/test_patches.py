"""Rows of the study of patches, and the peers it measures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from research import image_peers, patches
from research.image_peers import Rows


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(131) % 3
    x = 20 * y[:, None] + rng.integers(0, 120, (131, 49))
    return Rows(torch.from_numpy(x.astype(np.uint8)), y)


def test_shifted_rows_are_the_rows_moved_by_a_pixel(rows):
    more = patches.shifted(rows)
    assert np.array_equal(more.y, np.tile(rows.y, 5))
    images = np.pad(rows.x.numpy().reshape(-1, 7, 7), ((0, 0), (1, 1), (1, 1)))
    expected = {np.roll(images, move, (1, 2))[:, 1:-1, 1:-1].tobytes()
                for move in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))}  # fmt: skip
    parts = more.x.numpy().reshape(5, -1)
    assert {part.tobytes() for part in parts} == expected
    assert torch.equal(more.x[: len(rows.y)], rows.x)


def test_neighbors_by_products_are_those_of_scikit_learn(rows, monkeypatch):
    train, test = rows.take(slice(0, 90)), rows.take(slice(90, None))
    expected = KNeighborsClassifier(3).fit(train.x.numpy(), train.y).score(test.x.numpy(), test.y)
    assert image_peers.neighbors(train, test) == pytest.approx(100 * expected)
    monkeypatch.setattr(image_peers, "NEIGHBOR_ROWS", 10)
    assert image_peers.neighbors(train, test) == pytest.approx(100 * expected)
    assert 50 < 100 * expected < 100


def test_a_part_leaves_a_report_after_every_line(tmp_path, monkeypatch, capsys):
    def two_lines(job):
        for k in (1, 2):
            job.add(f"line {k}", accuracy=k)
            stored = patches.report.read_json(tmp_path / "out.json", "")
            assert [result["accuracy"] for result in stored["results"]] == list(range(1, k + 1))

    monkeypatch.setitem(patches.PARTS, "deeper", two_lines)
    words = ["deeper", "--quick", "--device", "cpu", "--out", str(tmp_path / "out.json")]
    patches.main(words)
    assert "line 2" in capsys.readouterr().out
    stored = patches.report.read_json(tmp_path / "out.json", "")
    assert stored["command"] == "python -m research patches deeper --quick --device cpu"

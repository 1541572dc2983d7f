"""Runs of experiments: parts, interruptions, folders, damaged files, pictures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from mnemosphere.data import load
from mnemosphere.plots.style import new_figure
from research.paper import REGISTRY, classification, experiment
from research.paper.experiment import (
    Experiment,
    load_arrays,
    reproduce,
    save_picture,
)
from research.report import Comparison


class Toy:
    """Three parts, of which the second can be made to fail; counts what is computed."""

    def __init__(self, name="toy", **fields):
        self.done = []
        self.fail_in = None
        self.scale = 3
        self.experiment = Experiment(
            name,
            "Fig. (toy): three numbers",
            lambda quick: {"scale": self.scale, "quick": quick},
            self.run,
            self.draw,
            lambda measured: [Comparison("sum", measured["sum"], "6", 5.5, 6.5, unit="")],
            **({"datasets": ()} | fields),
        )

    def part(self, run, k):
        if k == self.fail_in:
            raise KeyboardInterrupt
        self.done.append(k)
        run.parts.save(str(k), values=np.full(5, k + run.seeds[-1], dtype=np.float16))
        return {"value": k * run.settings["scale"], "exact": (1, 2)}

    def run(self, run):
        parts = [run.parts.step(str(k), lambda k=k: self.part(run, k)) for k in range(3)]
        assert [part["exact"] for part in parts] == [[1, 2]] * 3  # JSON on every path
        run.save_arrays(values=np.concatenate([run.parts.load(str(k))["values"] for k in range(3)]))
        run.remark("a remark")
        return {"sum": sum(part["value"] for part in parts)}

    def draw(self, result, folder):
        figure = new_figure(2.0, 1.0)
        figure.subplots().plot(load_arrays(folder)["values"] + result["measured"]["sum"])
        return [save_picture(figure, folder, "toy", result)]


def without_times(folder):
    """All files of a run, less what tells the time."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = json.loads(found.pop("result.json"))
    return found, {k: v for k, v in result.items() if k not in ("seconds", "finished")}


def test_an_interrupted_run_goes_on_and_ends_with_the_same_bytes(tmp_path):
    whole = reproduce(Toy().experiment, out=tmp_path / "whole", device="cpu")
    toy = Toy()
    toy.fail_in = 1
    with pytest.raises(KeyboardInterrupt):
        reproduce(toy.experiment, out=tmp_path / "parts", device="cpu")
    assert toy.done == [0]
    toy.fail_in = None
    parts = reproduce(toy.experiment, out=tmp_path / "parts", device="cpu")
    assert toy.done == [0, 1, 2]
    assert without_times(parts.folder) == without_times(whole.folder)
    assert sorted(p.name for p in parts.folder.iterdir()) == [
        "arrays.npz",
        "result.json",
        "toy.png",
    ]
    assert parts.folder.name == whole.folder.name


def test_a_finished_run_is_not_done_again(tmp_path):
    toy = Toy()
    first = reproduce(toy.experiment, out=tmp_path, device="cpu")
    (first.folder / "parts").mkdir()  # as if killed before it could be taken away
    stamp = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    again = reproduce(toy.experiment, out=tmp_path, device="cpu")
    assert (first.reused, again.reused) == (False, True)
    assert again.result == first.result
    assert toy.done == [0, 1, 2]
    del stamp[first.folder / "parts"]
    assert {path: path.stat().st_mtime_ns for path in first.folder.iterdir()} == stamp


def test_what_decides_the_numbers_decides_the_folder(tmp_path, monkeypatch):
    toy = Toy(datasets=("mnist",))

    def folder(**options):
        options = {"device": "cpu", "quick": True} | options
        return reproduce(toy.experiment, out=tmp_path, **options).folder.name

    small = load("mnist-small")
    monkeypatch.setattr(experiment, "load", lambda name, directory=None: small)
    names = [folder(), folder(quick=False), folder(seeds=2)]
    toy.scale = 4
    names.append(folder())
    other = dataclasses.replace(small, y_test=(small.y_test + (np.arange(1000) == 7)) % 10)
    monkeypatch.setattr(experiment, "load", lambda name, directory=None: other)
    names.append(folder())
    assert len(set(names)) == 5
    assert [name.partition("-")[0] for name in names] == [
        "quick", "full", "quick", "quick", "quick",
    ]  # fmt: skip
    assert all(len(name.partition("-")[2]) == 8 for name in names)
    toy.scale = 3
    monkeypatch.setattr(experiment, "load", lambda name, directory=None: small)
    assert folder() == names[0]


def test_a_result_says_what_was_done(tmp_path):
    toy = Toy(datasets=("mnist",))
    result = reproduce(toy.experiment, out=tmp_path, device="cpu", quick=True, seeds=2).result
    assert result["command"] == "python -m research reproduce toy --quick --device cpu --seeds 2"
    assert result["seeds"] == [0, 1]
    assert result["settings"] == {"scale": 3, "quick": True}
    assert result["data"] == {"mnist": "mnist-small, 5000 + 1000 rows"}
    assert result["versions"]["torch"] == torch.__version__
    assert result["threads"] == torch.get_num_threads()
    assert "quick run" in result["remarks"][0]
    assert result["remarks"][1:] == ["mnist-small in the place of mnist", "a remark"]
    assert result["measured"] == {"sum": 9}
    # A quick run agrees with nothing and contradicts nothing.
    assert [c["within"] for c in result["paper"]] == [None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"name": "toy", ', r"result.json is damaged \(.*\): delete its folder to run it again"),
        (b"[1]", r"result.json lacks name, settings, .*: delete its folder"),
        (b'{"name": "toy"}', r"result.json lacks settings, measured, paper"),
        (b"\xff\xfe", r"result.json is damaged"),
    ],
)
def test_a_damaged_result_is_named(tmp_path, content, message):
    toy = Toy()
    folder = reproduce(toy.experiment, out=tmp_path, device="cpu").folder
    (folder / "result.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        reproduce(toy.experiment, out=tmp_path, device="cpu")


def test_rows_are_those_of_the_paper(tmp_path):
    small = load("mnist-small")
    run = experiment.Run("a", {}, [0], torch.device("cpu"), True, tmp_path, {"mnist": small})
    train, test = run.rows("mnist", 0.1)
    image = small.x_train[17].astype(np.float64) / 255
    unit = (image - image.mean()) / np.linalg.norm(image - image.mean())
    np.testing.assert_allclose(train.x[17].numpy(), unit, atol=1e-6)
    soft = np.full(11, 0.1 / 11)
    soft[small.y_train[17]] += 0.9
    np.testing.assert_allclose(train.targets[17].numpy(), soft, atol=1e-7)
    assert (train.n_rows, test.n_rows) == (5000, 1000)


# --- trainings that go on


def tiny(run_name="fig1"):
    """fig1 with 7 memories, 4 passes of few rows; everything else as it is."""
    whole = REGISTRY[run_name]

    def settings(quick):
        made = whole.settings(quick)
        made["memories"], made["max_epochs"] = 7, 4
        made["sgd"]["batch_size"] = 1500
        return made

    return dataclasses.replace(whole, settings=settings)


def test_a_training_killed_in_a_pass_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    whole = reproduce(tiny(), out=tmp_path / "whole", device="cpu", quick=True)
    on_pass = classification.Curve.on_pass
    seen = []

    def killed(self, run):
        """After the checkpoint of pass 3, before its accuracy is known."""
        if run.n_iter == 3 and not seen:
            seen.append(run.n_iter)
            raise KeyboardInterrupt
        on_pass(self, run)

    monkeypatch.setattr(classification.Curve, "on_pass", killed)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tiny(), out=tmp_path / "parts", device="cpu", quick=True)
    (work,) = (tmp_path / "parts").glob("fig1/*/parts")
    assert (work / "beta=16-sgd-0.checkpoint").exists()
    parts = reproduce(tiny(), out=tmp_path / "parts", device="cpu", quick=True)
    assert seen == [3]

    a, b = (load_arrays(outcome.folder) for outcome in (whole, parts))
    assert a.keys() == b.keys()
    for name in a:
        if name.startswith("curve"):
            assert (a[name][0] == b[name][0]).all(), name  # row 1 is time
        else:
            assert (a[name] == b[name]).all(), name

    def rows(outcome):
        return [
            {k: v for k, v in row.items() if k != "seconds"}
            for row in outcome.result["measured"]["rows"]
        ]

    assert rows(parts) == rows(whole)
    assert (parts.folder / "fig1.png").read_bytes() == (whole.folder / "fig1.png").read_bytes()

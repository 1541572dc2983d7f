"""Runs of experiments: parts, interruptions, folders, damaged files, pictures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from mnemosphere.data import load
from mnemosphere.plots.style import new_figure
from research import report
from research.paper import REGISTRY, classification, experiment
from research.paper.experiment import (
    Experiment,
    MissingPackageError,
    finished_folders,
    load_arrays,
    read_result,
    redraw,
    reproduce,
    save_picture,
)
from research.report import Comparison, to_json


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


def test_time_counts_over_interruptions(tmp_path, monkeypatch):
    now = iter([100.0, 107.0, 200.0, 205.0])
    monkeypatch.setattr(report.time, "perf_counter", lambda: next(now))
    toy = Toy()
    toy.fail_in = 2
    with pytest.raises(KeyboardInterrupt):
        reproduce(toy.experiment, out=tmp_path, device="cpu")
    toy.fail_in = None
    assert reproduce(toy.experiment, out=tmp_path, device="cpu").result["seconds"] == 12.0


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


def test_a_damaged_part_is_named(tmp_path):
    toy = Toy()
    toy.fail_in = 1
    with pytest.raises(KeyboardInterrupt):
        reproduce(toy.experiment, out=tmp_path, device="cpu")
    toy.fail_in = None
    (part,) = tmp_path.glob("toy/*/parts/0.json")
    content = part.read_bytes()
    part.write_bytes(content[:5])
    with pytest.raises(ValueError, match=r"0\.json is damaged .* delete it to have that part done"):
        reproduce(toy.experiment, out=tmp_path, device="cpu")
    part.write_bytes(content)
    part.with_suffix(".npz").write_bytes(b"PK no zip")
    with pytest.raises(ValueError, match=r"0\.npz is damaged"):
        reproduce(toy.experiment, out=tmp_path, device="cpu")


def test_a_part_that_fails_leaves_nothing_half_written(tmp_path):
    toy = Toy()
    toy.part = lambda run, k: {"value": float("nan")}
    with pytest.raises(ValueError, match="Out of range float"):
        reproduce(toy.experiment, out=tmp_path, device="cpu")
    assert [p.name for p in tmp_path.glob("toy/*/parts/*")] == ["seconds.json"]


def test_missing_packages_come_first(tmp_path):
    toy = Toy(needs=("a_package_nobody_has",))
    with pytest.raises(MissingPackageError, match="toy needs a_package_nobody_has: install it"):
        reproduce(toy.experiment, out=tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())


def test_umap_is_named_by_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"umap-learn, pip install 'mnemosphere\[umap\]'"):
        reproduce(Toy(needs=("umap",)).experiment, out=tmp_path, device="cpu")


def test_checkpoints_are_for_processors(tmp_path):
    run = experiment.Run("a", {}, [0], torch.device("cpu"), True, tmp_path, {})
    assert run.checkpoint("b").path == tmp_path / "parts" / "b.checkpoint"
    run.device = torch.device("cuda")
    assert run.checkpoint("b") is None


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


def test_only_quick_pictures_are_stamped(tmp_path):
    sizes = {}
    for quick in (False, True):
        figure = new_figure(3.0, 1.0)
        figure.subplots().plot([1, 2])
        result = {"quick": quick, "data": {"mnist": "mnist-small, 5000 + 1000 rows"}}
        save_picture(figure, tmp_path, f"{quick}", result)
        words = " ".join(text.get_text() for text in figure.texts)
        assert ("quick run on mnist-small: not the paper's experiment" in words) is quick
        sizes[quick] = (tmp_path / f"{quick}.png").stat().st_size
    assert sizes[True] > sizes[False]


def test_pictures_can_be_drawn_again_from_the_folder(tmp_path):
    toy = Toy()
    folder = reproduce(toy.experiment, out=tmp_path, device="cpu").folder
    before = (folder / "toy.png").read_bytes()
    (folder / "toy.png").unlink()
    assert redraw(toy.experiment, tmp_path) == [folder / "toy.png"]
    assert (folder / "toy.png").read_bytes() == before
    assert toy.done == [0, 1, 2]


def test_finished_folders_come_oldest_first(tmp_path):
    for name, finished in (("full-b", "2026-01-02"), ("full-a", "2026-01-03"), ("quick-c", "2025")):
        folder = tmp_path / "toy" / name
        folder.mkdir(parents=True)
        keys = dict.fromkeys(("name", "settings", "measured", "paper", "pictures"))
        (folder / "result.json").write_bytes(to_json(keys | {"finished": finished}))
    (tmp_path / "toy" / "full-unfinished").mkdir()
    names = [folder.name for folder in finished_folders(tmp_path, "toy")]
    assert names == ["quick-c", "full-b", "full-a"]
    assert finished_folders(tmp_path, "another") == []


def test_every_experiment_can_be_described():
    for name, described in REGISTRY.items():
        assert name == described.name
        for quick in (False, True):
            settings = described.settings(quick)
            assert json.loads(to_json(settings)) == settings, name
        assert set(described.datasets) <= {"mnist", "fashion-mnist"}
        assert described.datasets[:1] in ((), ("mnist",)), "a quick run has nothing to work with"


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


def test_read_result_is_what_reproduce_returned(tmp_path):
    outcome = reproduce(Toy().experiment, out=tmp_path, device="cpu")
    assert read_result(outcome.folder) == outcome.result

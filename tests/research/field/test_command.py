"""`python -m research field`: cells are stored, kept, measured again, and summed up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from research import __main__ as start
from research.field import summary
from research.field.parts import PARTS
from research.field.sets import Table, load
from research.field.store import Results


def run(out, *options):
    return start.main(["field", *options, "--folds", "2", "--out", str(out)])


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder of tables: three classes, one of which has two rows."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    y = np.array([3] * 31 + [5] * 29 + [8] * 2)
    (folder / "tables").mkdir()
    np.savez(folder / "tables" / "made.npz", X=rng.normal(size=(62, 3)) + y[:, None], y=y)
    (folder / "tables" / "index.csv").write_text("name,kind,rows\nmade,table,62\n")
    return folder


def test_cells_are_kept_until_they_are_wanted_again(tables, tmp_path, capsys, monkeypatch):
    quick = ("--methods", "Gaussian NB", "nearest centroid", "--sets", "made")
    options = ("classify", "--data", str(tables), *quick)
    assert run(tmp_path, *options) == 0
    path = tmp_path / "classify.json"
    content = json.loads(path.read_text())
    assert content["sets"] == {"made": {"kind": "table", "rows": 62, "features": 3, "classes": 3}}
    assert list(content["methods"]) == ["Gaussian NB", "nearest centroid"]
    head = content["methods"]["Gaussian NB"]
    assert head["command"].startswith("python -m research field classify --data DIR --methods")
    assert {"seeds", "versions", "device", "folds"} <= set(head)
    assert [len(c["accuracy"]) for c in content["cells"]] == [2, 2]
    assert "mean rank" in capsys.readouterr().out
    before = path.read_bytes()

    def refuse(*_):
        raise AssertionError("measured a cell that is stored")

    monkeypatch.setattr("research.field.command.cell", refuse)
    assert run(tmp_path, *options) == 0
    assert run(tmp_path, "classify", "--summary") == 0
    assert path.read_bytes() == before
    with pytest.raises(AssertionError, match="is stored"):
        run(tmp_path, *options, "--again")


def test_names_that_are_not_there(tables, tmp_path):
    for options, words in (
        (["classify", "--methods", "oracle"], "no method"),
        (["classify", "--sets", "zebra"], "no set"),
    ):
        with pytest.raises(SystemExit, match=words):
            run(tmp_path, *options)
    for options in (["zebra"], ["classify", "--data", str(tmp_path)]):
        with pytest.raises(SystemExit) as stop:
            run(tmp_path, *options)
        assert stop.value.code == 2


@pytest.mark.parametrize(
    ("part", "method", "key"),
    [
        ("cluster", "k-means", "rand_index"),
        ("few-labels", "label spreading", "accuracy"),
        ("novelty", "local outlier factor", "auroc"),
        ("classify", "logistic regression", "accuracy"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_far_classes_are_found_by_every_part(part, method, key):
    """Three clumps far from each other: whatever is asked about them is easy."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [23, 29, 19])
    x = rng.normal(size=(71, 4)) + 30 * np.eye(4)[y]
    found = PARTS[part].measure(Table("far", "", x, y), method, 3, 0, None)
    assert found[key] == pytest.approx([1.0] * 3)


@pytest.mark.filterwarnings("ignore")
def test_fits_are_timed_between_those_of_the_peers(tables, monkeypatch):
    fitted = []

    class Fitted:
        def __init__(self, name):
            self.name = name

        def fit(self, x, y):
            fitted.append((self.name, len(x)))

    names = ("logistic regression", "dam", "k-NN")
    made = {name: lambda case, name=name: Fitted(name) for name in names}
    monkeypatch.setattr("research.field.methods.CLASSIFIERS", made)
    found = PARTS["time"].measure(load("made", "table", tables), "dam", 2, 0, None)
    assert fitted == [(name, 31) for _ in range(2) for name in names]
    assert {key: len(seconds) for key, seconds in found.items()} == {
        "fit_seconds": 2, "logistic regression": 2, "k-NN": 2,
    }  # fmt: skip


def made_up(scores):
    """Results of `classify` from accuracies; log-loss and calibration error go with them."""
    results = Results("classify")
    for k in range(6):
        results.sets[f"s{k}"] = {"kind": "table", "rows": 100, "features": 3, "classes": 2}
        for name, values in scores.items():
            results.heads[name] = {}
            results.cells[f"s{k}", name] = {
                "set": f"s{k}", "method": name, "accuracy": [values[k]] * 2,
                "log_loss": [1 - values[k]] * 2, "calibration_error": 1 - values[k],
            }  # fmt: skip
    return results


def made_up_times(ratios):
    """Results of `time`: ours takes so many times the peers' 0.5 and 1.5 seconds."""
    results = Results("time", heads={"dam": {}})
    for k, (ratio, rows) in enumerate(ratios):
        results.sets[f"s{k}"] = {"kind": "table", "rows": rows, "features": 3, "classes": 2}
        seconds = {"fit_seconds": [2 * ratio], "logistic regression": [0.5], "k-NN": [1, 2]}
        results.cells[f"s{k}", "dam"] = {"set": f"s{k}", "method": "dam", **seconds}
    return results


def test_criteria_are_counted(tmp_path):
    results = made_up(
        {
            "dam": [0.90, 0.90, 0.895, 0.80, 0.91, 0.91],
            "k-NN": [0.80, 0.80, 0.80, 0.79, 0.80, 0.80],
            "logistic regression": [0.80, 0.80, 0.90, 0.90, 0.80, 0.80],
            "RBF SVM": [0.91, 0.92, 0.80, 0.80, 0.80, 0.80],
            "GMLVQ": [0.95, 0.95, 0.95, 0.70, 0.70, 0.70],
        }
    )
    timed = made_up_times([(3.0, 100), (5.0, 9_999), (2.0, 80), (7.0, 10_000)])
    found = {c.what: c for c in summary.criteria(results, timed)}
    best = found["accuracy: the best mean rank of all prototype methods"]
    # Ranks of dam: 3, 3, 3, 2.5, 1, 1; of GMLVQ: 1, 1, 1, 5, 5, 5.
    ranks = f"{13.5 / 6:.2f}, GMLVQ {18 / 6:.2f}"
    assert best.seen == f"{ranks}; not measured: k-means prototypes, nearest centroid, GLVQ"
    assert not best.met
    assert found["log-loss: a better mean rank than k-NN"].met
    near = found["accuracy within a point of the best of k-NN, logistic regression, RBF SVM"]
    assert near.seen == "4 of 6 sets, 4 wanted"  # all but the second and the fourth
    assert near.met
    calibrated = found["calibration error at most that of logistic regression"]
    assert calibrated.seen == "4 of 6 sets, 3 wanted"
    assert not any("vote" in what for what in found)
    for k, needed in enumerate([1, 2, 6, 5, 3, 4]):
        figures = {"memories_for_90": [needed, needed], "memories_for_90_high": [9]}
        figures |= {"same_by_three": [0.96, 0.99], "uniform_decides": [0.01]}
        results.cells[f"s{k}", "dam"] |= figures
    few, three, uniform = summary.few_memories(results, "dam")
    assert few.seen == "5 of 6 sets, 6 wanted"
    assert (few.met, three.met, uniform.met) == (False, True, True)
    assert three.seen == "97.5%"
    slow = found["fit at most 5 times logistic regression + k-NN, sets under 10,000 rows"]
    assert slow.met
    assert slow.seen == "median 3.0, most 5.0 (s1), above 5 on 0 of 3"
    timed.cells["s2", "dam"]["fit_seconds"] = [10.2]
    assert "NO" in summary.text(timed)
    results.write(tmp_path)
    assert Results.read("classify", tmp_path) == results
    assert "4 of 6 sets, 4 wanted" in summary.text(results)

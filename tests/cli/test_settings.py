"""Settings as options: those of the estimators, and turned into them."""

import dataclasses
import inspect
import re

import pytest

import mnemosphere as mn
from mnemosphere.cli.build import build, label_numbers
from mnemosphere.cli.settings import Classifier, ClassTraining, Clusterer, Training

# Settled by the caller, by the data, or by another setting.
APART = {"callbacks", "categories", "encoder", "random_state", "unlabeled", "learn_beta", "learn_weights",
         "once_per_pass", "steps", "decay", "verbose"}  # fmt: skip
SOLVERS = {"fixed-point": mn.FixedPoint, "sgd": mn.SGD, "adam": mn.Adam}


@pytest.mark.parametrize(
    ("kind", "groups"),
    [(mn.DAMClassifier, (Classifier, ClassTraining)), (mn.DAMClusterer, (Clusterer, Training))],
)
def test_every_setting_is_there_with_its_default(kind, groups):
    told = {f.name: f.metadata["option"].help for g in groups for f in dataclasses.fields(g)}
    of_solver = {key: re.search(r" With (.*)\. \(default", text) for key, text in told.items()}
    known = {key: found[1].split(", ") for key, found in of_solver.items() if found}
    typed = {key: re.search(r"\(default: (.*)\)$", told[key])[1] for key in told.keys() - known}
    defaults = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    named = {"memories": "n_memories", "clusters": "n_clusters"}
    assert {named.get(key, key) for key in typed} == defaults.keys() - APART
    for key, text in typed.items():
        default = defaults[named.get(key, key)]
        assert text == ("none" if default is None else str(default))
    for name in {name for names in known.values() for name in names}:
        fields = {field.name for field in dataclasses.fields(SOLVERS[name])} - APART
        assert fields == {key for key, names in known.items() if name in names}
    shown = build(kind.__name__, typed).get_params(deep=False)
    assert {name: shown[name] for name in defaults.keys() - APART} == {
        name: defaults[name] for name in defaults.keys() - APART
    }


@pytest.mark.parametrize(
    ("typed", "solver"),
    [
        ({"objective": "conditional", "noise": "0.25"}, mn.Adam(noise=0.25)),
        ({"solver": "adam", "noise": "auto"}, mn.Adam()),
        ({"solver": "sgd", "patience": "7", "sweeps": "7"}, mn.SGD(patience=7, sweeps=7)),
    ],
)
def test_settings_of_a_solver(typed, solver):
    assert build("DAMClassifier", typed | {"geometry": "unit"}).solver == solver


def test_numbers_of_labels():
    assert label_numbers("1=2, 7=0.5", [1, 7], "--prior") == {1: 2.0, 7: 0.5}
    assert label_numbers("a=b=3", ["a=b"], "--prior") == {"a=b": 3.0}
    for text in ("1", "1=x", "9=1"):
        with pytest.raises(ValueError, match="--prior"):
            label_numbers(text, [1, 7], "--prior")

"""Settings as data: read off the estimators, and turned into them."""

import dataclasses
import inspect

import pytest

import mnemosphere as mn
from mnemosphere.cli.settings import (
    ESTIMATORS,
    build,
    label_numbers,
)

# Settled by the caller, by the data, or by another setting.
APART = {"callbacks", "categories", "encoder", "random_state", "unlabeled", "learn_beta", "learn_weights",
         "once_per_pass", "steps", "decay", "verbose"}  # fmt: skip
SOLVERS = {"fixed-point": mn.FixedPoint, "sgd": mn.SGD, "adam": mn.Adam}


@pytest.mark.parametrize("kind", [mn.DAMClassifier, mn.DAMClusterer])
def test_every_setting_is_there_with_its_default(kind):
    known = ESTIMATORS[kind.__name__]
    own = {key.replace("memories", "n_memories").replace("clusters", "n_clusters"): about
           for key, about in known.items() if "solver" not in about}  # fmt: skip
    defaults = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    assert own.keys() == defaults.keys() - APART
    for name, about in own.items():
        assert about["shown"] == ("none" if defaults[name] is None else str(defaults[name]))
    for name, solver in SOLVERS.items():
        if any(name in about.get("solver", ()) for about in known.values()):
            fields = {field.name for field in dataclasses.fields(solver)} - APART
            assert fields == {k for k, about in known.items() if name in about.get("solver", ())}
    assert all(about["help"].endswith(".") for about in known.values())
    text = {key: "none" if defaults[name] is None else str(defaults[name])
            for key, name in zip([k for k, about in known.items() if "solver" not in about], own, strict=True)}  # fmt: skip
    shown = build(kind.__name__, text).get_params(deep=False)
    assert {name: shown[name] for name in own} == {name: defaults[name] for name in own}


def test_parts_in_play():
    found = build("DAMClassifier", {"objective": "conditional", "noise": "0.25", "angle": 0.2})
    assert found.solver == mn.Adam(noise=0.25, angle=0.2)
    assert build("DAMClassifier", {"solver": "adam", "noise": "auto"}).solver == mn.Adam()
    found = build("DAMClassifier", {"solver": "sgd", "patience": "7", "sweeps": "7"})
    assert found.solver == mn.SGD(patience=7, sweeps=7)
    assert build("DAMClassifier", {"geometry": "none"}).geometry == "none"


def test_numbers_of_labels():
    assert label_numbers("1=2, 7=0.5", [1, 7], "--prior") == {1: 2.0, 7: 0.5}
    assert label_numbers("a=b=3", ["a=b"], "--prior") == {"a=b": 3.0}
    for text in ("1", "1=x", "9=1"):
        with pytest.raises(ValueError, match="--prior"):
            label_numbers(text, [1, 7], "--prior")

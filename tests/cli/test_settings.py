"""Settings as data: read off the estimators, and turned back into them."""

import dataclasses
import inspect

import pytest

import mnemosphere as mn
from mnemosphere.cli.settings import (
    ESTIMATORS,
    build,
    label_numbers,
    read_config,
    settings_of,
    to_toml,
)

# Settled by the caller, by the data, or by another setting.
APART = {"callbacks", "categories", "encoder", "random_state", "unlabeled", "learn_beta", "learn_weights",
         "once_per_pass", "steps", "decay", "verbose"}  # fmt: skip
SOLVERS = {"fixed-point": mn.FixedPoint, "sgd": mn.SGD, "adam": mn.Adam}


@pytest.mark.parametrize("kind", [mn.DAMClassifier, mn.DAMClusterer])
def test_every_setting_is_there_with_its_default_and_goes_round(kind):
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
    values = settings_of(build(kind.__name__, {}))
    text = {key: "none" if value is None else str(value) for key, value in values.items()}
    assert settings_of(build(kind.__name__, text)) == values


def test_parts_in_play():
    found = build("DAMClassifier", {"objective": "conditional", "noise": "0.25", "angle": 0.2})
    assert found.solver == mn.Adam(noise=0.25, angle=0.2)
    assert build("DAMClassifier", {"solver": "adam", "noise": "auto"}).solver == mn.Adam()
    found = build("DAMClassifier", {"solver": "sgd", "patience": "7", "sweeps": "7"})
    assert found.solver == mn.SGD(patience=7, sweeps=7)
    assert settings_of(found)["patience"] == 7
    assert "noise" not in settings_of(found)
    assert build("DAMClassifier", {"geometry": "none"}).geometry == "none"


def test_a_configuration_file_goes_round(tmp_path):
    odd = 'a "b" \\ \x1b \x7f é 猫 \n'
    values = {"data": odd, "memories": 7, "tol": 1e-300, "growth": None, "drop": ["a", odd]}
    path = tmp_path / "config.toml"
    path.write_text(to_toml(values, "remark"), encoding="utf-8")
    assert read_config(path) == values | {"growth": "none"}


def test_files_that_are_no_configuration(tmp_path):
    path = tmp_path / "config.toml"
    for content in (b"= =", b"a = " + b"[" * 9999, b"\xff", b"a = " + b"9" * 5000):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a TOML file") as caught:
            read_config(path)
        assert len(str(caught.value)) < 400 + len(str(path))
    with pytest.raises(ValueError, match="is no file"):
        read_config(tmp_path)


def test_numbers_of_labels():
    assert label_numbers("1=2, 7=0.5", [1, 7], "--prior") == {1: 2.0, 7: 0.5}
    assert label_numbers("a=b=3", ["a=b"], "--prior") == {"a=b": 3.0}
    for text in ("1", "1=x", "9=1"):
        with pytest.raises(ValueError, match="--prior"):
            label_numbers(text, [1, 7], "--prior")

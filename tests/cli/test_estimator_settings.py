"""Settings as data: read off the estimators, and turned back into them."""

import dataclasses
import inspect

import pytest

import mnemosphere as mn
from mnemosphere.cli.estimator_settings import (
    build,
    label_numbers,
    parameter_help,
    read_config,
    resolve,
    settings_of,
    to_toml,
)

ESTIMATORS = ["DAMClassifier", "DAMClusterer"]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_setting_is_explained_and_its_default_allowed(name):
    for setting in settings_of(name):
        assert setting.help, setting
        text = "none" if setting.default is None else str(setting.default)
        assert setting.read(text) == setting.default
        assert setting.metavar != text, "nothing but the default can be typed"


def test_nothing_given_is_the_estimator_as_it_is():
    assert build("DAMClassifier", resolve("DAMClassifier", {})).get_params() == (
        mn.DAMClassifier().get_params()
    )
    expected = mn.DAMClusterer().get_params() | {"solver": mn.FixedPoint()}
    assert build("DAMClusterer", resolve("DAMClusterer", {})).get_params() == expected


def test_parts_in_play():
    found = resolve("DAMClassifier", {"objective": "conditional", "noise": "0.25", "angle": 0.2})
    assert build("DAMClassifier", found).solver == mn.Adam(noise=0.25, angle=0.2)
    found = resolve("DAMClassifier", {"solver": "adam", "noise": "auto"})
    assert build("DAMClassifier", found).solver == mn.Adam()
    found = resolve("DAMClassifier", {"objective": "joint", "batch_size": "60"})
    assert build("DAMClassifier", found).solver == mn.FixedPoint(batch_size=60)
    found = resolve("DAMClassifier", {"solver": "sgd", "patience": "7", "sweeps": "7"})
    assert build("DAMClassifier", found).solver == mn.SGD(patience=7, sweeps=7)
    assert "noise" not in found
    with pytest.raises(ValueError, match="--noise is a setting of --solver adam: add that"):
        resolve("DAMClassifier", {"noise": "0.25"})


def test_how_far_to_search():
    for text, value in (("none", None), ("auto", "auto"), ("7", 7)):
        found = resolve("DAMClassifier", {"search": text})
        assert build("DAMClassifier", found).search == value
    with pytest.raises(ValueError, match="--search must be"):
        resolve("DAMClassifier", {"search": "0"})


def test_help_is_that_of_the_docstring():
    for kind in (mn.SGD, mn.FixedPoint, mn.Adam):
        fields = {field.name for field in dataclasses.fields(kind)}
        assert set(parameter_help(kind)) <= fields
        assert fields - set(parameter_help(kind)) <= {"learn_beta", "steps", "decay"}
    found = parameter_help(mn.DAMClassifier)
    assert list(found) == list(inspect.signature(mn.DAMClassifier).parameters)
    assert found["beta"] == "Inverse temperature; a number is held fixed."


def test_a_configuration_file_goes_round(tmp_path):
    odd = 'a "b" \\ \x1b é 猫 \n'
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

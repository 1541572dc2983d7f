import numpy as np
import pytest

import mnemosphere


def test_bayes_rule(run, tmp_path, digits_model):
    out = tmp_path / "new" / "model.safetensors"
    arguments = ["prior", digits_model, "--weight", "3=0.5", "--weight", "8=0.01", "--out", out]
    found = run(*arguments, "--json").json
    old, new = mnemosphere.load(digits_model), mnemosphere.load(out)
    x = mnemosphere.datasets.load("digits").x_test[:97]
    ratio = np.array([found["after"][str(k)] / found["before"][str(k)] for k in range(10)])
    expected = old.predict_proba(x) * ratio
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(new.predict_proba(x), expected, rtol=1e-4, atol=1e-6)
    assert found["after"]["3"] > 4 * found["after"]["1"]
    kept = [k for k in range(10) if k not in (3, 8)]
    assert np.ptp(ratio[kept]) == pytest.approx(0, abs=1e-5)  # those not named keep their share
    np.testing.assert_array_equal(new.memories_, old.memories_)


def test_hold_keeps_the_weights_of_memories(run, tmp_path, digits_model):
    out = tmp_path / "model.safetensors"
    shown = run("prior", digits_model, "--weight", "3=0.5", "--hold", "--out", out).stdout
    old, new = mnemosphere.load(digits_model), mnemosphere.load(out)
    np.testing.assert_allclose(new.memory_prior_, old.memory_prior_, rtol=1e-5)
    share = new.class_prior_[3] / new.class_prior_[:-1].sum()
    assert f"{share:.1%}" in shown


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("3", "--weight must be LABEL=NUMBER, such as 0=0.5, got '3'"),
        ("3=many", "--weight must be LABEL=NUMBER, such as 0=0.5, got '3=many'"),
        ("eleven=1", "the model has no class 'eleven': its classes are 0, 1, 2"),
        ("3=-1", "prior must be 10 finite weights >= 0"),
    ],
)
def test_bad_weights(run, tmp_path, digits_model, weight, message):
    out = tmp_path / "model.safetensors"
    result = run("prior", digits_model, "--weight", weight, "--out", out, code=2)
    assert message in " ".join(result.stderr.split())
    assert not out.exists()

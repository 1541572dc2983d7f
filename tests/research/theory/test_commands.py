"""`python -m research theory`: files, numbers and errors."""

import json

import pytest

from mnemosphere import __version__
from problems import slow_but

FIGURES = {
    "phase-diagram": "--teacher 2 --memories 2 --grid 3 --beta-range 2 4",
    "overlaps": "--features 60 --steps 3 --points 2 --teachers 2 --sweeps 8",
    "bifurcation": "--teacher 2 --memories 2 --steps 5",
    "free-entropy": "--teacher 2 --memories 2 --steps 5",
    "spectrum": "--depth 2",
}


@pytest.mark.parametrize("figure", slow_but(["spectrum"], FIGURES))
def test_a_figure_is_a_picture_and_its_numbers(run, tmp_path, figure):
    out = tmp_path / "new" / "figure.png"
    run("theory", figure, *FIGURES[figure].split(), "--out", out, "--seed", "3")
    assert out.read_bytes().startswith(b"\x89PNG")
    record = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert record["command"].startswith(f"python -m research theory {figure}")
    assert record["seeds"] == [3]
    assert record["versions"]["mnemosphere"] == __version__
    assert record["data"]
    assert sorted(p.name for p in out.parent.iterdir()) == ["figure.json", "figure.png"]


def test_two_vectors_and_three_memories_part_by_a_jump_up_to_the_closed_form(run, tmp_path):
    run("theory", "transition-order", "--out", tmp_path / "o.json")
    data = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["data"]
    (three,) = (row["rho"] for row in data["tricritical"] if row["memories"] == 3)
    assert three == pytest.approx(3 / (4 + 96**0.5), rel=1e-9)  # F_4 = 0 at P/ϱ = 4 + √96
    jumps = {
        (row["teacher"], row["student"]) for row in data["orders"] if row["order"] != "continuous"
    }
    assert jumps == {(a, b) for a in (3, 5) for b in (3, 5)}


def test_beta_too_large_for_the_features_is_noted(run, tmp_path):
    sizes = ["--beta", "30", "--along", "rho", "--features", "100", "--steps", "2", "--points", "0"]
    command = ["theory", "overlaps", *sizes, "--out", tmp_path / "o.png"]
    assert "beta = 30 is not small against features = 100" in run(*command)
    record = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))
    assert "not small" in record["remarks"][0]
    assert run(*command, "--quiet") == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["overlaps", "--uniform-share", "1"], r"must lie in [0, 1), got 1.0"),
        (["transition-order", "--out", "x.csv"], "--out must end in .json"),
        (["phase-diagram", "--x-range", "0", "1"], "--x-range must be two numbers 0 < LOW < HIGH"),
        (["overlaps", "--out", "x.gif"], "--out must end in .png, .svg or .pdf"),
        (["bifurcation", "--patterns", "tree", "--memories", "3"], "a power of two"),
        (["spectrum", "--depth", "7"], "depth must lie in 1..5"),
    ],
)
def test_impossible_parameters_are_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    errors = run("theory", *arguments, "--quiet", code=2)
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

"""`evaluate --reject` reports rejected rows as Python does."""

import mnemosphere as mn
from mnemosphere.interpret import classification_report


def test_the_report_is_that_of_python(run, tmp_path, trained, kit):
    table = kit.frame(5, 41)
    table.loc[:3, "kind"] = "dog"  # a class that the model does not know
    table.to_csv(tmp_path / "fresh.csv", index=False)
    picture = tmp_path / "confusion.png"
    arguments = ["evaluate", trained, tmp_path / "fresh.csv", "--reject", "0.2"]
    found = run(*arguments, "--out", picture, "--json").json["rejection"]
    model = mn.load(trained / "model.safetensors")
    answers = model.predict_or_reject(table[kit.names], 0.2)
    wanted = classification_report(table["kind"], answers, model.classes_)
    assert found == wanted.as_dict()
    assert found["per_class"][-1]["class"] == mn.OUT_OF_SCOPE
    assert picture.stat().st_size > 0
    assert "of the answers right" in run(*arguments).stdout

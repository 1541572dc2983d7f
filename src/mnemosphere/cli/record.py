"""The files beside a model: what was done, with what, and how it went."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from mnemosphere.cli.rows import Part, Source, load_source, match_features
from mnemosphere.estimators import DAMClassifier, load_classifier

MODEL, RESULTS, CONFIG = "model.safetensors", "results.json", "config.toml"


def make_folder(folder: Path) -> None:
    """Make a folder and see that it can be written to, before any work is done for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def read_record(model_path: Path) -> dict[str, Any]:
    """results.json beside a model; empty where there is none that can be read."""
    try:
        content = json.loads((model_path.parent / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def image_shape_of(record: dict[str, Any], model: DAMClassifier) -> tuple[int, ...] | None:
    """The shape of the images that a model was trained on, where its record tells."""
    shape = record.get("data", {}).get("image_shape")
    return tuple(shape) if shape and math.prod(shape) == model.n_features_in_ else None


class Opened(NamedTuple):
    """A model and the rows to use it on, in the order of its features."""

    model: DAMClassifier  # takes plain arrays: its names of features stand below instead
    source: Source
    part: Part
    remark: str  # about these rows, "" for none
    feature_names: NDArray[Any] | None


def open_model(
    model_path: Path,
    data: str,
    *,
    label: str | None,
    labels: str | None,
    directory: str | None,
    split: str | None,
    default: str,
) -> Opened:
    """Load a model and data for it.

    A file that the model was trained on is split as it was then, so that what is measured on it is
    measured on rows the model has not seen.
    """
    model = load_classifier(model_path)
    names: NDArray[Any] | None = model.__dict__.pop("feature_names_in_", None)
    source = load_source(data, label=label, labels=labels, directory=directory)
    record = read_record(model_path)
    about = record.get("data", {})
    remark = ""
    if source.test is None and about.get("checksum") == source.checksum:
        settings = record["settings"]
        source = source.with_test(settings["test_fraction"], settings["seed"])
        if source.test is not None and split is None:
            remark = f"the model was trained on part of {data}: using its {default} rows"
            remark += " (--split all for every row)"
    wanted = None if names is None else tuple(map(str, names))
    source = match_features(source, wanted, model.n_features_in_, str(model_path))
    if source.image_shape is None:
        source = replace(source, image_shape=image_shape_of(record, model))
    return Opened(model, source, source.part(split, default), remark, names)

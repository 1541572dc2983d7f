"""The program of the page "More than one machine", started by Ray with two workers."""

from __future__ import annotations

import numpy as np
import pytest

import mnemosphere as mn

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def fitted(rows: str, labels: str) -> mn.DAMClassifier:
    dataset = mn.Dataset.open(rows, label=labels, memory=4000)
    return mn.DAMClassifier(
        7,
        objective="joint",
        varsigma=0.9,
        normalize="unit",
        max_iter=3,
        solver=mn.FixedPoint(None),
        random_state=0,
    ).fit(dataset)


def test_two_workers_of_ray_find_the_model_of_one_process(tmp_path):
    ray = pytest.importorskip("ray")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    rng = np.random.default_rng(0)
    y = np.arange(301) % 3
    np.save(tmp_path / "x.npy", 3 * rng.normal(size=(3, 5))[y] + rng.normal(size=(301, 5)))
    np.save(tmp_path / "y.npy", y)
    places = {name: str(tmp_path / name) for name in ("x.npy", "y.npy", "model")}

    def train(config):
        import mnemosphere as mn

        dataset = mn.Dataset.open(config["x.npy"], label=config["y.npy"], memory=4000)
        model = mn.DAMClassifier(
            7, objective="joint", varsigma=0.9, normalize="unit", max_iter=3,
            solver=mn.FixedPoint(None), random_state=0,
        ).fit(dataset)  # fmt: skip
        if ray.train.get_context().get_world_rank() == 0:
            model.save(config["model"])

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        TorchTrainer(
            train,
            train_loop_config=places,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=str(tmp_path / "ray")),
        ).fit()
    finally:
        ray.shutdown()
    alone = fitted(places["x.npy"], places["y.npy"])
    found = mn.load(places["model"])
    np.testing.assert_allclose(found.memories_, alone.memories_, rtol=0, atol=1e-10)

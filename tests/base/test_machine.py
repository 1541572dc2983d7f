"""Devices by name, and what a computation ran on."""

import pytest
import torch

from mnemosphere.base import machine


def test_a_device_by_name():
    assert machine.pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("there", [True, False])
def test_auto_is_a_gpu_where_there_is_one(monkeypatch, there):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert machine.pick_device("auto").type == ("cuda" if there else "cpu")


@pytest.mark.parametrize("name", ["tpu", "meta", "", "cpu cpu", "cuda:99"])
def test_devices_that_cannot_be_used(name):
    with pytest.raises(ValueError, match=rf"device '{name}' cannot be used here: try 'cpu' or"):
        machine.pick_device(name)


def test_more_memory_than_there_is_is_refused():
    free = machine.available_memory()
    assert 1e6 < free < 1e15
    machine.check_memory(free / 2, "cpu", "it", "use less")
    with pytest.raises(ValueError, match=r"it needs about 1e\+06 GB and .* GB are free: use less"):
        machine.check_memory(1e15, "cpu", "it", "use less")

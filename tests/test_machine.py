"""Devices by name, and what a computation ran on."""

from __future__ import annotations

import platform

import numpy as np
import pytest
import torch

from mnemosphere import machine


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


def test_versions_are_those_that_run():
    found = machine.versions()
    assert found == {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def test_the_processor_has_a_name(monkeypatch):
    assert machine.device_name() == machine.device_name(torch.device("cpu")) != ""

    def broken(*args, **kwargs):
        raise OSError("no such file")

    monkeypatch.setattr(machine.Path, "read_text", broken)
    assert machine.device_name("cpu") in (platform.processor(), platform.machine())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nmodel name\t: Fast Chip 9\nmodel name\t: Fast Chip 9\n", "Fast Chip 9"),
        ("processor : 0\nBogoMIPS : 50\n", platform.machine()),
    ],
)
def test_the_name_comes_from_the_system(monkeypatch, text, expected):
    monkeypatch.setattr(machine.Path, "read_text", lambda *args, **kwargs: text)
    assert machine.device_name() == expected


def test_a_gpu_is_asked_for_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device[-1]}")
    assert machine.device_name("cuda:3") == "GPU 3"


def test_more_memory_than_there_is_is_refused():
    free = machine.available_memory()
    assert 1e6 < free < 1e15
    machine.check_memory(free / 2, "cpu", "it", "use less")
    with pytest.raises(ValueError, match=r"it needs about 1e\+06 GB and .* GB are free: use less"):
        machine.check_memory(1e15, "cpu", "it", "use less")


def test_memory_is_not_bounded_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr(machine.Path, "read_text", lambda *_, **__: "")
    assert machine.available_memory() == float("inf")


@pytest.mark.parametrize(("told", "size"), [("2048K", 1 << 21), ("1024K\n", 1 << 20), ("?", 0)])
def test_the_cache_of_a_core(monkeypatch, told, size):
    monkeypatch.setattr(machine.Path, "read_text", lambda *_, **__: told)
    assert machine.core_cache.__wrapped__() == size


def test_a_cache_that_nobody_tells_of(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "Path", lambda _: tmp_path / "none")
    assert machine.core_cache.__wrapped__() == 0

"""The files of the page "More than one machine": what Slurm and Kubernetes would start."""

import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from torch.distributed.run import config_from_args, parse_args

import mnemosphere as mn

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "more-than-one-machine.md"


def block(heading: str) -> str:
    """The first indented block below a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    found = re.search(r"(?m)(?:^(?: {4}.*)?\n)*^ {4}.*\n", section.partition("\n## ")[0])
    assert found
    return textwrap.dedent(found[0]).strip("\n") + "\n"


def launched(words: list[str]) -> Any:
    """What torchrun makes of its words, which start the program of the page."""
    assert words[0] == "torchrun"
    asked = parse_args(words[1:])
    config, _, (_, program, *arguments) = config_from_args(asked)
    assert Path(program).name == "train.py"
    assert len(arguments) == 2  # the files, and the name of the run
    return config


def slurm(folder: Path, script: str, srun: str, nodes: int) -> subprocess.CompletedProcess[str]:
    """Run a script as sbatch does, with commands of Slurm that only act as if."""
    commands = {"scontrol": f'[ "$1 $2 $3" = "show hostnames nodes" ] && seq -f node%g {nodes}',
                "srun": srun, "job": script}  # fmt: skip
    for name, text in commands.items():
        (folder / name).write_text(text if text[:2] == "#!" else f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    env = os.environ | {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                        "SLURM_JOB_NODELIST": "nodes", "SLURM_NNODES": str(nodes),
                        "SLURM_JOB_ID": "4711", "OMP_NUM_THREADS": "1"}  # fmt: skip
    return subprocess.run([folder / "job"], cwd=folder, env=env, capture_output=True, text=True)


def test_slurm(tmp_path):
    script = block("Slurm")
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\d+)$", script, re.M))
    done = slurm(tmp_path, script, 'printf "%s\\0" "$@"', int(asked["nodes"]))
    assert (done.returncode, done.stderr) == (0, "")
    config = launched(done.stdout.split("\0")[:-1])
    assert (config.min_nodes, config.max_nodes) == (int(asked["nodes"]),) * 2
    assert config.nproc_per_node == int(asked["gpus-per-node"])
    assert asked["ntasks-per-node"] == "1"  # one torchrun per machine
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "node1:29500")
    assert (config.run_id, config.max_restarts) == ("4711", 3)


def write_rows(folder: Path) -> None:
    """Two files of rows in three species."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = 3 * rng.normal(size=(3, 4))[y] + rng.normal(size=(90, 4))
    folder.mkdir()
    for k in range(2):
        frame = pd.DataFrame(x[k::2], columns=list("abcd")).assign(species=y[k::2])
        frame.to_parquet(folder / f"{k}.parquet")


@pytest.mark.slow
def test_slurm_on_two_machines(tmp_path):
    """Two torchruns here, of one process each."""
    write_rows(tmp_path / "rows")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    script = block("Slurm").replace("--nproc-per-node 8", "--nproc-per-node 1")
    script = script.replace("$first:29500", f"localhost:{port}")
    # Each process draws noise of its own: the joint objective has none.
    program = block("A program").replace("random_state=0", "random_state=0, objective='joint'")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    done = slurm(tmp_path, script, '"$@" & "$@" & wait -n && wait -n', 2)
    assert done.returncode == 0, done.stderr
    many = mn.load(tmp_path / "run.safetensors")
    subprocess.run([sys.executable, "train.py", "rows/*.parquet", "one"], cwd=tmp_path, check=True)
    alone = mn.load(tmp_path / "one.safetensors")
    np.testing.assert_allclose(many.memories_, alone.memories_, rtol=0, atol=1e-10)


def test_kubernetes(monkeypatch):
    job = yaml.safe_load(block("Kubernetes"))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    spec, elastic = job["spec"], job["spec"]["elasticPolicy"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]
    assert worker["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
    (container,) = worker["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"  # by which the operator knows it
    volumes = {volume["name"] for volume in worker["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    for path in (word for word in container["command"] if word.startswith("/")):
        assert any(path.startswith(f"{place}/") for place in mounted), path
    # What the operator sets in each container, without a Master and with its default port.
    for name, value in {
        "RDZV_ENDPOINT": f"{job['metadata']['name']}-worker-0:23456",
        "RDZV_BACKEND": elastic["rdzvBackend"],
        "NNODES": f"{elastic['minReplicas']}:{elastic['maxReplicas']}",
        "NPROC_PER_NODE": spec["nprocPerNode"],
        "MAX_RESTARTS": str(elastic["maxRestarts"]),
    }.items():
        monkeypatch.setenv(f"PET_{name}", value)
    config = launched(container["command"])
    assert (config.min_nodes, config.max_nodes) == (worker["replicas"],) * 2
    assert (config.nproc_per_node, config.max_restarts) == (8, 3)
    assert (config.rdzv_backend, config.rdzv_endpoint) == ("c10d", "mnemosphere-worker-0:23456")


def test_four_commands():
    """From a laptop to a cluster: what each starts."""
    lines = block("From a laptop to a cluster").replace("'", "").split("\n")
    found = [line.split() for line in lines if not line.startswith("export ")]
    train = found[0][1:]
    sizes = []
    for words in found[1:-1]:
        config = launched(words)
        assert words[-len(train) :] == train
        sizes.append((config.max_nodes, config.nproc_per_node, config.max_restarts))
    assert sizes == [(1, 8, 0), (4, 8, 0), (4, 8, 3)]


@pytest.mark.slow
def test_ray(tmp_path):
    """The program of the page, with two workers."""
    pytest.importorskip("ray")
    write_rows(tmp_path / "rows")
    program = block("Ray").replace("num_workers=8", "num_workers=2")
    for place in ("/rows/", "/runs/"):
        program = program.replace(f'"{place}', f'"{tmp_path}{place}')
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    (tmp_path / "runs").mkdir()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=env, check=True)
    many = mn.load(tmp_path / "runs" / "model.safetensors")
    rows = mn.Dataset.open(str(tmp_path / "rows" / "*.parquet"), label="species")
    alone = mn.DAMClassifier(random_state=0).fit(rows)
    np.testing.assert_allclose(many.memories_, alone.memories_, rtol=0, atol=1e-10)

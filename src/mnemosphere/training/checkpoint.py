"""Atomic checkpoints: a training run continues from one with the same bits."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from mnemosphere.model.parameters import Parameters
from mnemosphere.training.batches import Data, State
from mnemosphere.training.callbacks import Record

FORMAT = "mnemosphere-checkpoint"
VERSION = 1


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one whole."""
    # An ordinary file, so that it gets the permissions the user's other files get.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class Progress:
    """All that a run needs to go on: what changes between two passes."""

    epoch: int
    params: Parameters
    state: State
    best: Parameters
    best_loss: float
    waited: int  # passes since the best
    history: tuple[Record, ...]
    generator_state: Tensor


def checksum(t: Tensor) -> int:
    """CRC of the bytes: the same on every device and for any number of threads."""
    return zlib.crc32(t.detach().cpu().contiguous().numpy().data)


def fingerprint(data: Data, validation: Data | None, **settings: object) -> str:
    """What must be the same for a resumption to make sense: the data and the settings."""
    parts = [f"{name}={value!r}" for name, value in sorted(settings.items())]
    for name, part in (("data", data), ("validation", validation)):
        if part is not None:
            tensors = [t for t in (part.x, part.targets, part.sample_weight) if t is not None]
            parts.append(f"{name}={tuple(part.x.shape)} {[checksum(t) for t in tensors]}")
    return "; ".join(parts)


def write_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write named tensors and a header of plain values atomically."""
    # A copy of each: safetensors refuses tensors that share memory, as params and best often do.
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_atomically(path, save(tensors, {"mnemosphere": json.dumps(meta)}))


def save_checkpoint(path: Path, progress: Progress, mark: str) -> None:
    """Write a checkpoint atomically."""
    tensors = {"generator": progress.generator_state}
    tensors |= {f"state.{name}": t for name, t in progress.state.items()}
    varsigma = {}
    for prefix, params in (("params", progress.params), ("best", progress.best)):
        for f in dataclasses.fields(params):
            value = getattr(params, f.name)
            if isinstance(value, Tensor):
                tensors[f"{prefix}.{f.name}"] = value
            else:
                varsigma[prefix] = value
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": mark,
        "epoch": progress.epoch,
        "best_loss": progress.best_loss,
        "waited": progress.waited,
        "varsigma": varsigma,
        "history": [record.as_dict() for record in progress.history],
    }
    write_tensors(path, tensors, meta)


def load_checkpoint(path: Path, mark: str, device: torch.device) -> Progress:
    """Read a checkpoint; ValueError where it is foreign, broken or of another run."""
    meta, tensors = read_tensors(path, FORMAT)
    if meta.get("fingerprint") != mark:
        raise ValueError(
            f"checkpoint {path} is of another run (its data or settings differ): "
            "delete it or choose another path"
        )

    def to_device(prefix: str) -> dict[str, Tensor]:
        start = prefix + "."
        return {k[len(start) :]: v.to(device) for k, v in tensors.items() if k.startswith(start)}

    try:
        params, best = (
            Parameters(varsigma=meta["varsigma"][prefix], **to_device(prefix))
            for prefix in ("params", "best")
        )
        return Progress(
            epoch=meta["epoch"],
            params=params,
            state=to_device("state"),
            best=best,
            best_loss=meta["best_loss"],
            waited=meta["waited"],
            history=tuple(Record(**record) for record in meta["history"]),
            generator_state=tensors["generator"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"checkpoint {path} lacks a part ({error}): delete it") from error


def read_tensors(
    path: Path, kind: str, version: int = VERSION
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read (header, tensors) of a file whose format is `kind`; ValueError where it is not."""
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {}).get("mnemosphere", "{}"))
            meta = meta if isinstance(meta, dict) else {}
            read: Callable[[str], Tensor] = file.get_tensor
            tensors = {name: read(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is damaged or not a safetensors file ({error}): choose another file"
        ) from error
    if meta.get("format") != kind:
        raise ValueError(
            f"{path} is not a {kind} file but {meta.get('format', 'of another program')}: "
            "choose another file"
        )
    if meta.get("version") != version:
        raise ValueError(
            f"{path} has format version {meta.get('version')}, this release reads {version}: "
            "use the release that wrote it, or write it again"
        )
    return meta, tensors

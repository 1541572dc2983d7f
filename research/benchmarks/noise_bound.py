"""Noise on the rows, or a deterministic bound of it: conditional training three ways.

    python -m research noise_bound --seeds 5

Noise turns a row x by one angle into a random direction. Over it exp(β⟨w, x⟩) has the mean
e^{βcq} Ω_{N−1}(βs√(1−q²))/Ω_{N−1}(0), q = ⟨w, x⟩, c = 1/√(1+σ²), s = σc, and ⟨w, x⟩ has the mean cq. By
Jensen's inequality, once for the sum over all classes and once for that over the own class,

    E[−log P(y|x)] ≤ log Σ p e^{βcq} Ω_{N−1}(βs√(1−q²))/Ω_{N−1}(0) − log Σ p_y e^{βcq}.

Each data set is trained from the same start by the same optimizer without noise, with noise, and by
the bound; log-loss and accuracy are those of fresh rows.
"""

from __future__ import annotations

import math
import statistics
import time

import torch
from torch import Tensor

from mnemosphere.model import Batch, initialize
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import log_omega_ratio
from mnemosphere.training.noise import SphereNoise
from research import report
from research.benchmarks._options import parser
from research.report import Json
from research.theory.varsigma import real

SETS = {"wine": 90, "breast-cancer": 280, "digits": 900}
METHODS = ("none", "noise", "bound")
START_BETA, RATE, SMOOTHING = 20.0, 0.02, 0.02


def class_scores(w: Tensor, log_p: Tensor, beta: Tensor, x: Tensor) -> Tensor:
    """Log of Σ_μ p[μ, y] e^{β⟨w^μ, x⟩} (B, C)."""
    return torch.logsumexp(beta * (x @ w.T)[:, :, None] + log_p, 1)


def bound(w: Tensor, log_p: Tensor, beta: Tensor, x: Tensor, q: Tensor, length: float) -> Tensor:
    """Mean upper bound of the loss under noise; q (B, C) label weights."""
    c = 1 / math.hypot(1.0, length)
    overlap = x @ w.T  # (B, P)
    across = (1 - overlap**2).clamp_min(1e-12).sqrt()
    spread = log_omega_ratio(beta * length * c * across, x.shape[1] - 1)
    plain = beta * c * overlap
    every = torch.logsumexp((plain + spread)[:, :, None] + log_p, (1, 2))
    own = torch.logsumexp(plain[:, :, None] + log_p, 1)
    return (every - (q * own).sum(1)).mean()


def train(
    rows: Batch, method: str, n_memories: int, *, length: float, steps: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(memories, log weights, β) after Adam's steps over all rows."""
    generator = torch.Generator().manual_seed(seed)
    w, labels = initialize.within_classes(rows.x, rows.targets, n_memories, generator=generator)
    own = torch.nn.functional.one_hot(labels[:, :-1].argmax(1), labels.shape[1] - 1)
    free = torch.log(own.double() + SMOOTHING).requires_grad_()
    w = w.clone().requires_grad_()
    log_beta = torch.tensor(math.log(START_BETA), dtype=w.dtype, requires_grad=True)
    hot = torch.nn.functional.one_hot(rows.targets[:, :-1].argmax(1), own.shape[1]).to(w.dtype)
    q = (1 - SMOOTHING) * hot + SMOOTHING / own.shape[1]
    optimizer = torch.optim.Adam([w, free, log_beta], RATE)
    noise = SphereNoise(length)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        unit, log_p, beta = (
            sphere.project(w),
            free.flatten().log_softmax(0).view_as(free),
            log_beta.exp(),
        )
        if method == "bound":
            loss = bound(unit, log_p, beta, rows.x, q, length)
        else:
            x = noise(rows.x, generator) if method == "noise" else rows.x
            loss = -(q * class_scores(unit, log_p, beta, x).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return unit.detach(), log_p.detach(), beta.detach()


def main(argv: list[str]) -> None:
    """Every set, method and seed."""
    made = parser(__doc__, "noise_bound")
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--length", type=float, default=0.5, help="σ of the noise")
    made.add_argument("--memories", type=int, default=4, help="for each class")
    made.add_argument("--steps", type=int, default=300)
    args = made.parse_args(argv)
    torch.set_num_threads(1)
    head = report.head(report.command_line(["noise_bound", *argv]), seeds=range(args.seeds))
    runs: list[Json] = []
    for name, size in SETS.items():
        for seed in range(args.seeds):
            rows, fresh = real(name, size, seed, None)
            truth = fresh.targets[:, :-1].argmax(1)
            width = args.memories * (rows.targets.shape[1] - 1)
            for method in METHODS:
                began = time.perf_counter()
                model = train(rows, method, width, length=args.length, steps=args.steps, seed=seed)
                score = class_scores(*model, fresh.x).log_softmax(1)
                runs.append({
                    "set": name, "method": method, "seed": seed,
                    "log_loss": -float(score.gather(1, truth[:, None]).mean()),
                    "accuracy": float((score.argmax(1) == truth).double().mean()),
                    "beta": float(model[2]), "seconds": time.perf_counter() - began,
                })  # fmt: skip
        for method in METHODS:
            own = [r["log_loss"] for r in runs if (r["set"], r["method"]) == (name, method)]
            print(f"{name} {method}: {statistics.fmean(own):.4f}", flush=True)
        report.write(
            args.out, head | {"length": args.length, "memories": args.memories, "runs": runs}
        )

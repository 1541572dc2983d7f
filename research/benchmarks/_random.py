"""Random rows and parameters, and the two large products of a pass over them."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemosphere.model import Batch, Parameters, from_memories, objectives
from mnemosphere.model.kernel import chunks
from mnemosphere.numerics import sphere

N_FEATURES, N_CLASSES = 784, 10


def problem(n_rows: int, n_memories: int) -> tuple[Parameters, Batch]:
    """Parameters, and rows with smoothed labels."""
    generator = torch.Generator().manual_seed(0)
    x, w = (
        sphere.sample_uniform(n, N_FEATURES, generator=generator, dtype=torch.float32, device="cpu")
        for n in (n_rows, n_memories)
    )
    classes = torch.randint(N_CLASSES, (n_rows,), generator=generator)
    p_q = torch.full((N_CLASSES + 1,), 1 / (N_CLASSES + 1))
    targets = objectives.soft_labels(classes, N_CLASSES, 0.1)
    return from_memories(w, p_q, beta=160.0, varsigma=0.25), Batch(x, targets)


def products(params: Parameters, x: Tensor) -> Tensor:
    """The two large matrix products of a pass, chunk by chunk, and nothing else."""
    scaled_w = (params.beta_eff * params.w).T.contiguous()
    w_bar = torch.zeros_like(params.w)
    for rows in chunks(x.shape[0], params.n_memories, x.device):
        w_bar.addmm_((x[rows] @ scaled_w).T, x[rows])  # (P, N)
    return w_bar

"""Other classifiers of images: neighbors and a kernel machine on pixels, a small network."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from torch import Tensor, nn

from research import report

SVM_ROWS = 10_000  # the time of an exact kernel machine grows with the square of the rows
NEIGHBOR_ROWS = 10_000  # from there on by products on the device


class Rows(NamedTuple):
    """Images (n, pixels) as stored, on the device, and their classes."""

    x: Tensor
    y: NDArray[np.int64]

    def take(self, rows: Any) -> Rows:
        """Some of them."""
        at = torch.as_tensor(np.arange(len(self.y))[rows], device=self.x.device)
        return Rows(self.x[at], self.y[rows])


def neighbors(train: Rows, test: Rows, k: int = 3) -> float:
    """Accuracy in percent of k nearest neighbors on pixels."""
    if len(train.y) <= NEIGHBOR_ROWS:
        model = KNeighborsClassifier(k).fit(train.x.cpu().numpy() / 255, train.y)
        return 100 * float(model.score(test.x.cpu().numpy() / 255, test.y))
    x, y = train.x.float() / 255, torch.from_numpy(train.y).to(train.x.device)
    right = 0
    for part in torch.arange(len(test.y)).split(500):
        near = torch.cdist(test.x[part.to(x.device)].float() / 255, x).topk(k, largest=False)
        vote = y[near.indices].mode(1).values.cpu().numpy()
        right += int((vote == test.y[part.numpy()]).sum())
    return 100 * right / len(test.y)


def svm(train: Rows, test: Rows) -> float:
    """Accuracy in percent of a kernel machine on the pixels of the first rows, C = 10."""
    x, y = train.x[:SVM_ROWS].cpu().numpy() / 255, train.y[:SVM_ROWS]
    model = SVC(C=10.0, gamma="scale").fit(x, y)
    return 100 * float(model.score(test.x.cpu().numpy() / 255, test.y))


def convolutional(
    train: Rows, test: Rows, budget: float, seed: int, device: str
) -> tuple[float, float]:
    """(accuracy in percent, passes) of two convolutions and two dense layers, for so many seconds.

    Adam, its rate annealed over the time there is; dropout; no augmentation.
    """
    torch.manual_seed(seed)
    side = int(train.x.shape[1] ** 0.5)
    left = side // 4
    network = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(64 * left * left, 512), nn.ReLU(),
        nn.Dropout(0.5), nn.Linear(512, int(train.y.max()) + 1),
    ).to(device)  # fmt: skip
    y = torch.from_numpy(train.y).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    began, seen, size = time.perf_counter(), 0, 128
    network.train()
    while (spent := (time.perf_counter() - began) / budget) < 1:
        order = torch.randperm(len(y), generator=generator).to(device)
        for rows in order.split(size):
            spent = (time.perf_counter() - began) / budget
            if spent >= 1:
                break
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * 0.5 * (1 + np.cos(np.pi * spent))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(_planes(train.x[rows], side)), y[rows])
            loss.backward()
            optimizer.step()
            report.synchronize(device)
            seen += len(rows)
    network.eval()
    with torch.no_grad():
        parts = [network(_planes(x, side)).argmax(1) for x in test.x.split(1000)]
    right = float((torch.cat(parts).cpu().numpy() == test.y).mean())
    return 100 * right, seen / len(y)


def _planes(x: Tensor, side: int) -> Tensor:
    return x.float().view(-1, 1, side, side) / 255

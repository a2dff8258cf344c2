"""scikit-learn's digits, and training on them."""

from __future__ import annotations

import functools

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

# Small kernels, whose cost is calling them: more threads only wait for each other.
BATCH = 64


@functools.cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images ``(N, 1, 8, 8)`` from 0 to 1 and classes, 1297 to train with and 500 to test with."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    classes = torch.tensor(data.target)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    train, test = order[500:], order[:500]
    return images[train], classes[train], images[test], classes[test]


def train(model: nn.Module, epochs: int, rate: float) -> None:
    """Adam with a rate that falls to zero."""
    images, classes, _, _ = digits()
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    batches = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for i in range(batches):
            picked = order[i * BATCH : (i + 1) * BATCH]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[picked]), classes[picked]).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Of the images to test with, how many are named right."""
    _, _, images, classes = digits()
    return float((model(images).argmax(1) == classes).float().mean())

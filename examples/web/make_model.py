"""Trains a small network on scikit-learn's handwritten digits, quantizes it, and writes what index.html loads.

``python examples/web/make_model.py build/web/page``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import zeropoint


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    train, unseen = slice(0, 1500), slice(1500, None)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(20):
        for batch in torch.randperm(1500).split(64):
            loss = nn.functional.cross_entropy(model(images[train][batch]), labels[train][batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    quantized = zeropoint.to_int8(model, (images[:1],), [images[:256]], progress=False)
    program = zeropoint.compile(quantized, (images[:1],))
    program.save(folder / "digits.zpt")
    right = (program(images[unseen]).argmax(1) == labels[unseen]).float().mean().item()
    print(f"{100 * right:.1f}% of {len(labels) - 1500} unseen digits are right")
    samples = [{"label": int(labels[i]), "pixels": images[i].flatten().tolist()} for i in range(1500, 1520)]
    (folder / "samples.json").write_text(json.dumps(samples))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Writes the networks that compare.mjs measures: as programs, and as ONNX files of the same int8 network.

``python web/bench/make_models.py build/web/models``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn

import zeropoint
from bench import models


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


NETWORKS = {
    "ResNet-18": (models.resnet18, (1, 3, 224, 224)),
    "MobileNetV2": (models.mobilenet_v2, (1, 3, 224, 224)),
    "MiniLM encoder, 128 tokens": (models.encoder, (1, 128, 384)),
    "MLP 784-512-512-10": (mlp, (1, 784)),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, (name, (build, shape)) in enumerate(NETWORKS.items()):
        torch.manual_seed(0)
        model, x = build().eval(), torch.randn(shape)
        quantized = zeropoint.to_int8(model, (x,), [x], dynamic_shapes=None, progress=False)
        zeropoint.compile(quantized, (x,)).save(folder / f"{number}.zpt")
        zeropoint.export_onnx(quantized, (x,), folder / f"{number}.onnx")
        x.numpy().tofile(folder / f"{number}.input")
        made.append({"name": name, "file": str(number), "shape": shape})
    (folder / "models.json").write_text(json.dumps(made))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

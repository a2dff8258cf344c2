"""export_torchvision.py NAME FOLDER: a torchvision model as model.pt2, and 32 made-up images as images.npy.

NAME is resnet50, mobilenet_v3_large, or another classifier of torchvision.models. Pretrained weights are taken if they
are in torch's cache or can be downloaded; else the weights are random, and it says so. Replace images.npy by a hundred
real images, preprocessed as in training: ranges that were calibrated on noise do not fit them.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import torch


def models() -> ModuleType:
    """torchvision.models; also where torchvision was built for another torch: classifiers use none of its operators."""
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError:  # operator torchvision::nms does not exist
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        return importlib.import_module("torchvision.models")


def classifier(name: str) -> torch.nn.Module:
    make = getattr(models(), name)
    try:
        return make(weights="DEFAULT")
    except OSError as error:
        print(f"no pretrained weights ({error}): the weights are random")
        return with_statistics(make(weights=None))


def with_statistics(model: torch.nn.Module) -> torch.nn.Module:
    """Random weights with the batch norms of a batch: without, what a deep network computes vanishes."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of what was seen
    with torch.no_grad():
        model.train()(torch.randn(8, 3, 224, 224))
    return model


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = classifier(name).eval()
    images = torch.randn(32, 3, 224, 224)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(model, (images[:2],), dynamic_shapes=({0: batch},))
    torch.export.save(exported, folder / "model.pt2")
    np.save(folder / "images.npy", images.numpy())
    print(f"wrote {folder / 'model.pt2'} and {folder / 'images.npy'}")

"""easyocr: the recognizer, quantized as `Reader(quantize=True)` has it. The detector has no layers to quantize so."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from easyocr.model.vgg_model import Model
from easyocr.recognition import get_recognizer

PACKAGES = ("easyocr", "pillow", "opencv-python-headless", "scikit-image", "python-bidi", "shapely", "pyclipper",
            "torchvision", "imageio", "lazy_loader", "tifffile")  # fmt: skip


def _saved(model: torch.nn.Module) -> str:
    """Random weights in a file, with the prefix that the package takes off where there is no GPU."""
    path = Path(tempfile.mkdtemp()) / "weights.pth"
    torch.save({f"module.{key}": value for key, value in model.state_dict().items()}, path)
    return str(path)


def _recognizer() -> Any:
    x, text = torch.randn(2, 1, 64, 256), torch.zeros(2, 26, dtype=torch.long)  # before layers draw random numbers
    sizes = {"input_channel": 1, "output_channel": 256, "hidden_size": 256}
    letters = "0123456789abcdefghijklmnopqrstuvwxyz"
    weights = _saved(Model(num_class=len(letters) + 1, **sizes))
    model, _ = get_recognizer("generation2", sizes, letters, {}, {}, weights, device="cpu", quantize=True)
    model.eval()
    return model, lambda: model(x, text)


CASES = {"recognizer": _recognizer}

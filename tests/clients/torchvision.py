"""torchvision: models of torchvision.models.quantization, static as the package prepares them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torchvision.models import quantization as zoo
from torchvision.models.quantization.utils import quantize_model

PACKAGES = ("torchvision", "pillow")


def _made(name: str) -> Any:
    model = getattr(zoo, name)(weights=None, quantize=False).eval()
    quantize_model(model, "fbgemm")  # the package has no qconfig for other engines of this CPU
    x = torch.rand(1, 3, 224, 224)
    return model, lambda: model(x)


CASES = {name: functools.partial(_made, name) for name in ("resnet18", "mobilenet_v2", "shufflenet_v2_x0_5")}

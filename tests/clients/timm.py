"""timm: networks with random weights in FX graph mode, and the classifier alone dynamically."""

from __future__ import annotations

import functools
from typing import Any

import timm
import torch
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

PACKAGES = ("timm", "torchvision", "pillow", "huggingface-hub", "safetensors")


def _graph(name: str) -> Any:
    model, x = timm.create_model(name, pretrained=False).eval(), torch.rand(1, 3, 96, 96)
    prepared = prepare_fx(model, get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    quantized = convert_fx(prepared)
    return quantized, lambda: quantized(x)


def _dynamic() -> Any:
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=64).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    x = torch.rand(1, 3, 64, 64)
    return quantized, lambda: quantized(x)


CASES = {"vit dynamic": _dynamic, **{f"{n} FX": functools.partial(_graph, n) for n in ("resnet18", "mobilenetv2_050")}}

"""Whole models from graph mode, run from torch, against torch.ao's FX: as it is, and scripted and frozen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from bench.models import encoder, mobilenet_v2, resnet18
from bench.timing import CALL, Row, made_late

ASKED = 1.2


def rows() -> Iterator[Row]:
    for name, make, shape in (
        ("ResNet-18 224x224", resnet18, (1, 3, 224, 224)),
        ("MobileNetV2 224x224", mobilenet_v2, (1, 3, 224, 224)),
        ("MiniLM encoder, 128 tokens", encoder, (1, 128, 384)),
    ):
        for mode in ("static", "dynamic") if "MiniLM" in name else ("static",):
            yield made_late(f"{name}, {mode}", _row, make, shape, mode, alike=mode)


def _row(make: Callable[[], nn.Module], shape: tuple[int, ...], mode: str) -> Row:
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    ours = zeropoint.to_int8(model, (x,), [x] if mode == "static" else None, mode=mode, progress=False)
    peers = {f"torch.ao {how}": without_gradients(m, x) for how, m in _peers(model, x, mode)}
    targets = dict.fromkeys(peers, ASKED)
    floats = {"float32": without_gradients(model, x)}
    return Row("", without_gradients(ours, x), peers | floats, targets | dict.fromkeys(floats, 0.0))


def _peers(model: nn.Module, x: Tensor, mode: str) -> Iterator[tuple[str, Any]]:
    from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    dynamic = QConfigMapping().set_global(default_dynamic_qconfig)
    before = torch.backends.quantized.engine
    for engine in ("x86", "onednn"):
        torch.backends.quantized.engine = engine
        mapping = get_default_qconfig_mapping(engine) if mode == "static" else dynamic
        prepared = prepare_fx(copy.deepcopy(model), mapping, (x,))
        prepared(x)
        converted = convert_fx(prepared)
        yield f"{engine} eager", converted
        with torch.no_grad():
            yield f"{engine} jit", torch.jit.freeze(torch.jit.trace(converted, x))
    torch.backends.quantized.engine = before


def without_gradients(model: Any, x: Tensor) -> CALL:
    def call() -> object:
        with torch.no_grad():
            return model(x)

    return call

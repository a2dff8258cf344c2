"""Traced models, quantized as TorchScript, against torch.ao's TorchScript mode of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from bench.models import mlp, resnet18
from bench.timing import CALL, Row

ASKED = 1.2


def rows() -> Iterator[Row]:
    for name, make, shape in (
        ("ResNet-18 224x224, traced", resnet18, (1, 3, 224, 224)),
        ("MLP, 1 row, traced", mlp, (1, 784)),
        ("MLP, 64 rows, traced", mlp, (64, 784)),
    ):
        torch.manual_seed(0)
        model, x = make().eval(), torch.randn(shape)
        traced = torch.jit.trace(model, x)
        ours = zeropoint.quantize_jit(traced, {"": zeropoint.get_default_qconfig("native")}, lambda m, d: m(d), (x,))
        peers = {f"torch.ao {engine}": _without_gradients(peer, x) for engine, peer in _peers(traced, x)}
        targets = dict.fromkeys(peers, ASKED)
        floats = {"float32 frozen": _without_gradients(_frozen(model, x), x)}
        yield Row(name, _without_gradients(ours, x), peers | floats, targets | dict.fromkeys(floats, 0.0))


def _peers(traced: Any, x: Tensor) -> Iterator[tuple[str, Any]]:
    from torch.ao.quantization import get_default_qconfig
    from torch.ao.quantization.quantize_jit import convert_jit, prepare_jit

    before = torch.backends.quantized.engine
    for engine in ("x86", "onednn"):
        torch.backends.quantized.engine = engine
        prepared = prepare_jit(traced, {"": get_default_qconfig(engine)})
        prepared(x)
        yield engine, convert_jit(prepared)
    torch.backends.quantized.engine = before


def _frozen(model: nn.Module, x: Tensor) -> Any:
    with torch.no_grad():
        return torch.jit.freeze(torch.jit.trace(model, x))


def _without_gradients(model: Any, x: Tensor) -> CALL:
    def call() -> object:
        with torch.no_grad():
            return model(x)

    return call

"""Traced models, quantized as TorchScript, against torch.ao's TorchScript of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from bench.graph import ASKED, resnet18, without_gradients
from bench.timing import Row


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1000))


def rows() -> Iterator[Row]:
    for name, make, shape in (
        ("traced ResNet-18 224x224", resnet18, (1, 3, 224, 224)),
        ("traced MLP, batch 1", mlp, (1, 1024)),
        ("traced MLP, batch 32", mlp, (32, 1024)),
    ):
        torch.manual_seed(0)
        model, x = make().eval(), torch.randn(shape)
        with torch.no_grad():
            traced = torch.jit.trace(model, x)
        yield _row(f"{name}, static", traced, x)
        if "MLP" in name:
            yield _row(f"{name}, dynamic", traced, x)


def _row(name: str, traced: Any, x: Tensor) -> Row:
    if name.endswith("dynamic"):
        ours = zeropoint.quantize_dynamic_jit(traced, {"": zeropoint.per_channel_dynamic_qconfig})
    else:
        ours = zeropoint.quantize_jit(traced, {"": zeropoint.get_default_qconfig("native")}, lambda m: m(x), ())
    peers = {f"torch.ao {engine}": without_gradients(m, x) for engine, m in _peers(name, traced, x)}
    targets = dict.fromkeys(peers, ASKED)
    return Row(
        name, without_gradients(ours, x), peers | {"float32": without_gradients(traced, x)}, targets | {"float32": 0}
    )


def _peers(name: str, traced: Any, x: Tensor) -> Iterator[tuple[str, Any]]:
    from torch.ao.quantization import get_default_qconfig, per_channel_dynamic_qconfig
    from torch.ao.quantization.quantize_jit import quantize_dynamic_jit, quantize_jit

    before = torch.backends.quantized.engine
    for engine in ("x86", "onednn"):
        torch.backends.quantized.engine = engine
        if name.endswith("dynamic"):
            yield engine, quantize_dynamic_jit(traced, {"": per_channel_dynamic_qconfig})
        else:
            yield engine, quantize_jit(traced, {"": get_default_qconfig(engine)}, lambda m, data: m(data), [x])
    torch.backends.quantized.engine = before

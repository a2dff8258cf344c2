"""QTensor against torch's quantized tensors: the cost of a call on a tiny tensor, and kernels on large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import zeropoint
from bench.timing import CALL, Row

MILLION = 1 << 20


def rows() -> Iterator[Row]:
    yield from _calls()
    yield from _elementwise()
    yield from _pooling()


def _pair(x: torch.Tensor) -> tuple[Any, Any]:
    return (
        zeropoint.quantize_per_tensor(x, 0.05, 100, zeropoint.quint8),
        torch.quantize_per_tensor(x, 0.05, 100, torch.quint8),
    )


def _row(name: str, function: Callable[[Any], object], x: torch.Tensor, target: float, repeat: int = 1) -> Row:
    ours, theirs = _pair(x)

    def calls(q: Any) -> CALL:
        def run() -> None:
            for _ in range(repeat):
                function(q)

        return run

    return Row(name, calls(ours), {"torch": calls(theirs)}, {"torch": target})


def _calls() -> Iterator[Row]:
    """1000 calls on 2x3 values. A Python wrapper costs microseconds where torch's C++ tensor costs one: no target."""
    x = torch.randn(2, 3)
    functions: dict[str, Callable[[Any], object]] = {
        "q[0]": lambda q: q[0],
        "q.view(3, 2)": lambda q: q.view(3, 2),
        "q.int_repr()": lambda q: q.int_repr(),
        "q.dequantize()": lambda q: q.dequantize(),
        "torch.relu(q)": torch.relu,
    }
    for name, function in functions.items():
        yield _row(f"1000 x {name}, 2x3", function, x, 0.0, repeat=1000)


def _elementwise() -> Iterator[Row]:
    x = torch.randn(16 * MILLION)
    functions: dict[str, Callable[[Any], object]] = {
        "relu": torch.relu,
        "clamp": lambda q: torch.clamp(q, -1.0, 1.0),
        "hardtanh": F.hardtanh,
        "leaky_relu": lambda q: F.leaky_relu(q, 0.1),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "hardsigmoid": F.hardsigmoid,
        "threshold": lambda q: F.threshold(q, 0.5, 0.0),
        "equal": lambda q: torch.equal(q, q),
        "clone": lambda q: q.clone(),
    }
    for name, function in functions.items():
        yield _row(f"{name} 16M", function, x, 1.0)


def _pooling() -> Iterator[Row]:
    functions: dict[str, Callable[[Any], object]] = {
        "max_pool2d 3x3/2": lambda q: F.max_pool2d(q, 3, 2, 1),
        "avg_pool2d 2x2": lambda q: F.avg_pool2d(q, 2),
        "adaptive_avg_pool2d 1": lambda q: F.adaptive_avg_pool2d(q, 1),
        "bilinear x2": lambda q: F.interpolate(q, scale_factor=2, mode="bilinear"),
        "nearest x2": lambda q: F.interpolate(q, scale_factor=2, mode="nearest"),
        "mean over H, W": lambda q: q.mean((2, 3)),
    }
    x = torch.randn(8, 64, 56, 56)
    layouts = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
    for layout, memory_format in layouts.items():
        for name, function in functions.items():
            yield _row(f"{name} 8x64x56x56 {layout}", function, x.contiguous(memory_format=memory_format), 1.0)

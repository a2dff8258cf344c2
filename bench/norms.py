"""Norms, softmax and means of quantized tensors against torch.ops.quantized and PyTorch's quantized tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import zeropoint
from bench.timing import Row
from zeropoint import qfunctions as ours

theirs = torch.ops.quantized
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def rows() -> Iterator[Row]:
    w, b, mean = (torch.randn(768) for _ in range(3))
    var = torch.rand(768) + 0.1
    tokens = torch.randn(8, 128, 768)
    yield _row("layer_norm 8x128x768", lambda o, q: o.layer_norm(q, [768], w, b, 1e-5, 0.03, 120), tokens, 1.5)
    scores = torch.randn(8, 12, 128, 128)
    yield _row("softmax 8x12x128x128", lambda o, q: o.softmax(q, -1, 1 / 256, 0), scores, 1.5)
    yield _row("softmax 8x12x128x128, middle axis", lambda o, q: o.softmax(q, 2, 1 / 256, 0), scores, 1.0)
    images = torch.randn(32, 64, 56, 56)
    w, b, mean, var = (t[:64] for t in (w, b, mean, var))
    norms: dict[str, tuple[Callable[[Any, Any], object], float]] = {
        "batch_norm2d": (lambda o, q: o.batch_norm2d(q, w, b, mean, var, 1e-5, 0.03, 120), 1.5),
        "batch_norm2d_relu": (lambda o, q: o.batch_norm2d_relu(q, w, b, mean, var, 1e-5, 0.03, 120), 1.5),
        "group_norm": (lambda o, q: o.group_norm(q, 8, w, b, 1e-5, 0.03, 120), 1.0),
        "instance_norm": (lambda o, q: o.instance_norm(q, w, b, 1e-5, 0.03, 120), 1.0),
        "mean over H, W": (lambda o, q: q.mean((2, 3)), 1.0),
    }
    for layout, memory_format in FORMATS.items():
        x = images.contiguous(memory_format=memory_format)
        for name, (function, target) in norms.items():
            yield _row(f"{name} 32x64x56x56 {layout}", function, x, target, copy=name.startswith("batch"))
    small = torch.randn(8, 512, 7, 7)
    for layout, memory_format in FORMATS.items():
        x = small.contiguous(memory_format=memory_format)
        yield _row(f"mean over H, W 8x512x7x7 {layout}", lambda o, q: q.mean((2, 3)), x, 1.0)


def _row(name: str, function: Callable[[Any, Any], object], x: torch.Tensor, target: float, copy: bool = False) -> Row:
    """function(the operators, the quantized tensor), with ours and with theirs."""
    mine = zeropoint.quantize_per_tensor(x, 0.05, 100, zeropoint.quint8)
    peer = torch.quantize_per_tensor(x, 0.05, 100, torch.quint8)
    bytes_ = mine.int_repr()
    return Row(
        name,
        lambda: function(ours, mine),
        {"torch": lambda: function(theirs, peer)},
        {"torch": target},
        (lambda: bytes_.clone()) if copy else None,
    )

"""Sums, products, cat, functions with a table, pools and interpolation on 32x64x56x56 against torch.ops.quantized.

Asked for: 1.5 times torch's speed, or two thirds of the speed of a copy of as many bytes as are read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

import zeropoint
from bench.timing import CALL, Row
from zeropoint import qfunctions as ours

SHAPE = (32, 64, 56, 56)
LAYOUTS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
THEIRS = torch.ops.quantized
ASKED = {"torch": 1.5}
NEAR_COPY = 1 / 1.5


def rows() -> Iterator[Row]:
    for layout, memory_format in LAYOUTS.items():
        yield from _binary(layout, memory_format)
        yield from _cat(layout, memory_format)
    yield from _functions()
    for layout, memory_format in LAYOUTS.items():
        yield from _spatial(layout, memory_format)


def _pair(seed: int, scale: float, zero_point: int, memory_format: torch.memory_format) -> tuple[Any, Any]:
    """The same integers as ours and as torch's."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).contiguous(memory_format=memory_format)
    return (
        zeropoint.quantize_per_tensor(x, scale, zero_point, zeropoint.quint8),
        torch.quantize_per_tensor(x, scale, zero_point, torch.quint8),
    )


def _copy_of(moved: int) -> CALL:
    """A copy that reads and writes `moved` bytes in all, into memory that is already there."""
    source, target = (torch.ones(moved // 2, dtype=torch.uint8) for _ in range(2))
    return lambda: target.copy_(source)


def _binary(layout: str, memory_format: torch.memory_format) -> Iterator[Row]:
    a, b = _pair(0, 0.05, 100, memory_format), _pair(1, 0.03, 128, memory_format)
    for name in ("add", "add_relu", "mul"):
        mine, theirs = getattr(ours, name), getattr(THEIRS, name)
        yield Row(
            f"{name} {layout}",
            lambda f=mine: f(a[0], b[0], 0.06, 110),
            {"torch": lambda f=theirs: f(a[1], b[1], 0.06, 110)},
            ASKED,
            _copy_of(3 * a[0].numel()),
            NEAR_COPY,
        )
    row = a[0][:1, :, :1, :1].contiguous(), a[1][:1, :, :1, :1].contiguous()
    yield Row(
        f"mul by a value for each channel {layout}",
        lambda: ours.mul(b[0], row[0], 0.06, 110),
        {"torch": lambda: THEIRS.mul(b[1], row[1], 0.06, 110)},
        ASKED,
        _copy_of(2 * b[0].numel()),
        NEAR_COPY,
    )


def _cat(layout: str, memory_format: torch.memory_format) -> Iterator[Row]:
    a, b = _pair(0, 0.05, 100, memory_format), _pair(1, 0.03, 128, memory_format)
    for what, second in (("two scales", b), ("one scale", a)):
        yield Row(
            f"cat of channels, {what} {layout}",
            lambda q=second[0]: ours.cat([a[0], q], 1, 0.05, 100),
            {"torch": lambda q=second[1]: THEIRS.cat([a[1], q], 1, 0.05, 100)},
            ASKED,
            _copy_of(4 * a[0].numel()),
            NEAR_COPY,
        )


def _functions() -> Iterator[Row]:
    q, theirs = _pair(0, 0.05, 100, torch.contiguous_format)
    out = 0.04, 90
    slope = zeropoint.quantize_per_tensor(torch.rand(64), 1 / 128, 0, zeropoint.quint8)
    their_slope = torch._make_per_tensor_quantized_tensor(slope.int_repr(), 1 / 128, 0)
    arguments: dict[str, tuple[Any, ...]] = {
        "sigmoid": out,
        "hardswish": out,
        "elu": out,
        "celu": out,
        "leaky_relu": (0.1, False, *out),
        "relu6": (),
        "threshold": (0.5, 0.0),
        "clamp": (-1.0, 1.0),
        "add_scalar": (20.0,),
        "mul_scalar": (-2.0,),
    }
    functions: dict[str, tuple[CALL, CALL]] = {
        name: (partial(getattr(ours, name), q, *rest), partial(getattr(THEIRS, name), theirs, *rest))
        for name, rest in arguments.items()
    }
    functions["prelu"] = partial(ours.prelu, q, slope, *out), partial(THEIRS.prelu, theirs, their_slope, *out)
    functions["compare with a number"] = lambda: q > 0.5, lambda: theirs > 0.5
    for name, (mine, peer) in functions.items():
        yield Row(name, mine, {"torch": peer}, ASKED, _copy_of(2 * q.numel()), NEAR_COPY)


def _spatial(layout: str, memory_format: torch.memory_format) -> Iterator[Row]:
    q, theirs = _pair(0, 0.05, 100, memory_format)
    functions: dict[str, Callable[[Any], Any]] = {
        "max_pool2d 3x3/2": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool2d 2x2": lambda x: F.avg_pool2d(x, 2),
        "adaptive_avg_pool2d 1": lambda x: F.adaptive_avg_pool2d(x, 1),
        "interpolate nearest x2": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        "interpolate bilinear x2": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    }
    for name, function in functions.items():
        moved = q.numel() + function(q).numel()
        yield Row(
            f"{name} {layout}",
            lambda f=function: f(q),
            {"torch": lambda f=function: f(theirs)},
            ASKED,
            _copy_of(moved),
            NEAR_COPY,
        )

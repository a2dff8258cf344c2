"""Elementwise quantization against PyTorch: quantize, dequantize, fake quantize, choose_qparams_optimized."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.ao.quantization.fx._decomposed  # registers the peer's ops

import zeropoint.ops  # noqa: F401 (registers ours)
from bench.timing import CALL, Row
from zeropoint.numerics import affine
from zeropoint.numerics.affine import RoundingVariant
from zeropoint.numerics.qparams import choose_qparams_optimized

OURS = torch.ops.zeropoint
THEIRS = torch.ops.quantized_decomposed
MILLION = 1 << 20


def _copy_of(moved: int) -> CALL:
    """A copy that reads and writes `moved` bytes in all, into memory that is already there."""
    source = torch.ones(moved // 2, dtype=torch.uint8)
    target = torch.ones(moved // 2, dtype=torch.uint8)
    return lambda: target.copy_(source)


def rows() -> Iterator[Row]:
    yield from _per_tensor()
    yield from _per_channel()
    yield from _fake_quantize()
    yield from _search()


def _per_tensor() -> Iterator[Row]:
    for n in (MILLION, 16 * MILLION):
        x = torch.randn(n)
        yield Row(
            f"quantize_per_tensor {n // MILLION}M to quint8",
            lambda x=x: affine.quantize_tensor(
                x, 0.03, 128, qmin=0, qmax=255, dtype=torch.uint8, variant=RoundingVariant.fused
            ),
            {"torch": lambda x=x: torch.quantize_per_tensor(x, 0.03, 128, torch.quint8)},
            {"torch": 1.0},
            _copy_of(5 * n),
        )
    n = 16 * MILLION
    x = torch.randn(n)
    q = torch.quantize_per_tensor(x, 0.03, 128, torch.quint8)
    stored = q.int_repr()
    yield Row(
        "dequantize per tensor 16M",
        lambda: affine.dequantize_tensor(stored, 0.03, 128, exact=True),
        {"torch": lambda: q.dequantize()},
        {"torch": 3.0},
        _copy_of(5 * n),
    )
    target = torch.empty(n)
    yield Row(
        "dequantize per tensor 16M, out=",
        lambda: affine.dequantize_tensor(stored, 0.03, 128, exact=True, out=target),
        {"torch": lambda: q.dequantize()},
        {"torch": 3.0},
        _copy_of(5 * n),
    )
    arguments = (0.03, 128, 0, 255, torch.uint8)
    yield Row(
        "decomposed quantize_per_tensor 16M",
        lambda: OURS.quantize_per_tensor(x, *arguments),
        {"decomposed": lambda: THEIRS.quantize_per_tensor(x, *arguments)},
        {"decomposed": 10.0},
        _copy_of(5 * n),
    )


def _per_channel() -> Iterator[Row]:
    x = torch.randn(1024, 4096)
    moved = 5 * x.numel()
    for axis in (0, 1):
        scale = torch.rand(x.shape[axis]) * 0.05 + 0.01
        zero = torch.randint(0, 255, (x.shape[axis],))
        yield Row(
            f"quantize_per_channel 1024x4096 axis {axis}",
            lambda a=axis, s=scale, z=zero: OURS.quantize_per_channel(x, s, z, a, 0, 255, torch.uint8),
            {
                "torch": lambda a=axis, s=scale, z=zero: torch.quantize_per_channel(x, s, z, a, torch.quint8),
                "decomposed": lambda a=axis, s=scale, z=zero: THEIRS.quantize_per_channel(
                    x, s, z, a, 0, 255, torch.uint8
                ),
            },
            {"torch": 10.0, "decomposed": 4.0},
            _copy_of(moved),
        )
    scale = torch.rand(4096, dtype=torch.float64) * 0.05 + 0.01
    zero = torch.randint(0, 255, (4096,))
    q = torch.quantize_per_channel(x, scale, zero, 1, torch.quint8)
    stored = q.int_repr()
    yield Row(
        "dequantize per channel 1024x4096 axis 1",
        lambda: affine.dequantize(stored, scale, zero, (1024, 1), exact=False),
        {"torch": lambda: q.dequantize()},
        {"torch": 5.0},
        _copy_of(moved),
    )
    scales = torch.rand(1024, 32) * 0.05 + 0.01
    zeros = torch.randint(-8, 7, (1024, 32))
    arguments = (scales, zeros, -8, 7, torch.int8, 128)
    yield Row(
        "quantize_per_channel_group(128) 1024x4096",
        lambda: OURS.quantize_per_channel_group(x, *arguments),
        {"decomposed": lambda: THEIRS.quantize_per_channel_group(x, *arguments)},
        {"decomposed": 4.0},
        _copy_of(moved),
    )


def _fake_quantize() -> Iterator[Row]:
    shape = (32, 64, 56, 56)
    x = torch.randn(shape, requires_grad=True)
    dy = torch.randn(shape)
    scale = torch.rand(64) * 0.05 + 0.01
    zero = torch.zeros(64, dtype=torch.int32)

    def both(function: object, *arguments: object) -> CALL:
        def run() -> None:
            x.grad = None
            function(x, *arguments).backward(dy)  # type: ignore[operator]

        return run

    # Forward reads 4 bytes and writes 5, backward reads 5 and writes 4.
    moved = 18 * x.numel()
    tensor = (0.03, 0, -128, 127)
    yield Row(
        "fake_quantize per tensor, forward + backward",
        both(OURS.fake_quantize_per_tensor_affine, *tensor),
        {"torch": both(torch.fake_quantize_per_tensor_affine, *tensor)},
        {"torch": 3.0},
        _copy_of(moved),
    )
    channel = (scale, zero, 1, -128, 127)
    yield Row(
        "fake_quantize per channel, forward + backward",
        both(OURS.fake_quantize_per_channel_affine, *channel),
        {"torch": both(torch.fake_quantize_per_channel_affine, *channel)},
        {"torch": 3.0},
        _copy_of(moved),
    )


def _search() -> Iterator[Row]:
    for n in (256, 65536):
        x = torch.randn(n)
        yield Row(
            f"choose_qparams_optimized {n} values, 4 bit",
            lambda x=x, n=n: choose_qparams_optimized(x, n, 200, 0.16, 4),
            {"torch": lambda x=x, n=n: torch.choose_qparams_optimized(x, n, 200, 0.16, 4)},
            {"torch": 4.0},
        )

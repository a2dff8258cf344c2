"""Linear layers and convolutions against torch.ops.quantized with each of its engines, float32 beside them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

import zeropoint
from bench.timing import CALL, Row
from zeropoint.qfunctions import packed

ENGINES = tuple(e for e in ("x86", "fbgemm", "onednn") if e in torch.backends.quantized.supported_engines)


def rows() -> Iterator[Row]:
    yield from _linear()
    yield from _linear_dynamic()
    yield from _convolutions()
    yield from _overhead()


def _quantized(x: torch.Tensor, scale: float, zero_point: int, name: str) -> tuple[Any, torch.Tensor]:
    """The same integers as ours and as torch's."""
    ours = zeropoint.quantize_per_tensor(x, scale, zero_point, getattr(zeropoint, name))
    return ours, torch.quantize_per_tensor(x, scale, zero_point, getattr(torch, name))


def _weights(w: torch.Tensor, axis: int | None) -> tuple[Any, torch.Tensor]:
    if axis is None:
        return _quantized(w, w.abs().max().item() / 127, 0, "qint8")
    scales = w.abs().amax([d for d in range(w.dim()) if d != axis]) / 127
    zeros = torch.zeros(w.shape[axis], dtype=torch.int64)
    ours = zeropoint.quantize_per_channel(w, scales, zeros, axis, zeropoint.qint8)
    return ours, torch.quantize_per_channel(w, scales, zeros, axis, torch.qint8)


def _with_engines(make: Any) -> dict[str, CALL]:
    """make(engine) for each of torch's engines that can do it; the engine is chosen when the weight is packed."""
    peers = {}
    before = torch.backends.quantized.engine
    for engine in ENGINES:
        torch.backends.quantized.engine = engine
        try:
            call = make()
            call()
            peers[f"torch {engine}"] = call
        except (RuntimeError, ValueError):
            continue
    torch.backends.quantized.engine = before
    return peers


def _row(name: str, ours: CALL, peers: dict[str, CALL], amx: float, vnni: float = 1.0) -> Row:
    """What is asked depends on what the CPU has; without VNNI, that nothing is slow (PyTorch saturates there)."""
    asked = {"amx": amx, "vnni": vnni}.get(zeropoint.cpu_info().isa, 0.9)
    return Row(name, ours, peers, dict.fromkeys(peers, asked))


def _linear() -> Iterator[Row]:
    w, b = torch.randn(1024, 1024) * 0.05, torch.randn(1024)
    mine, theirs = _weights(w, 0)
    packed_weight = packed.linear_prepack(mine, b)
    for m in (1, 16, 128, 1024):
        x, tx = _quantized(torch.randn(m, 1024), 0.05, 64, "quint8")

        def peer(tx: torch.Tensor = tx) -> CALL:
            p = torch.ops.quantized.linear_prepack(theirs, b)
            return lambda: torch.ops.quantized.linear(tx, p, 0.1, 64)

        yield _row(
            f"linear 1024x1024 M={m}",
            lambda x=x: packed.linear(x, packed_weight, 0.1, 64),
            _with_engines(peer),
            {1: 1.3, 16: 2.0}.get(m, 3.0),
        )


def _linear_dynamic() -> Iterator[Row]:
    w, b = torch.randn(1024, 1024) * 0.05, torch.randn(1024)
    mine, theirs = _weights(w, None)
    packed_weight = packed.linear_prepack(mine, b)
    for m in (1, 16, 128, 1024):
        x = torch.randn(m, 1024)

        def peer(x: torch.Tensor = x) -> CALL:
            p = torch.ops.quantized.linear_prepack(theirs, b)
            return lambda: torch.ops.quantized.linear_dynamic(x, p, True)

        peers = _with_engines(peer)
        peers["float32"] = lambda x=x: torch.nn.functional.linear(x, w, b)
        yield _row(
            f"linear_dynamic 1024x1024 M={m}",
            lambda x=x: packed.linear_dynamic(x, packed_weight),
            peers,
            {1: 1.3, 16: 1.0}.get(m, 2.5),
        )


# name, in, out, size, kernel, stride, padding, groups, transposed
SHAPES = (
    ("3x3 64@56", 64, 64, 56, 3, 1, 1, 1, False),
    ("3x3 128@28", 128, 128, 28, 3, 1, 1, 1, False),
    ("3x3 256@14", 256, 256, 14, 3, 1, 1, 1, False),
    ("3x3 512@7", 512, 512, 7, 3, 1, 1, 1, False),
    ("7x7 stem 3->64@224", 3, 64, 224, 7, 2, 3, 1, False),
    ("1x1 stride 2 64->128@56", 64, 128, 56, 1, 2, 0, 1, False),
    ("depthwise 3x3 128@56", 128, 128, 56, 3, 1, 1, 128, False),
    ("depthwise 3x3 512@14", 512, 512, 14, 3, 1, 1, 512, False),
    ("transposed 4x4 stride 2 128->64@28", 128, 64, 28, 4, 2, 1, 1, True),
)


def _peer_conv(run: Any, pack: Any, x: torch.Tensor, arguments: tuple[Any, ...]) -> CALL:
    weight = pack(*arguments)
    return lambda: run(x, weight, 0.1, 64)


def _convolutions() -> Iterator[Row]:
    for name, inputs, outputs, size, kernel, stride, padding, groups, transposed in SHAPES:
        shape = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
        w, b = torch.randn(*shape, kernel, kernel) * 0.05, torch.randn(outputs)
        mine, theirs = _weights(w, None if transposed else 0)
        two = [stride] * 2, [padding] * 2
        more = [[0, 0]] if transposed else []
        rest = ([1, 1], groups)
        prepack = packed.conv_transpose_prepack if transposed else packed.conv_prepack
        packed_weight = prepack(mine, b, *two, *more, *rest)
        for batch in (1, 16):
            x, tx = _quantized(torch.randn(batch, inputs, size, size), 0.05, 64, "quint8")
            x = x.contiguous(memory_format=torch.channels_last)
            tx = tx.contiguous(memory_format=torch.channels_last)

            ops = torch.ops.quantized
            pack = ops.conv_transpose2d_prepack if transposed else ops.conv2d_prepack
            run = ops.conv_transpose2d if transposed else ops.conv2d
            peer = functools.partial(_peer_conv, run, pack, tx, (theirs, b, *two, *more, *rest))
            yield _row(
                f"{name}, batch {batch}",
                lambda x=x, p=packed_weight: packed.conv(x, p, 0.1, 64),
                _with_engines(peer),
                *((1.5, 1.5) if transposed or groups > 1 else (2.5, 1.0)),
            )


def _overhead() -> Iterator[Row]:
    w, b = torch.randn(16, 16), torch.randn(16)
    mine, theirs = _weights(w, None)
    packed_weight = packed.linear_prepack(mine, b)
    x, tx = _quantized(torch.randn(1, 16), 0.05, 64, "quint8")

    def peer() -> CALL:
        p = torch.ops.quantized.linear_prepack(theirs, b)
        return lambda: torch.ops.quantized.linear(tx, p, 0.1, 64)

    yield _row(
        "linear 16x16 M=1 (one call)", lambda: packed.linear(x, packed_weight, 0.1, 64), _with_engines(peer), 1.0
    )

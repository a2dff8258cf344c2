"""Observers and fake-quantize modules against torch.ao's of the same name, and the memory of a long calibration."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import torch
import torch.ao.quantization as theirs

import zeropoint as ours
from bench.timing import CALL, Row

SHAPE = (32, 64, 56, 56)


def rows() -> Iterator[Row]:
    yield from _observers()
    yield from _fake_quant()
    _print_memory()


def _seen(observer: Any, x: torch.Tensor) -> Any:
    for _ in range(3):
        observer(x)
    return observer


def _observers() -> Iterator[Row]:
    x = torch.randn(SHAPE)
    for name, arguments, target in (
        ("MinMaxObserver", {}, 1.0),
        ("MovingAverageMinMaxObserver", {}, 1.0),
        ("PerChannelMinMaxObserver", {}, 5.0),
        ("PerChannelMinMaxObserver", {"ch_axis": 1}, 5.0),
        ("MovingAveragePerChannelMinMaxObserver", {"ch_axis": 1}, 5.0),
        ("HistogramObserver", {}, 5.0),
    ):
        mine, other = (_seen(getattr(library, name)(**arguments), x) for library in (ours, theirs))
        label = name + "".join(f" {key}={value}" for key, value in arguments.items())
        yield Row(
            f"{label}, forward",
            lambda o=mine: o(x),
            {"torch.ao": lambda o=other: o(x)},
            {"torch.ao": target},
            _read(x),
        )
    for kind, data in (("normal", x), ("relu", x.relu()), ("heavy tails", x**3)):
        mine, other = (_seen(library.HistogramObserver(), data) for library in (ours, theirs))
        yield Row(
            f"HistogramObserver.calculate_qparams, {kind}",
            lambda o=mine: o.calculate_qparams(),
            {"torch.ao": lambda o=other: o.calculate_qparams()},
            {"torch.ao": 5.0},
        )


def _read(x: torch.Tensor) -> CALL:
    """A copy that moves as many bytes as an observer reads."""
    source = x.reshape(-1)[: x.numel() // 2]
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _fake_quant() -> Iterator[Row]:
    x = torch.randn(SHAPE, requires_grad=True)
    dy = torch.randn(SHAPE)

    def step(module: Any) -> CALL:
        def run() -> None:
            x.grad = None
            module(x).backward(dy)

        return run

    for name in (
        "default_fake_quant",
        "default_per_channel_weight_fake_quant",
        "default_fused_act_fake_quant",
        "default_fused_per_channel_wt_fake_quant",
    ):
        mine, other = (getattr(library, name)() for library in (ours, theirs))
        yield Row(f"{name}, forward + backward", step(mine), {"torch.ao": step(other)}, {"torch.ao": 3.0})


def _print_memory() -> None:
    observer = ours.HistogramObserver()
    batch = torch.empty(32, 64, 28, 28)
    peaks = []
    for step in range(200):
        observer(batch.normal_().mul_(1 + step % 7))
        if step in (10, 199):
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"peak memory of a calibration: {peaks[0]:.0f} MB after 10 batches, {peaks[1]:.0f} MB after 200")

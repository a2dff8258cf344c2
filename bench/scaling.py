"""How the cost grows: batches of 1 to 64, images of 64 to 512, sequences of 16 to 1024 tokens, one program for each.

``python -m bench scaling --json scaling.json``, then ``python -m bench.plot scaling.json docs/pictures/scaling.svg``.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import zeropoint
from bench import models
from bench.timing import OURS, How, Result, Row
from zeropoint.interop.peer_process import Contender, take_turns


@dataclass(frozen=True)
class Sweep:
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    sizes: tuple[int, ...]


SWEEPS = (
    Sweep("ResNet-18, batch", models.resnet18, lambda n: torch.randn(n, 3, 224, 224), (1, 2, 4, 8, 16, 32, 64)),
    Sweep("ResNet-18, image", models.resnet18, lambda n: torch.randn(1, 3, n, n), (64, 96, 128, 192, 256, 384, 512)),
    Sweep("MiniLM, tokens", models.encoder, lambda n: torch.randn(1, n, 384), (16, 32, 64, 128, 256, 512, 1024)),
)


def rows() -> Iterator[Row]:
    for sweep in SWEEPS:
        for size in sweep.sizes:
            yield Row(f"{sweep.name} {size}", race=functools.partial(_race, sweep, size), alike=sweep.name)


def _race(sweep: Sweep, size: int, row: Row, how: How, least: int) -> Result:
    inputs = (sweep.inputs(size).numpy(),)
    path = _program(sweep)
    macs = sum(step.macs for step in zeropoint.runtime.load(path).profile(*inputs, runs=1))
    with Contender(OURS, path, inputs, how.threads, how.realtime) as contender:
        times, out = take_turns([contender], how.seconds, least)
    for reason in out.values():
        return Result(row, {}, failed=str(reason))
    rate = macs / times[OURS].median / 1e9
    details = (f"{macs / 1e9:.3f} GMAC, {rate:.0f} GMAC/s",)
    return Result(row, times, {}, details, {"sweep": sweep.name, "size": size, "macs": macs})


@functools.lru_cache(maxsize=1)
def _program(sweep: Sweep) -> Path:
    """One program for all sizes."""
    torch.manual_seed(0)
    example = sweep.inputs(sweep.sizes[2])
    quantized = zeropoint.to_int8(sweep.make().eval(), (example,), [example], dynamic_shapes="all", progress=False)
    path = Path(_folder().name) / f"{sweep.name}.zpt"
    zeropoint.compile(quantized, (example,)).save(path)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # which goes when the process does

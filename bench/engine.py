"""Compiled programs against everything that ships 8-bit models on CPUs today.

Each row is one model and batch size; all contenders take turns on the same input. Under a row: how alike each result is
to that of the float model (cosine), what would be deployed (MB), and seconds from there to the first result.
`torch.compile` takes minutes for these models: ``--only`` chooses rows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import zeropoint
import zeropoint.runtime
from bench import models
from bench.competitors import COMPETITORS, Contender, Task, Unavailable, cosine
from bench.timing import Row


@dataclass(frozen=True)
class Case:
    """A model, the shape of one example, and what is asked of us with and without AMX."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    asked_amx: float
    dynamic: bool = False


CASES = (
    Case("ResNet-18 224x224", models.resnet18, (3, 224, 224), 2.0),
    Case("MobileNetV2 ReLU6 224x224", models.mobilenet_v2_relu6, (3, 224, 224), 1.5),
    Case("MiniLM encoder, 128 tokens", models.encoder, (128, 384), 2.0),
    Case("voice encoder LSTM, 160 frames", models.VoiceEncoder, (160, 40), 1.5, dynamic=True),
    Case("MLP 784-512-512-10", models.mlp, (784,), 2.0),
    Case("CREPE full", models.Crepe, (1024,), 1.5),
)
BATCHES = (1, 16)


def rows() -> Iterator[Row]:
    amx = zeropoint.cpu_info().isa == "amx"
    for case in CASES:
        for batch in BATCHES:
            yield _row(case, batch, case.asked_amx if amx else 1.0)


def _row(case: Case, batch: int, asked: float) -> Row:
    torch.manual_seed(0)
    model = case.make().eval()
    calibration = tuple(torch.randn(batch, *case.shape) for _ in range(64 // batch))
    task = Task(model, torch.randn(batch, *case.shape), calibration, torch.get_num_threads(), case.dynamic)
    with torch.no_grad():
        floats = model(task.x)
    contenders: dict[str, Contender] = {}
    details = []
    for name, make in {"zeropoint": program, **COMPETITORS}.items():
        try:
            contenders[name] = contender = make(task)
        except Unavailable as reason:
            details.append(f"{name:<22} - {reason}")
            continue
        alike = cosine(contender.call(), floats)
        details.append(f"{name:<22} cosine {alike:.5f} {contender.size / 1e6:8.2f} MB {contender.load:7.3f} s")
    peers = {name: contender.call for name, contender in contenders.items() if name != "zeropoint"}
    targets = dict.fromkeys(peers, asked)
    return Row(f"{case.name}, batch {batch}", contenders["zeropoint"].call, peers, targets, details=tuple(details))


def program(task: Task) -> Contender:
    """Ours: quantized in one call, compiled, saved, and run by the runtime that needs no torch."""
    mode = "dynamic" if task.dynamic else "static"
    data = None if task.dynamic else task.calibration
    quantized = zeropoint.to_int8(task.model, (task.x,), data, mode=mode, progress=False)
    x = task.x.numpy()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.zpt"
        zeropoint.compile(quantized, (task.x,)).save(place)
        start = time.perf_counter()
        loaded = zeropoint.runtime.load(place)
        loaded(x)
        return Contender(lambda: loaded(x), place.stat().st_size, time.perf_counter() - start)

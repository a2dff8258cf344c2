"""Compiled programs against everything that ships 8-bit models on CPUs today (src/zeropoint/interop/peers.py).

Each row is one model, batch size and number of threads; all contenders take turns on the same input. Under the row with
most threads: how alike each result is to that of the float model (cosine), what is deployed (MB), and, of a process of
its own that runs it, seconds to load it (imports included), the time of the first call, and the most memory it had.
`torch.compile` takes minutes for these models: ``--without slow`` leaves it out, ``--only`` chooses rows.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from zeropoint.interop.footprint import footprint

import zeropoint
from bench import models
from bench.timing import CALL, Row
from zeropoint.interop.peers import OURS, PEERS, SLOW, file_bytes, ready, written
from zeropoint.interop.tasks import Task, Unavailable


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
ROUNDS = 30  # times that each contender is run, at least


def rows() -> Iterator[Row]:
    amx = zeropoint.cpu_info().isa == "amx"
    most = torch.get_num_threads()
    for case in CASES:
        for batch in BATCHES:
            for threads in sorted({most, 1}, reverse=True):
                yield Row(
                    f"{case.name}, batch {batch}, {threads} thread{'s' * (threads > 1)}",
                    least_rounds=ROUNDS,
                    make=functools.partial(_row, case, batch, threads, case.asked_amx if amx else 1.0, threads == most),
                )


def _row(case: Case, batch: int, threads: int, asked: float, with_details: bool, without: Sequence[str]) -> Row:
    torch.set_num_threads(threads)
    zeropoint.set_num_threads(threads)
    task, files = _files(case, batch, tuple(without))
    with torch.no_grad():
        floats = task.model(*task.inputs)
    calls: dict[str, CALL] = {}
    details = []
    for name, path in files.items():
        try:
            if isinstance(path, Unavailable):
                raise path
            calls[name] = call = ready(name, task, path, threads)
            if with_details:
                details.append(f"{name:<22} cosine {cosine(call(), floats):.5f} {_deployed(name, task, path, threads)}")
        except Unavailable as reason:
            details.append(f"{name:<22} left out: {reason}")
    ours = calls.pop(OURS)
    return Row("", ours, calls, dict.fromkeys(calls, asked), details=tuple(details))


@functools.lru_cache(maxsize=1)
def _files(case: Case, batch: int, without: tuple[str, ...]) -> tuple[Task, dict[str, Path | Unavailable | None]]:
    """A task, and the files of everybody for it, or why there is none. Rows with other threads have the same."""
    torch.manual_seed(0)
    model = case.make().eval()
    calibration = tuple((torch.randn(batch, *case.shape),) for _ in range(64 // batch))
    task = Task(model, (torch.randn(batch, *case.shape),), calibration, case.dynamic)
    folder = Path(tempfile.mkdtemp(dir=_folder().name))
    files: dict[str, Path | Unavailable | None] = {}
    for name in PEERS:
        if name in without or ("slow" in without and name in SLOW):
            continue
        try:
            files[name] = written(name, task, folder)
        except Unavailable as reason:
            files[name] = reason
    return task, files


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # which goes when the process does


def _deployed(name: str, task: Task, path: Path | None, threads: int) -> str:
    if path is None:
        return "(nothing to deploy)"
    found = footprint(name, path, task.arrays, threads)
    return (
        f"{file_bytes(path) / 1e6:8.2f} MB   loads in {found.load:6.3f} s, first call {1e3 * found.first:8.2f} ms,"
        f" peak memory {found.peak / 1e6:6.0f} MB"
    )


def cosine(result: Any, floats: torch.Tensor) -> float:
    """How alike a result is to that of the float model, over all of it."""
    found = torch.as_tensor(np.asarray(result)).flatten().double()
    return float(nn.functional.cosine_similarity(found, floats.flatten().double(), 0))

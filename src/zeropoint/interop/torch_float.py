"""torch on float32: as it is, and compiled; and torchao, which needs that compiler, too."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Call, Task, Unavailable, first_line

__all__ = ["compiled", "eager", "load", "torchao", "write"]


def write(task: Task, folder: Path) -> Path:
    """A file of torch.export."""
    import torch

    path = folder / "float.pt2"
    try:
        with torch.no_grad():
            torch.export.save(torch.export.export(task.model, task.inputs), path)
    except Exception as error:
        raise Unavailable(f"torch.export: {first_line(error)}") from error
    return path


def load(path: Path, inputs: Arrays, threads: int) -> Call:
    """What is in a file of torch.export."""
    import torch

    torch.set_num_threads(threads)
    return _call(torch.export.load(path).module(), tuple(map(torch.from_numpy, inputs)))


def eager(task: Task) -> Call:
    """torch, as it is."""
    return _call(task.model, task.inputs)


def compiled(task: Task) -> Call:
    """torch.compile with its own compiler."""
    import torch

    torch._dynamo.reset()
    call = _call(torch.compile(task.model), task.inputs)
    try:
        call()
    except Exception as error:
        raise Unavailable(f"torch.compile: {first_line(error)}") from error
    return call


def torchao(task: Task) -> Call:
    """torch.ao's successor: linear layers with dynamic 8-bit activations, compiled."""
    import torch

    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise Unavailable(f"torchao is not installed ({first_line(error)})") from error
    torch._dynamo.reset()
    model = copy.deepcopy(task.model)
    try:
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        call = _call(torch.compile(model), task.inputs)
        call()
    except Exception as error:
        raise Unavailable(f"torchao: {first_line(error)}") from error
    return call


def _call(model: Any, inputs: tuple[Any, ...]) -> Call:
    import torch

    def call() -> Any:
        with torch.no_grad():
            return model(*inputs)

    return call

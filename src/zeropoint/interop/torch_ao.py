"""PyTorch's own quantization, while PyTorch has it, to compare with."""

from __future__ import annotations

import copy
import time
import warnings
from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Call, Ready, Task, Unavailable, first_line

ENGINES = ("x86", "onednn")


def namespaces() -> tuple[Any, Any] | None:
    """torch.ao.quantization and torch.ao.nn.quantized; None where PyTorch no longer has them.

    Example:
        >>> found = namespaces()
        >>> found is None or found[0].__name__ == "torch.ao.quantization"
        True
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their deprecation is why this project exists
            import torch.ao.nn.quantized
            import torch.ao.quantization
    except ImportError:
        return None
    return torch.ao.quantization, torch.ao.nn.quantized


def write(task: Task, folder: Path) -> Path:
    """The old stack at its best: graph mode, traced, frozen; the quicker of its two engines."""
    import torch

    from zeropoint.graph.frontends.export import is_exported

    if namespaces() is None:
        raise Unavailable("torch.ao: this PyTorch no longer has it")
    if task.weight_bits is not None:
        raise Unavailable("torch.ao has no layers with float activations and 8-bit weights")
    if is_exported(task.model):
        raise Unavailable("torch.ao quantizes modules, not exported graphs: pass the code as package.module:factory")
    best, reason = (float("inf"), folder), ""
    for engine in ENGINES:
        path = folder / f"{engine}.pt"
        try:
            torch.jit.save(_frozen(task, engine), str(path))
            call = load(path, task.arrays, torch.get_num_threads()).call
            best = min(best, (min(_timed(call) for _ in range(5)), path))
        except Exception as error:
            reason = f"torch.ao {engine}: {first_line(error)}"
    if best[1] is folder:
        raise Unavailable(reason)
    return best[1]


def load(path: Path, inputs: Arrays, threads: int) -> Ready:
    """A TorchScript file, packed for the engine that it is named after."""
    import torch

    torch.set_num_threads(threads)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = path.stem
    try:
        model = torch.jit.load(str(path))
    finally:
        torch.backends.quantized.engine = before
    tensors = tuple(map(torch.from_numpy, inputs))

    def call() -> Any:
        with torch.inference_mode():
            return model(*tensors)

    return Ready(call, f"FX graph mode, traced and frozen, engine {path.stem}, the quicker of {' and '.join(ENGINES)}")


def _frozen(task: Task, engine: str) -> Any:
    import torch
    from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            mapping = get_default_qconfig_mapping(engine)
            if task.dynamic:
                mapping = QConfigMapping().set_global(default_dynamic_qconfig)
            prepared = prepare_fx(copy.deepcopy(task.model), mapping, task.inputs)
            if not task.dynamic:
                for batch in task.calibration:
                    prepared(*batch)
            return torch.jit.freeze(torch.jit.trace(convert_fx(prepared).eval(), task.inputs))
    finally:
        torch.backends.quantized.engine = before


def fx_static(model: Any, example: tuple[Any, ...], calibration: list[Any], engine: str = "onednn") -> Any:
    """A copy of a model, quantized in FX graph mode with the default ranges, to measure its accuracy."""
    import torch
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.backends.quantized.engine = engine
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        prepared = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping(engine), example)
        for batch in calibration:
            prepared(*(batch if isinstance(batch, tuple) else (batch,)))
        return convert_fx(prepared).eval()


def dynamic(model: Any, engine: str = "onednn") -> Any:
    """A copy of a model whose linear and recurrent layers take the range of each call."""
    import torch
    from torch import nn
    from torch.ao.quantization import quantize_dynamic

    torch.backends.quantized.engine = engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantize_dynamic(copy.deepcopy(model), {nn.Linear, nn.LSTM, nn.GRU})


def _timed(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

"""One architecture through all of it: captured, quantized, compiled, compared."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
import zeropoint.runtime
from zeropoint.compiler.compiler import Unsupported
from zeropoint.operators import BY_NAME

from .table import Case
from .torch_ao import layers_on_integers, quantized_by_torch_ao

_SEED = 20
_BATCHES = 2  # of calibration


def examine(case: Case, torch_ao: bool = False) -> dict[str, Any]:
    """What became of an architecture: what it reached, how near it is to float, and the error it stopped at.

    Args:
        torch_ao: quantize it with torch.ao, too.
    """
    found: dict[str, Any] = {"name": case.name, "mode": case.mode}
    begin = time.perf_counter()
    try:
        _examine(case, found, torch_ao)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        found["error"] = {
            "type": type(error).__name__,
            "text": lines[0][:500],
            "where": _where(error),
        }
    found["seconds"] = round(time.perf_counter() - begin, 2)
    return found


def _examine(case: Case, found: dict[str, Any], torch_ao: bool) -> None:
    found["reached"] = "nothing"
    torch.manual_seed(_SEED)
    model = case.build().eval()
    generator = torch.Generator().manual_seed(_SEED)
    _settle(model, case.inputs(generator))
    example, *calibration = [case.inputs(generator) for _ in range(1 + _BATCHES)]
    unseen = case.inputs(generator)
    with torch.no_grad():
        expected = tensors_of(_called(model, unseen))
    found["reached"] = "built"
    begin = time.process_time()  # not of other processes on this machine
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        data = {"calibration": calibration} if case.mode == "static" else {}
        quantized = zeropoint.to_int8(model, example, mode=case.mode, progress=False, **data)
    ours = [str(w.message) for w in warned if "to_int8" in str(w.message) or "is fixed" in str(w.message)]
    found.update(reached="quantized", to_int8_seconds=round(time.process_time() - begin, 2), warnings=ours)
    found.update(_share(quantized.summary()))
    with torch.no_grad():
        given = tensors_of(_called(quantized, unseen))
    found.update(_nearness(given, expected))
    if torch_ao:
        found.update(_of_torch_ao(model, example, calibration, unseen, expected, case.mode))
    begin = time.process_time()
    try:
        program = zeropoint.compile(quantized, example)
    except Unsupported:
        found["missing"] = _missing(quantized, example)
        raise
    found.update(reached="compiled", compile_seconds=round(time.process_time() - begin, 2))
    found["equal"] = _equal(tensors_of(_called(program, unseen)), given)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.zpt"
        program.save(path)
        again = tensors_of(_called(zeropoint.runtime.load(path), unseen))
    found["reloads_equal"] = _equal(again, given)


def _settle(model: nn.Module, inputs: Any) -> None:
    """Let batch norms have the mean and variance of what they see: without, activations fade from layer to layer."""
    for norm in model.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.train()
            norm.momentum = 1.0
    try:
        with torch.no_grad():
            _called(model, inputs)
    except ValueError:  # one value for each channel has no variance
        pass
    model.eval()


def _missing(quantized: Any, example: Any) -> list[str]:
    """The operators that PyTorch would have to compute; and what even that cannot do."""
    try:
        return sorted(set(zeropoint.compile(quantized, example, fallback=True).computed_by_torch))
    except Exception as error:
        return [f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"]


def _called(model: Any, inputs: Any) -> Any:
    return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)


def tensors_of(value: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, Mapping):
        value = vars(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return [] if value is None else [value]


def _equal(a: list[Any], b: list[Any]) -> bool:
    def same(x: Any, y: Any) -> bool:
        is_text = isinstance(x, str) or isinstance(y, str)
        return x == y if is_text else torch.equal(torch.as_tensor(x), torch.as_tensor(y))

    return len(a) == len(b) and all(map(same, a, b))


def _of_torch_ao(
    model: Any, example: Any, data: list[Any], unseen: Any, expected: list[Any], mode: str
) -> dict[str, Any]:
    """The error of torch.ao's form of a model, and how many layers it has on integers; empty where it makes none."""
    try:
        with torch.no_grad():
            made = quantized_by_torch_ao(model, example, data, mode)
            given = tensors_of(_called(made, unseen))
    except Exception:
        return {}
    return {"torch_ao_sqnr": _nearness(given, expected)["sqnr"], "torch_ao_int8": layers_on_integers(made)}


def _share(summary: Any) -> dict[str, Any]:
    """How many of the layers and matrix products are computed on integers."""
    heavy = [row for row in summary.rows if row.operator in BY_NAME and BY_NAME[row.operator].heavy]
    integers = [row for row in heavy if row.precision.startswith("int")]
    return {"heavy": len(heavy), "heavy_int8": len(integers)}


def _nearness(given: list[Any], expected: list[Any]) -> dict[str, Any]:
    """Cosine and signal to noise ratio of all floats of the result; of the result that is worst, too."""
    pairs = [
        (a.double(), b.double()) for a, b in zip(given, expected) if isinstance(a, Tensor) and a.is_floating_point()
    ]
    kept = [(a.flatten(), b.flatten()) for a, b in pairs if a.shape == b.shape]
    if not kept or len(kept) != len(pairs):
        return {"cosine": None, "sqnr": None}
    a, b = (torch.cat(parts) for parts in zip(*kept))
    usable = torch.isfinite(b) & (b.abs() < 1e30)  # scores of masked places are the lowest number there is
    return {"cosine": _cosine(a[usable], b[usable]), "sqnr": _sqnr(a[usable], b[usable])}


def _cosine(a: Tensor, b: Tensor) -> float:
    return round(float(torch.dot(a, b) / (a.norm() * b.norm()).clamp(min=1e-300)), 6)


def _sqnr(a: Tensor, b: Tensor) -> float:
    noise = float((a - b).square().sum())
    signal = float(b.square().sum())
    return 999.0 if noise == 0 else round(10 * math.log10(max(signal, 1e-300) / noise), 2)


def _where(error: BaseException) -> str:
    """The last place in our code, or in the case's, that an error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/zeropoint/" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""

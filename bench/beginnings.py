"""How long it takes until a model answers: from ``import`` to the first answer, and to quantize it.

First answers are timed in new processes, one for each time, with what a user would write: a file is loaded and called
once. Quantizing is timed from a float model in memory (for ONNX Runtime: a float file) and the same batches to the
quantized model; to export to ONNX is not counted. ``python -m bench beginnings``.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zeropoint
from bench import engine, models
from bench.engine import Case, floats
from bench.timing import CALL, OURS, How, Result, Row
from tests.zoo.packages import torchvision_model
from zeropoint.interop.peer_process import Times
from zeropoint.interop.peers import written
from zeropoint.interop.tasks import Task, Unavailable, one_operator_each, quietly

_BEGIN = """
import sys, time
start = time.perf_counter()
import numpy as np
with np.load(sys.argv[2]) as stored:
    inputs = [stored[key] for key in stored.files]
threads = int(sys.argv[3])
"""
_END = "\nprint(time.perf_counter() - start)"
FIRST = {
    OURS: """
import zeropoint
from zeropoint import runtime
zeropoint.set_num_threads(threads)
runtime.load(sys.argv[1])(*inputs)
""",
    "ONNX Runtime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs)})
""",
    "OpenVINO": """
import openvino
compiled = openvino.Core().compile_model(sys.argv[1], "CPU", {"INFERENCE_NUM_THREADS": threads})
compiled(inputs)
""",
}
ROUNDS, SAMPLES = 7, 8
BEGUN = (
    Case("ResNet-18", models.resnet18, floats(3, 224, 224), (1,), samples=SAMPLES),
    Case("MiniLM encoder, 128 tokens", models.encoder, floats(128, 384), (1,), samples=SAMPLES),
    Case("MLP 784-512-512-10", models.mlp, floats(784), (1,), samples=SAMPLES),
)


QUANTIZED = (
    Case("ResNet-50", torchvision_model("resnet50"), floats(3, 224, 224), (1,), samples=SAMPLES),
    Case("BERT-base encoder, 128 tokens", models.bert_base, floats(128, 768), (1,), samples=SAMPLES),
)


def rows() -> Iterator[Row]:
    for case in BEGUN:
        yield Row(
            f"first answer: {case.name}", least_rounds=ROUNDS, race=functools.partial(_first, case), alike="first"
        )
    for case in QUANTIZED:
        race = functools.partial(_quantizing, case)
        yield Row(f"quantizing: {case.name}, {SAMPLES} samples", least_rounds=3, race=race, alike="quantizing")


def _first(case: Case, row: Row, how: How, least: int) -> Result:
    """Seconds from the first import to the answer, in turns."""
    task = engine.task(case, 1, how.samples)
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "inputs.npz"
        np.savez(arrays, *task.arrays)
        calls, reasons = {}, []
        for name, code in FIRST.items():
            if name in how.without or (name != OURS and "peers" in how.without):
                continue
            try:
                path = written(name, task, Path(folder))
            except Unavailable as reason:
                reasons.append(str(reason))
                continue
            command = [sys.executable, "-c", f"{_BEGIN}{code}{_END}", str(path), str(arrays), str(how.threads)]
            calls[name] = functools.partial(_seconds_said, command)
        return Result(row, _in_turns(calls, least), dict.fromkeys(calls, 1.0), tuple(reasons))


def _seconds_said(command: list[str]) -> float:
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def _quantizing(case: Case, row: Row, how: How, least: int) -> Result:
    """Seconds of `to_int8`, and of the peers' quantizers, in turns."""
    task = engine.task(case, 1, how.samples)
    calls: dict[str, Callable[[], float]] = {OURS: lambda: _seconds(lambda: _to_int8(task))}
    with tempfile.TemporaryDirectory() as folder, quietly():
        if "peers" not in how.without:
            calls |= _quantizers(task, Path(folder))
        calls = {name: call for name, call in calls.items() if name not in how.without}
        return Result(row, _in_turns(calls, least), dict.fromkeys(calls, 1.0))


def _to_int8(task: Task) -> Any:
    return zeropoint.to_int8(task.model, task.inputs, task.calibration, progress=False)


def _quantizers(task: Task, folder: Path) -> dict[str, Callable[[], float]]:
    """Those of NNCF and ONNX Runtime, if they are installed."""
    try:
        import nncf
        import openvino
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    except ImportError:
        return {}
    with one_operator_each(), torch.no_grad():
        converted = openvino.convert_model(task.model, example_input=task.inputs)
        torch.onnx.export(task.model, task.inputs, str(folder / "float.onnx"), dynamo=True, external_data=False)
    name = _only_input(folder / "float.onnx")

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(task.calibration)

        def get_next(self) -> Any:
            batch = next(self.left, None)
            return None if batch is None else {name: batch[0].numpy()}

    def by_nncf() -> Any:
        data = nncf.Dataset([[x.numpy() for x in batch] for batch in task.calibration])
        return nncf.quantize(converted.clone(), data, subset_size=len(task.calibration))

    def by_onnx_runtime() -> Any:
        return quantize_static(
            folder / "float.onnx", folder / "int8.onnx", Reader(), quant_format=QuantFormat.QDQ, per_channel=True
        )

    return {"NNCF": lambda: _seconds(by_nncf), "ONNX Runtime": lambda: _seconds(by_onnx_runtime)}


def _only_input(path: Path) -> str:
    import onnx

    return str(onnx.load(path, load_external_data=False).graph.input[0].name)


def _seconds(call: CALL) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _in_turns(calls: Mapping[str, Callable[[], float]], least: int) -> dict[str, Times]:
    """What each call says that it took, so many times, behind one that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(least + 1):
        for name, call in calls.items():
            seconds = call()
            if turn:
                found[name].append(seconds)
    return {name: Times(tuple(values)) for name, values in found.items()}

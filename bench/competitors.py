"""What ships 8-bit models today, each behind one function: a float model and data in, a call out.

A function raises `Unavailable` with the reason where its packages are missing or cannot take the model; the benchmark
then says so and goes on.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Unavailable(Exception):
    """Why a competitor does not take part."""


@dataclass(frozen=True)
class Task:
    """A float model in evaluation mode, what it is run on, and data that looks like it."""

    model: nn.Module
    x: Tensor
    calibration: tuple[Tensor, ...]
    threads: int
    dynamic: bool = False  # ranges of activations are found while it runs


@dataclass(frozen=True)
class Contender:
    """A competitor that is ready to run.

    Args:
        call: runs it once on `x` of the task, and gives the result.
        size: bytes of what would be deployed.
        load: seconds from its file, or from the float model where there is none, to the first result.
    """

    call: Callable[[], Any]
    size: int
    load: float


def _weights(model: nn.Module) -> int:
    return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))


def _file(save: Callable[[io.BytesIO], object]) -> int:
    stream = io.BytesIO()
    save(stream)
    return stream.tell()


def _from_torch(model: Any, task: Task, size: int, load: Callable[[], object] | None = None) -> Contender:
    def call() -> object:
        with torch.no_grad():
            return model(task.x)

    start = time.perf_counter()
    if load is not None:
        load()
    call()
    return Contender(call, size, time.perf_counter() - start)


def float32(task: Task) -> Contender:
    """torch, as it is."""
    return _from_torch(task.model, task, _weights(task.model))


def compiled_float32(task: Task) -> Contender:
    """torch.compile with its own compiler."""
    torch._dynamo.reset()
    try:
        return _from_torch(torch.compile(task.model), task, _weights(task.model))
    except Exception as error:
        raise Unavailable(f"torch.compile: {_first_line(error)}") from error


def torch_ao(task: Task) -> Contender:
    """The deprecated stack at its best: graph mode, traced, frozen; the quicker of its two engines."""
    from torch.ao.quantization import QConfigMapping, default_dynamic_qconfig, get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    before = torch.backends.quantized.engine
    best: Contender | None = None
    best_time = float("inf")
    reason = ""
    for engine in ("x86", "onednn"):
        torch.backends.quantized.engine = engine
        try:
            mapping = get_default_qconfig_mapping(engine)
            if task.dynamic:
                mapping = QConfigMapping().set_global(default_dynamic_qconfig)
            with torch.no_grad():
                prepared = prepare_fx(copy.deepcopy(task.model), mapping, (task.x,))
                for batch in task.calibration:
                    prepared(batch)
                frozen = torch.jit.freeze(torch.jit.trace(convert_fx(prepared), task.x))
            size = _file(lambda stream, frozen=frozen: torch.jit.save(frozen, stream))
            found = _from_torch(frozen, task, size)
        except Exception as error:
            reason = f"torch.ao {engine}: {_first_line(error)}"
            continue
        seconds = min(_timed(found.call) for _ in range(5))
        if seconds < best_time:
            best, best_time = found, seconds
    torch.backends.quantized.engine = before
    if best is None:
        raise Unavailable(reason)
    return best


def torchao(task: Task) -> Contender:
    """The successor: linear layers with dynamic 8-bit activations, compiled."""
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError as error:
        raise Unavailable(f"torchao is not installed ({_first_line(error)})") from error
    torch._dynamo.reset()
    model = copy.deepcopy(task.model)
    try:
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        return _from_torch(torch.compile(model), task, _weights(task.model) // 4)
    except Exception as error:
        raise Unavailable(f"torchao: {_first_line(error)}") from error


def onnx_runtime(task: Task) -> Contender:
    """ONNX Runtime on a model with quantize and dequantize nodes, or with dynamic operators."""
    try:
        import onnxruntime
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise Unavailable(f"onnxruntime is not installed ({_first_line(error)})") from error
    with tempfile.TemporaryDirectory() as folder, _silence():
        place = pathlib.Path(folder)
        try:
            torch.onnx.export(
                task.model, (task.x,), str(place / "float.onnx"), input_names=["x"], dynamo=True, external_data=False
            )
            with contextlib.suppress(Exception):
                quant_pre_process(str(place / "float.onnx"), str(place / "float.onnx"))
            if task.dynamic:
                quantize_dynamic(place / "float.onnx", place / "int8.onnx", per_channel=True)
            else:

                class Reader(CalibrationDataReader):
                    def __init__(self) -> None:
                        self.batches: Iterator[dict[str, Any]] = iter([{"x": b.numpy()} for b in task.calibration])

                    def get_next(self) -> Any:
                        return next(self.batches, None)

                quantize_static(
                    place / "float.onnx",
                    place / "int8.onnx",
                    Reader(),
                    per_channel=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                )
        except Exception as error:
            raise Unavailable(f"ONNX Runtime: {_first_line(error)}") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = task.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        start = time.perf_counter()
        session = onnxruntime.InferenceSession(str(place / "int8.onnx"), options)
        feed = {session.get_inputs()[0].name: task.x.numpy()}
        session.run(None, feed)
        load = time.perf_counter() - start
        size = (place / "int8.onnx").stat().st_size
    return Contender(lambda: session.run(None, feed)[0], size, load)


def openvino(task: Task) -> Contender:
    """OpenVINO with a model quantized by NNCF (dynamic: weights in 8 bits, activations as the plugin chooses)."""
    try:
        import nncf
        import openvino as ov
    except ImportError as error:
        raise Unavailable(f"openvino or nncf is not installed ({_first_line(error)})") from error
    with tempfile.TemporaryDirectory() as folder, _silence():
        place = pathlib.Path(folder)
        try:
            converted = ov.convert_model(task.model, example_input=task.x, input=[task.x.shape])
            data = nncf.Dataset([b.numpy() for b in task.calibration])
            transformer = any(isinstance(m, nn.LayerNorm) for m in task.model.modules())
            kind = {"model_type": nncf.ModelType.TRANSFORMER} if transformer else {}
            quantized = nncf.quantize(converted, data, subset_size=len(task.calibration), **kind)
            ov.save_model(quantized, place / "int8.xml", compress_to_fp16=False)
        except Exception as error:
            raise Unavailable(f"OpenVINO: {_first_line(error)}") from error
        options = {"INFERENCE_NUM_THREADS": task.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        start = time.perf_counter()
        compiled = ov.Core().compile_model(place / "int8.xml", "CPU", options)
        request = compiled.create_infer_request()
        x = task.x.numpy()
        request.infer([x])
        load = time.perf_counter() - start
        size = sum((place / f"int8.{end}").stat().st_size for end in ("xml", "bin"))
    return Contender(lambda: request.infer([x], share_inputs=True, share_outputs=True)[0], size, load)


COMPETITORS: dict[str, Callable[[Task], Contender]] = {
    "torch float32": float32,
    "torch.compile float32": compiled_float32,
    "torch.ao jit": torch_ao,
    "torchao compiled": torchao,
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": openvino,
}


def cosine(result: Any, floats: Tensor) -> float:
    """How alike a result is to that of the float model, over all of it."""
    found = torch.as_tensor(np.asarray(result)).flatten().double()
    return float(nn.functional.cosine_similarity(found, floats.flatten().double(), 0))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Exporters talk a lot."""
    logging.disable(logging.WARNING)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            yield
    finally:
        logging.disable(logging.NOTSET)

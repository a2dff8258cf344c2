"""Models through other runtimes and quantizers: what tests and the matrix of docs/interchange.md compare with."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import openvino
import torch
from interchange_models import Case, case
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from torch import Tensor, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

# ------------------------------------------------------------------------------------------------------------- runtimes


def session(path: Path, optimized: Path | None = None) -> Any:
    """One that computes products with small weights in float, as the file says."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(running: Any, inputs: tuple[Tensor, ...]) -> Any:
    names = [value.name for value in running.get_inputs()]
    return running.run(None, dict(zip(names, (x.numpy() for x in inputs))))[0]


def by_onnx_runtime(path: Path, inputs: tuple[Tensor, ...]) -> Any:
    return _run(session(path), inputs)


def as_the_file_says(path: Path, inputs: tuple[Tensor, ...]) -> Any:
    """What ONNX Runtime computes without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _run(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]), inputs)


def by_openvino(path: Path, inputs: tuple[Tensor, ...]) -> Any:
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "INFERENCE_NUM_THREADS": 1}
    return openvino.Core().compile_model(str(path), "CPU", exact)([x.numpy() for x in inputs])[0]


# ----------------------------------------------------------------------------------------------------------- quantizers


@functools.cache
def _float_bytes(name: str) -> bytes:
    given = case(name)
    names = [f"input_{i}" for i in range(len(given.example))]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        is_recurrent = any(isinstance(module, nn.RNNBase) for module in given.model.modules())
        options: Any = {"dynamo": False} if is_recurrent else {"dynamo": True, "external_data": False, "verbose": False}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "float.onnx")
            torch.onnx.export(given.model, given.example, str(path), input_names=names, **options)
            return path.read_bytes()


def float_file(name: str, path: Path) -> Path:
    """The model as PyTorch's exporter writes it, once."""
    path.write_bytes(_float_bytes(name))
    return path


class CalibrationData(CalibrationDataReader):
    """Batches of a case, as ONNX Runtime asks for them."""

    def __init__(self, given: Case) -> None:
        names = [f"input_{i}" for i in range(len(given.example))]
        count = given.example[0].shape[0]
        feeds = [dict(zip(names, (t[:count].numpy() for t in batch))) for batch in given.calibration]
        self.feeds = iter(feeds)

    def get_next(self) -> Any:
        return next(self.feeds, None)


def quantized_by_onnx_runtime(name: str, folder: Path, activations: Any = QuantType.QUInt8) -> Path:
    """A file of ONNX Runtime's own quantizer, static or dynamic as the case is."""
    given, source, path = case(name), float_file(name, folder / "float.onnx"), folder / "quantized.onnx"
    if given.mode == "dynamic":
        quantize_dynamic(source, path, per_channel=True)
    else:
        types = {"activation_type": activations, "weight_type": QuantType.QInt8}
        quantize_static(source, path, CalibrationData(given), per_channel=True, **types)
    return path


def quantized_by_nncf(name: str, folder: Path) -> Path:
    import nncf

    given, path = case(name), folder / "nncf.onnx"
    source = onnx.load(float_file(name, folder / "float.onnx"))
    onnx.save(nncf.quantize(source, nncf.Dataset(list(CalibrationData(given).feeds))), path)
    return path


def x86_quantizer() -> Any:
    return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())


def x86_dynamic_quantizer() -> Any:
    config = x86.get_default_x86_inductor_quantization_config(is_dynamic=True)
    return x86.X86InductorQuantizer().set_global(config)


def xnnpack_quantizer() -> Any:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


def converted(given: Case, quantizer: Any) -> Any:
    """A graph that torchao quantized."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        prepared = prepare_pt2e(torch.export.export(given.model, given.example).module(), quantizer)
        for batch in given.calibration:
            prepared(*(t[: x.shape[0]] for t, x in zip(batch, given.example)))
        return convert_pt2e(prepared)

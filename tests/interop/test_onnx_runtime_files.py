"""Files that ONNX Runtime's own quantizers and its optimizer write: imported on integers, with the same results."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from interchange_models import case, step_of
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ways import CalibrationData, as_the_file_says, float_file

import zeropoint

U8, S8 = QuantType.QUInt8, QuantType.QInt8
MOST_STEPS = 6.0  # a rounding that falls otherwise, spread by the layers behind it, of models with random weights
_ALL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def static(name: str, folder: Path, form: Any, activations: Any, weights: Any, **options: Any) -> Path:
    source, path = float_file(name, folder / "float.onnx"), folder / "quantized.onnx"
    types = {"quant_format": form, "activation_type": activations, "weight_type": weights}
    quantize_static(source, path, CalibrationData(case(name)), **types, **options)
    return path


def dynamic(name: str, folder: Path, weights: Any) -> Path:
    model = onnx.load(float_file(name, folder / "float.onnx"))
    del model.graph.value_info[:]  # shapes of before, which the quantizer takes for those of what it writes
    onnx.save(model, folder / "plain.onnx")
    quantize_dynamic(folder / "plain.onnx", folder / "quantized.onnx", weight_type=weights)
    return folder / "quantized.onnx"


def small(name: str, folder: Path, bits: int, symmetric: bool, form: Any) -> Path:
    model = onnx.load(float_file(name, folder / "float.onnx"))
    kinds = ("MatMul", "Gather") if form is QuantFormat.QOperator else ("MatMul",)
    options: dict[str, Any] = {"bits": bits, "block_size": 32, "is_symmetric": symmetric, "quant_format": form}
    quantizer = MatMulNBitsQuantizer(model, op_types_to_quantize=kinds, **options)
    quantizer.process()
    quantizer.model.save_model_to_file(str(folder / "quantized.onnx"))
    return folder / "quantized.onnx"


def optimized(write: Any, name: str, folder: Path, *options: Any) -> Path:
    """A file as ONNX Runtime saves it once it has optimized it for this machine."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level, settings.log_severity_level = _ALL, 4
    settings.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(str(write(name, folder, *options)), settings, providers=["CPUExecutionProvider"])
    return folder / "optimized.onnx"


OPERATORS, PAIRS = QuantFormat.QOperator, QuantFormat.QDQ
# How a file is written, of which model, and how many of its layers are computed on integers.
FILES: dict[str, tuple[Any, str, tuple[Any, ...], int]] = {
    "operators": (static, "ResNet", (OPERATORS, U8, S8), 16),
    "operators, signed": (static, "MiniLM, static", (OPERATORS, S8, S8), 17),
    "operators, joined": (static, "U-Net", (OPERATORS, U8, U8), 11),
    "pairs, 4-bit weights": (static, "MiniLM, static", (PAIRS, U8, QuantType.QInt4), 17),
    "pairs, 16 bits": (static, "MiniLM, static", (PAIRS, QuantType.QUInt16, S8), 13),
    "dynamic convolutions": (dynamic, "ResNet", (U8,), 16),
    "dynamic layers": (dynamic, "MiniLM, dynamic", (S8,), 13),
    "small weights": (small, "MiniLM, dynamic", (4, False, OPERATORS), 13),
    "small weights, 8 bits": (small, "MiniLM, dynamic", (8, True, OPERATORS), 13),
    "small weights in pairs": (small, "LSTM", (4, True, PAIRS), 4),
    "optimized, dynamic LSTM": (functools.partial(optimized, dynamic), "LSTM", (S8,), 4),
}  # fmt: skip
_ON_INTEGERS = (
    "zeropoint.conv",
    "zeropoint.linear",
    "zeropoint.matmul",
    "zeropoint.weight_only",
    "zeropoint.quantized_",
)


# A file takes seconds.
QUICK = ("operators", "dynamic convolutions", "small weights in pairs")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name not in QUICK)) for name in FILES]
)
def test_files_of_onnx_runtime_are_computed_on_their_integers(name: str, tmp_path: Path) -> None:
    write, model_name, options, layers = FILES[name]
    path, given = write(model_name, tmp_path, *options), case(model_name)
    model = zeropoint.from_onnx(path, given.example)
    targets = [str(node.target) for node in model.graph_module.graph.nodes]
    assert sum(target.startswith(_ON_INTEGERS) for target in targets) == layers
    expected = as_the_file_says(path, given.example)
    with torch.no_grad():
        made = model(*given.example)
    assert np.abs(made.numpy() - expected).max() <= MOST_STEPS * step_of(expected)
    assert torch.equal(zeropoint.compile(model, given.example)(*given.example), made)


@pytest.mark.parametrize(
    ("name", "kind"), [("dynamic convolutions", "int8, dynamic"), ("small weights", "int4 weights")]
)
def test_summaries_call_layers_by_their_names(name: str, kind: str, tmp_path: Path) -> None:
    write, model_name, options, layers = FILES[name]
    summary = zeropoint.from_onnx(write(model_name, tmp_path, *options), case(model_name).example).summary()
    assert summary.counts()[kind] == layers
    assert {row.operator for row in summary.rows if row.precision == kind} <= {"conv2d", "linear"}

"""Files that ONNX Runtime's quantizers write, as programs and in ONNX Runtime: the same file, the same inputs.

With ZEROPOINT_ONNX_PROVIDER, the library of ``make onnx-provider``, also the program inside a session.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import zeropoint
from bench import models
from bench.timing import CALL, Row, made_late

# What is made, its input, and the formats: MatMulNBits is for MatMul, not Gemm. ONNX Runtime's quantizers write dynamic
# LSTMs only, and no GRUs.
_STATIC = ("QDQ", "QOperator", "dynamic")
_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[str, ...]]] = {
    "ResNet-18 224x224": (models.resnet18, (1, 3, 224, 224), _STATIC),
    "MLP 784-512-512-10, batch 16": (models.mlp, (16, 784), _STATIC),
    "LSTM voice encoder, 160 frames": (models.VoiceEncoder, (1, 160, 40), ("dynamic",)),
    "GRU voice encoder, 160 frames": (models.VoiceEncoderGru, (1, 160, 40), ("export_onnx",)),
    "MiniLM encoder, 128 tokens": (models.encoder, (1, 128, 384), (*_STATIC, "MatMulNBits")),
}
_SAMPLES = 8
_PROVIDER = "ZeropointExecutionProvider"


def rows() -> Iterator[Row]:
    for name, (make, shape, forms) in _MODELS.items():
        for form in forms:
            yield made_late(f"{name}, {form}", _row, make, shape, form, alike=form)


def _row(make: Callable[[], nn.Module], shape: tuple[int, ...], form: str) -> Row:
    import onnxruntime

    torch.manual_seed(0)
    model, data = make().eval(), [torch.randn(shape) for _ in range(_SAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        source, path, held = (Path(folder) / f"{name}.onnx" for name in ("float", "quantized", "held"))
        torch.onnx.export(model, (data[0],), str(source), input_names=["x"], dynamo=False)
        prepared = Path(folder) / "prepared.onnx"
        from onnxruntime.quantization.shape_inference import quant_pre_process

        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        _FORMATS[form](prepared, path, data)
        program = zeropoint.compile(zeropoint.from_onnx(path, (data[0],)), (data[0],))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # between the calls of others
        peers = {
            "onnxruntime": _call(onnxruntime.InferenceSession(str(path), options), data[0]),
            "onnxruntime float32": _call(onnxruntime.InferenceSession(str(source), options), data[0]),
        }
        library = os.environ.get("ZEROPOINT_ONNX_PROVIDER")
        if library:
            zeropoint.export_onnx(program, None, held, runtime="zeropoint")
            peers["onnxruntime with the provider"] = _call(_provided(library, held), data[0])
    x = data[0].numpy()
    return Row("", lambda: program(x), peers, {"onnxruntime": 1.0})


def _call(session: Any, x: Tensor) -> CALL:
    given = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, given)


def _provided(library: str, path: Path) -> Any:
    import onnxruntime

    if not any(device.ep_name == _PROVIDER for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library("zeropoint", library)
    options = onnxruntime.SessionOptions()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == _PROVIDER]
    options.add_provider_for_devices(devices, {"num_threads": str(torch.get_num_threads())})
    return onnxruntime.InferenceSession(str(path), options)


# -------------------------------------------------------------------------------------------------------------- formats


def _static(form: str) -> Callable[[Path, Path, list[Tensor]], None]:
    def write(source: Path, path: Path, data: list[Tensor]) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Data(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.left = iter(data)

            def get_next(self) -> Any:
                x = next(self.left, None)
                return None if x is None else {"x": x.numpy()}

        kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True}
        quantize_static(source, path, Data(), quant_format=getattr(QuantFormat, form), **kinds)

    return write


def _dynamic(source: Path, path: Path, data: list[Tensor]) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(source)
    kind = QuantType.QUInt8 if any(node.op_type == "Conv" for node in model.graph.node) else QuantType.QInt8
    del model.graph.value_info[:]  # shapes of before, which the quantizer takes for those of what it writes
    onnx.save(model, source)
    quantize_dynamic(source, path, weight_type=kind)


def _small(source: Path, path: Path, data: list[Tensor]) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))


def _exported(source: Path, path: Path, data: list[Tensor]) -> None:
    model = zeropoint.to_int8(zeropoint.from_onnx(source), (data[0],), mode="dynamic", progress=False)
    zeropoint.export_onnx(model, (data[0],), path, runtime="onnxruntime")


_FORMATS: dict[str, Callable[[Path, Path, list[Tensor]], None]] = {
    "QDQ": _static("QDQ"),
    "QOperator": _static("QOperator"),
    "dynamic": _dynamic,
    "MatMulNBits": _small,
    "export_onnx": _exported,
}

"""ONNX Runtime: a model with quantize and dequantize nodes, or with dynamic operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Call, Task, Unavailable, first_line, quietly

__all__ = ["load", "write"]


def write(task: Task, folder: Path) -> Path:
    """Export to ONNX, quantize with its own tools, weights per channel."""
    import torch

    try:
        import onnxscript  # noqa: F401  # torch's exporter needs it
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise Unavailable(f"ONNX Runtime is not installed ({first_line(error)})") from error
    source, path = folder / "float.onnx", folder / "int8.onnx"
    names = [f"input_{i}" for i in range(len(task.inputs))]

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            feeds = [dict(zip(names, (x.numpy() for x in batch))) for batch in task.calibration]
            self.feeds: Iterator[dict[str, Any]] = iter(feeds)

        def get_next(self) -> Any:
            return next(self.feeds, None)

    with quietly():
        try:
            torch.onnx.export(task.model, task.inputs, str(source), input_names=names, dynamo=True, external_data=False)
            with contextlib.suppress(Exception):
                quant_pre_process(str(source), str(source))
            if task.dynamic:
                quantize_dynamic(source, path, per_channel=True)
            else:
                kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
                quantize_static(source, path, Reader(), per_channel=True, **kinds)
        except Exception as error:
            raise Unavailable(f"ONNX Runtime: {first_line(error)}") from error
    return path


def load(path: Path, inputs: Arrays, threads: int) -> Call:
    """A session whose threads do not spin between calls, where they would take time from whose turn is next."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options)
    feed = dict(zip((i.name for i in session.get_inputs()), inputs))
    return lambda: session.run(None, feed)[0]

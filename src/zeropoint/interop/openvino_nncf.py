"""OpenVINO, with a model quantized by NNCF (dynamic: weights in 8 bits, activations as the plugin chooses)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Call, Task, Unavailable, first_line, quietly

__all__ = ["load", "write"]


def write(task: Task, folder: Path) -> Path:
    """Convert, quantize, save; weights are in a second file beside the first."""
    from zeropoint.graph.policy import evidence_in
    from zeropoint.graph.quantize_fx import float_graph

    try:
        import nncf
        import openvino
    except ImportError as error:
        raise Unavailable(f"OpenVINO with NNCF is not installed ({first_line(error)})") from error
    path = folder / "int8.xml"
    with quietly():
        try:
            converted = openvino.convert_model(**_source(task))
            data = nncf.Dataset([[x.numpy() for x in batch] for batch in task.calibration])
            attends = evidence_in(float_graph(task.model, task.inputs)).attention
            kind = {"model_type": nncf.ModelType.TRANSFORMER} if attends else {}
            quantized = nncf.quantize(converted, data, subset_size=len(task.calibration), **kind)
            openvino.save_model(quantized, path, compress_to_fp16=False)
        except Exception as error:
            raise Unavailable(f"OpenVINO: {first_line(error)}") from error
    return path


def _source(task: Task) -> dict[str, Any]:
    """What is converted: a module is traced, a graph of torch.export is taken as it is."""
    import torch

    from zeropoint.graph.frontends.export import is_exported

    if is_exported(task.model):
        return {"input_model": torch.export.export(task.model, task.inputs)}
    shapes = [x.shape for x in task.inputs]
    return {"input_model": task.model, "example_input": task.inputs, "input": shapes}


def load(path: Path, inputs: Arrays, threads: int) -> Call:
    """A compiled model that answers one request after the other."""
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
    given = list(inputs)
    return lambda: request.infer(given, share_inputs=True, share_outputs=True)[0]

"""zeropoint export"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, Data, Samples, load_tensors
from zeropoint.cli.models import Model, Pickle, load_model
from zeropoint.cli.output import AsJson, show, work
from zeropoint.progress import during

__all__ = ["export"]


class Runtime(str, Enum):
    """Whom the file is for."""

    onnx = "onnx"
    onnxruntime = "onnxruntime"
    openvino = "openvino"


def export(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file.")],
    runtime: Annotated[Runtime, typer.Option("--runtime", "-r", help="Target runtime.")] = Runtime.onnx,
    batch: Batch = 8,
    samples: Samples = 8,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Export a quantized model to ONNX. The first samples of DATA set the input shapes.

    Example: `zeropoint export resnet18.int8.pt2 --data images.npy -o resnet18.onnx`
    """
    if output.suffix != ".onnx":
        raise typer.BadParameter(f"output must end in .onnx, got {output}")
    with work(as_json):
        with during(f"reading {model}", progress=True):
            source = _quantized(model, pickle)
            example = load_tensors(data, source, batch, samples)[0]
        from zeropoint.interop.onnx.export import export_onnx

        with during(f"writing {output}", progress=True):
            export_onnx(source, example, output, runtime=runtime.value)
        size = output.stat().st_size
        show(f"wrote {output}, {size} bytes", {"output": str(output), "bytes": size}, as_json)


def _quantized(text: str, pickle: bool) -> Any:
    if Path(text).suffix == ".zpt":
        raise ValueError(
            f"{text} is a program: its steps are joined, and its weights lie as our kernels read them. Export the model"
            " it was compiled from: zeropoint quantize MODEL -o model.pt2, then zeropoint export model.pt2"
        )
    return load_model(text, pickle)

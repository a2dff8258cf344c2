"""zeropoint export"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, Samples, checked_data, load_tensors
from zeropoint.cli.models import Pickle, load_model
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import writable
from zeropoint.progress import during
from zeropoint.runtime import Program

__all__ = ["export"]


class Runtime(str, Enum):
    """Whom the file is for."""

    onnx = "onnx"
    onnxruntime = "onnxruntime"
    openvino = "openvino"
    zeropoint = "zeropoint"


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A quantized .pt2 or TorchScript file, a .zpt program, or code.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file.", callback=writable(".onnx"))],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DATA",
            help="Samples that set the input shapes of a model.",
            callback=checked_data,
        ),
    ] = None,
    runtime: Annotated[Runtime, typer.Option("--runtime", "-r", help="Target runtime.")] = Runtime.onnx,
    batch: Batch = 8,
    samples: Samples = 8,
    pickle: Pickle = False,
    as_json: AsJson = False,
) -> None:
    """Export a quantized model or a program to ONNX.

    The first samples of DATA set the input shapes of a model. A program needs no data.

    Example: `zeropoint export resnet18.int8.pt2 --data images.npy -o resnet18.onnx`, or
    `zeropoint export resnet18.zpt -o resnet18.onnx`
    """
    with work(as_json):
        with during(f"reading {model}", progress=True):
            source = load_model(model, pickle)
            example = _example(model, source, data, batch, samples)
        from zeropoint.interop.onnx.export import export_onnx

        with during(f"writing {output}", progress=True):
            export_onnx(source, example, output, runtime=runtime.value)
        size = output.stat().st_size
        show(f"wrote {output}, {size} bytes", {"output": str(output), "bytes": size}, as_json)


def _example(model: str, source: Any, data: str | None, batch: int, samples: int) -> Any:
    if isinstance(source, Program):
        if data is not None:
            raise typer.BadParameter(f"{model} is a program with its own example: omit --data")
        return None
    if data is None:
        raise typer.BadParameter(f"{model} is not a .zpt program: pass sample inputs with --data")
    return load_tensors(data, source, batch, samples)[0]

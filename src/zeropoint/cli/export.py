"""zeropoint export"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.data import Batch, Samples, checked_data, load_tensors
from zeropoint.cli.models import Pickle, load_model
from zeropoint.cli.output import AsJson, show, work
from zeropoint.cli.paths import existing, require_other, writable
from zeropoint.progress import during
from zeropoint.runtime import Program


class Runtime(str, Enum):
    """Whom the file is for."""

    onnx = "onnx"
    onnxruntime = "onnxruntime"
    openvino = "openvino"
    zeropoint = "zeropoint"


def export(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A quantized .pt2, TorchScript or .onnx file, a .zpt program, or code."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The .onnx file; .gguf for the program of a language model.",
            callback=writable(".onnx", ".gguf"),
        ),
    ],
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
    """Export a quantized model or a program to ONNX, or the program of a language model to GGUF.

    The first samples of DATA set the input shapes of a model. A program needs no data. For `--runtime zeropoint`, an
    ONNX file that does not fix its sizes is tried with some.

    Example: `zeropoint export resnet18.int8.pt2 --data images.npy -o resnet18.onnx`, or
    `zeropoint export resnet18.zpt -o resnet18.onnx`
    """
    with work(as_json):
        if output.suffix == ".gguf":
            _to_gguf(model, output, data, as_json)
            return
        with during(f"reading {model}", progress=True):
            source, example = _source(model, data, batch, samples, runtime, pickle)
        from zeropoint.interop.onnx.export import export_onnx

        with during(f"writing {output}", progress=True):
            export_onnx(source, example, output, runtime=runtime.value)
        told: dict[str, Any] = {"output": str(output), "bytes": output.stat().st_size}
        text = f"wrote {output}, {told['bytes']} bytes"
        if runtime is Runtime.zeropoint:
            told |= _operators(output)
            left = ", ".join(f"{name} ({count} x)" for name, count in told["others"].items())
            text += f": {told['programs']} programs" + (f", and for other providers {left}" if left else "")
        show(text, told, as_json)


def _to_gguf(model: str, output: Path, data: str | None, as_json: bool) -> None:
    """Write the GGUF file of a language model's program."""
    from zeropoint.generation import export_gguf

    path = existing(model)
    require_other(output, model)
    if data is not None:
        raise typer.BadParameter("a GGUF file needs no samples: omit --data")
    with during(f"writing {output}", progress=True):
        facts = export_gguf(path, output)
    formats = ", ".join(f"{count} {form}" for form, count in facts["formats"].items())
    show(f"wrote {output}, {facts['bytes']} bytes: {formats}", {"output": str(output), **facts}, as_json)


def _source(model: str, data: str | None, batch: int, samples: int, runtime: Runtime, pickle: bool) -> tuple[Any, Any]:
    """What is exported, and an example of its inputs; None where it needs none."""
    if runtime is Runtime.zeropoint and model.endswith(".onnx"):
        from zeropoint.interop.onnx.partition import OnnxFile

        path = existing(model)
        return path, None if data is None else load_tensors(data, OnnxFile(path), batch, samples)[0]
    source = load_model(model, pickle)
    if isinstance(source, Program):
        if data is not None:
            raise typer.BadParameter(f"{model} is a program with its own example: omit --data")
        return source, None
    if data is None:
        raise typer.BadParameter(f"{model} is not a .zpt program: pass sample inputs with --data")
    return source, load_tensors(data, source, batch, samples)[0]


def _operators(path: Path) -> dict[str, Any]:
    """How many programs a file has, and which other operators."""
    import onnx

    kinds = Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)
    return {"programs": kinds.pop("EPContext", 0), "others": dict(kinds.most_common())}

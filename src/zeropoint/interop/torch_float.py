"""torch on float32: as it is, and compiled; and torchao, which needs that compiler, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zeropoint.interop.tasks import Arrays, Ready, Task, Unavailable, first_line


def write(task: Task, folder: Path) -> Path:
    """The module itself; where it cannot be pickled, a file of torch.export."""
    import torch

    path = folder / "float.pt"
    try:
        if isinstance(task.model, torch.jit.ScriptModule):
            torch.jit.save(task.model, str(path.with_suffix(".torchscript")))
            return path.with_suffix(".torchscript")
        torch.save(task.model, path)
        return path
    except Exception:
        path.unlink(missing_ok=True)
    try:
        with torch.no_grad():
            torch.export.save(torch.export.export(task.model, task.inputs), path.with_suffix(".pt2"))
    except Exception as error:
        raise Unavailable(f"torch: {first_line(error)}") from error
    return path.with_suffix(".pt2")


def load(path: Path, inputs: Arrays, threads: int) -> Ready:
    """What is in the file, as it is."""
    return _ready(_model(path, threads), inputs, "float32, eager")


def load_compiled(path: Path, inputs: Arrays, threads: int) -> Ready:
    """torch.compile with its own compiler; as it is by default, or with the search that it has for CPUs."""
    import torch

    return _ready(torch.compile(_model(path, threads)), inputs, "float32, torch.compile with inductor")


def write_torchao(task: Task, folder: Path) -> Path:
    """The float module: torchao quantizes it where it runs."""
    try:
        import torchao  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"torchao is not installed ({first_line(error)})") from error
    path = write(task, folder)
    if task.weight_bits is not None:
        path = path.rename(path.with_name(f"int{task.weight_bits}-{path.name}"))
    return path


def load_torchao(path: Path, inputs: Arrays, threads: int) -> Ready:
    """torch.ao's successor: linear layers with dynamic 8-bit activations, or 8-bit weights only, compiled."""
    import torch
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_

    model = _model(path, threads)
    if path.name.startswith("int4"):
        raise ValueError("torchao supports 4-bit weights on CPUs only with packages that are not installed")
    only = path.name.startswith("int8")
    quantize_(model, Int8WeightOnlyConfig() if only else Int8DynamicActivationInt8WeightConfig())
    kind = "8-bit weights" if only else "8-bit weights, dynamic activations"
    return _ready(torch.compile(model), inputs, f"{kind}, linear layers only, torch.compile")


def _model(path: Path, threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()
    if path.suffix == ".torchscript":
        return torch.jit.load(str(path))
    return torch.load(path, weights_only=False)  # which this process's parent wrote


def _ready(model: Any, inputs: Arrays, setting: str) -> Ready:
    import torch

    tensors = tuple(map(torch.from_numpy, inputs))

    def call() -> Any:
        with torch.inference_mode():
            return model(*tensors)

    return Ready(call, setting)

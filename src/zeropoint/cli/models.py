"""Models from files and from code."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from zeropoint.cli.named import is_named, named
from zeropoint.cli.paths import existing

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .pt2, .onnx or TorchScript file, or package.module:factory.")
]
Pickle = Annotated[
    bool, typer.Option("--pickle", help="Also load pickled objects. They can execute code: use only trusted files.")
]


def load_model(text: str, pickle: bool = False) -> Any:
    """A model in evaluation mode: a module, a ScriptModule, or, for a .zpt file, a program that needs no torch."""
    if is_named(text):
        return _made(text)
    path = existing(text)
    if path.suffix == ".zpt":
        from zeropoint import runtime

        return runtime.load(path)  # takes and gives arrays
    if path.suffix.lower() == ".gguf":
        raise ValueError(
            f"{text} is a language model: make a program of it, with zeropoint quantize {text} -o model.zpt"
        )
    if path.suffix == ".onnx":
        from zeropoint.interop.onnx.model import from_onnx

        return from_onnx(path)
    import torch

    import zeropoint.ops  # noqa: F401  # operators that a quantized file calls

    if path.suffix == ".pt2":
        return load_exported(path, pickle).module()
    if is_torchscript(path):
        return torch.jit.load(str(path)).eval()
    if not pickle:
        raise ValueError(
            f"{text} is neither a torch.export nor a TorchScript file. If it is a pickled model that you trust, "
            "pass --pickle; if it is a checkpoint, write a function that creates the model and loads the "
            "checkpoint, and pass package.module:function"
        )
    return _evaluated(torch.load(path, weights_only=False), text)


def load_float(text: str, pickle: bool = False) -> Any:
    """The same for what is to be quantized."""
    if text.endswith(".zpt"):
        raise ValueError(f"{text} is a program: it is quantized already. Pass the model that it was made from")
    return load_model(text, pickle)


def load_exported(path: Path, pickle: bool) -> Any:
    """What torch.export saved; by PyTorch's own reader, which can execute code, only where `pickle` allows it."""
    import torch

    from zeropoint.interop import exported_file

    return torch.export.load(path) if pickle else exported_file.load_exported(path)


def _made(text: str) -> Any:
    from torch import nn

    found = named(text)
    return _evaluated(found if isinstance(found, nn.Module) else found(), text)


def _evaluated(found: Any, text: str) -> Any:
    from torch import nn

    from zeropoint.graph.frontends.export import is_exported

    if not isinstance(found, nn.Module):
        raise ValueError(f"{text} must be a module or a function that returns one, got a {type(found).__name__}")
    return found if is_exported(found) else found.eval()


def is_torchscript(path: Path) -> bool:
    """Whether a file is what torch.jit.save writes."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def is_script(model: Any) -> bool:
    """Whether a model is TorchScript."""
    import torch

    return isinstance(model, torch.jit.ScriptModule)


def input_names(model: Any) -> list[str]:
    """The names of what a model is called with."""
    if hasattr(model, "inputs"):  # a program
        return [name for name, _, _ in model.inputs]
    if is_script(model):
        return [argument.name for argument in model.forward.schema.arguments if argument.name != "self"]
    if hasattr(model, "input_names"):  # an ONNX file
        return list(model.input_names)
    import inspect

    return list(inspect.signature(model.forward).parameters)


def fixed_batch(model: Any) -> int | None:
    """The size of the first axis of the first input, where a .pt2 file or a program fixes it."""
    shape = next(iter(input_shapes(model)), ())
    return shape[0] if shape and isinstance(shape[0], int) else None


def input_shapes(model: Any) -> list[tuple[Any, ...]]:
    """The shape of each input, if a file fixes them; a free size is no integer. Code says none."""
    if hasattr(model, "inputs"):  # a program
        return [shape for _, _, shape in model.inputs]
    if hasattr(model, "input_names"):  # an ONNX file
        shapes = [tuple(n if isinstance(n, int) and n > 0 else "" for n in s or ()) for s in model.input_shapes or ()]
        return shapes if all(shapes) else []
    from zeropoint.graph.frontends.export import is_exported
    from zeropoint.graph.workflow import Quantized

    if isinstance(model, Quantized):
        model = model.graph_module
    elif not is_exported(model):
        return []
    values = [node.meta.get("val") for node in model.graph.nodes if node.op == "placeholder"]
    shapes = [tuple(getattr(value, "shape", ())) for value in values]
    return shapes if all(shapes) else []

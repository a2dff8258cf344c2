"""TorchScript files of the old stack, on our operators.

Such a file holds code, which names PyTorch's operators and its classes of packed weights, and the objects.
`load_script` reads it with other names in it: those of `zeropoint.compat.scripted`.
"""

from __future__ import annotations

import functools
import io
import os
import re
import zipfile
from typing import IO, Any

import torch

from zeropoint.compat import script, scripted
from zeropoint.compat.changes import Changes
from zeropoint.compat.objects import PREFIX
from zeropoint.nn.quantized.storage import quantized
from zeropoint.tensor.script_files import without_qtensors

_OURS = f"__torch__.{scripted.__name__}"
# PyTorch's classes of packed weights -> ours.
_CLASSES = {
    "quantized.LinearPackedParamsBase": "LinearPackedParams",
    "quantized.Conv2dPackedParamsBase": "ConvPackedParams",
    "quantized.Conv3dPackedParamsBase": "ConvPackedParams",
}
_OPERATOR = re.compile(r"\bops\.quantized\.(\w+)\(")
_FUNCTION = re.compile(r"\btorch\.(quantize_per_tensor|quantize_per_channel|quantize_per_tensor_dynamic)\(")
_DTYPE = re.compile(rf"(\bops\.{script.NAMESPACE}\.quantize_per_\w+\([^\n]*)ops\.prim\.dtype\(")
_STATE = re.compile(r"( *)def __getstate__\(.*?(?=\n\1def |\nclass |\ndef |\Z)", re.DOTALL)


def load_script(file: str | os.PathLike[str] | IO[bytes], map_location: Any = None) -> torch.jit.ScriptModule:
    """torch.jit.load for a file with quantized layers of torch.ao: they run on zeropoint, and can be saved again.

    It needs a PyTorch that can still read quantized tensors; what is saved afterwards does not, but needs
    ``import zeropoint.compat.script``, as `zeropoint.compat.install` does.

    Raises:
        NotImplementedError: if the file has packed weights of another kind than linear layers and convolutions.
        ValueError: if it is no TorchScript file.

    Example:
        >>> import io, torch, zeropoint.compat
        >>> file = io.BytesIO()
        >>> torch.jit.save(torch.jit.script(torch.nn.ReLU()), file)
        >>> load_script(io.BytesIO(file.getvalue()))(torch.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """
    try:
        with zipfile.ZipFile(file) as archive:
            records = {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{file} is not a TorchScript file: {error}") from None
    with scripted.quietly():
        return torch.jit.load(io.BytesIO(_written(_translated(records))), map_location=map_location)


def explaining(load: Any) -> Any:
    """torch.jit.load, with a word on what it cannot find of the old stack."""

    @functools.wraps(load)
    def explained(*args: Any, **kwargs: Any) -> Any:
        try:
            return load(*args, **kwargs)
        except RuntimeError as error:
            if "quantized::" not in str(error) and PREFIX not in str(error):
                raise
            raise NotImplementedError(
                "this file has quantized operators that PyTorch does not have: load it with"
                " zeropoint.compat.load_script, with a PyTorch that can still read quantized tensors, and save it"
                " again; then it needs zeropoint only."
                f" PyTorch said: {str(error).strip()}"
            ) from error

    return explained


def _saving_a_copy(save: Any) -> Any:
    @functools.wraps(save)
    def saving(self: Any, *args: Any, **kwargs: Any) -> Any:
        return save(without_qtensors(self), *args, **kwargs)

    return saving


def replace_script_saving(changes: Changes) -> None:
    """Let torch.jit.save, and the methods it calls, write modules that hold QTensors, too."""
    for owner in (torch.jit.RecursiveScriptModule, torch.jit.ScriptModule):
        for name in ("save", "save_to_buffer", "_save_for_lite_interpreter", "_save_to_buffer_for_lite_interpreter"):
            if save := vars(owner).get(name):
                changes.attribute(owner, name, _saving_a_copy(save))


def replace_script_loading(changes: Changes) -> None:
    """Let torch.jit.load say what to do with what is gone."""
    changes.attribute(torch.jit, "load", explaining(torch.jit.load))


def _translated(records: dict[str, bytes]) -> dict[str, bytes]:
    """The records of a file, with our names in code and objects."""
    root = next(iter(records)).split("/")[0]
    found, is_changed = {}, False
    for name, content in records.items():
        if name.endswith(".py"):
            new = _code(content.decode()).encode()
        elif name.endswith(".pkl"):
            new = _objects(content)
        else:
            new = content
        is_changed = is_changed or new != content
        if not name.endswith(".debug_pkl"):  # where in the code an error was: not in this code
            found[name] = new
    if not is_changed:
        return records
    return {**found, **{f"{root}/code/{path}": code.encode() for path, code in _support().items()}}


def _code(code: str) -> str:
    for theirs, ours in _CLASSES.items():
        code = re.sub(rf"{re.escape(PREFIX + theirs)}\b", f"{_OURS}.{ours}", code)
    code = _OPERATOR.sub(_operator, code)
    code = _FUNCTION.sub(rf"ops.{script.NAMESPACE}.\1(", code)
    code = code.replace("ops.prim.is_quantized(", f"ops.{script.NAMESPACE}.is_quantized(")
    code = _DTYPE.sub(rf"\1ops.{script.NAMESPACE}.quantized_dtype(", code)
    # What modules of torch.ao write of their weight would be a quantized tensor.
    code = _STATE.sub(lambda m: m[0].replace("(self)._weight_bias()", "(self._packed_params).written()"), code)
    unknown = re.search(rf"{re.escape(PREFIX)}([\w.]+)", code)
    if unknown is not None:
        raise NotImplementedError(
            f"the file has packed weights of the class {unknown[1]}; load_script knows {', '.join(_CLASSES)}. Quantize"
            " the original model with zeropoint, or keep the PyTorch that wrote the file"
        )
    return code


def _operator(found: re.Match[str]) -> str:
    name = found[1]
    if name in scripted.FUNCTIONS:
        return f"{_OURS}.{name}("
    return f"ops.{script.NAMESPACE}.{name}(" if name in script.OPERATORS else found[0]


def _objects(pickled: bytes) -> bytes:
    for theirs, ours in _CLASSES.items():
        module, name = (PREFIX + theirs).rsplit(".", 1)
        pickled = pickled.replace(f"c{module}\n{name}\n".encode(), f"c{_OURS}\n{ours}\n".encode())
    return pickled


@functools.cache
def _support() -> dict[str, str]:
    """The code of our packed weights and functions, as TorchScript writes it: path -> code."""
    buffer = io.BytesIO()
    with scripted.quietly():
        torch.jit.save(scripted.compiled(_Packed()), buffer)
    path = f"{_OURS.replace('.', '/')}.py"
    with zipfile.ZipFile(buffer) as archive:
        classes = next(archive.read(n).decode() for n in archive.namelist() if n.endswith(path))
    functions = {name: scripted.compiled(function) for name, function in scripted.FUNCTIONS.items()}
    functions["_values"] = scripted.compiled(scripted._values)
    codes = [re.sub(r"^def \w+", f"def {name}", function.code, count=1) for name, function in functions.items()]
    return {
        path: "\n".join([classes, *codes]),
        f"__torch__/{quantized.__module__.replace('.', '/')}.py": scripted.compiled(quantized).code,
    }


class _Packed(torch.nn.Module):
    """Uses the classes, for their code."""

    def forward(
        self, a: scripted.LinearPackedParams, b: scripted.ConvPackedParams
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return a.unpack()[0], b.unpack()[0]


def _written(records: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return buffer.getvalue()

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
from zeropoint.compat.old_files import StoredTensor, built, storage_id
from zeropoint.compat.on_device_operators import PLAN
from zeropoint.compat.packed_versions import conv_state, current_code
from zeropoint.compat.pickle_records import (
    Persistent,
    Record,
    is_global,
    named_record,
    read_records,
    write_records,
)
from zeropoint.compat.zip_records import zip_records
from zeropoint.nn.quantized.storage import integers_of, quantized
from zeropoint.ops.rounding import chosen
from zeropoint.regular_file import Allowance
from zeropoint.tensor.script_files import without_qtensors

_OURS = f"__torch__.{scripted.__name__}"
# PyTorch's classes of packed weights -> zeropoint's.
_CLASSES = {
    "quantized.LinearPackedParamsBase": "LinearPackedParams",
    "quantized.Conv2dPackedParamsBase": "ConvPackedParams",
    "quantized.Conv3dPackedParamsBase": "ConvPackedParams",
    "quantized.EmbeddingPackedParamsBase": "EmbeddingPackedParams",
    "rnn.CellParamsBase": "CellParams",
}
_OLD = re.compile(rb"\bops\.quantized\.|torch\.quantize|torch\.classes\.(?:quantized|rnn|sparse)\.|_rebuild_qtensor")
_TYPED = "torch.jit._pickle.restore_type_tag"  # a list or dictionary, and its type in words
_OPERATOR = re.compile(r"\bops\.quantized\.(\w+)\(")
_FUNCTION = re.compile(r"\btorch\.(quantize_per_tensor|quantize_per_channel|quantize_per_tensor_dynamic)\(")
# With a list of states, or none, behind the input it is a padded sequence; with a tensor of sizes a packed one.
_SEQUENCE = re.compile(r"\btorch\.(quantized_(?:lstm|gru))\((\w+), (\[|\w+, \[|\w+, \w+, )")
_DTYPE = re.compile(rf"(\bops\.{script.NAMESPACE}\.quantize_per_\w+\([^\n]*)ops\.prim\.dtype\(")
_STATE = re.compile(r"( *)def __getstate__\(.*?(?=\n\1def |\nclass |\ndef |\Z)", re.DOTALL)


def load_script(file: str | os.PathLike[str] | IO[bytes], map_location: Any = None) -> torch.jit.ScriptModule:
    """torch.jit.load for a file with quantized layers of torch.ao: they run on zeropoint, and can be saved again.

    Quantized tensors in the file are rewritten before PyTorch reads it, so that a PyTorch without them can. What is
    saved afterwards needs ``import zeropoint.compat.script``, as `zeropoint.compat.install` does.

    Raises:
        NotImplementedError: if the file has packed weights of a kind that is not known.
        ValueError: if it is no TorchScript file.

    Example:
        >>> import io, torch, zeropoint.compat
        >>> file = io.BytesIO()
        >>> torch.jit.save(torch.jit.script(torch.nn.ReLU()), file)
        >>> load_script(io.BytesIO(file.getvalue()))(torch.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """
    try:
        with zip_records(file) as archive:
            records = {name: archive.read(name) for name in archive.names}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{file} is not a TorchScript file: {error}") from None
    return _loaded(records, archive.allowance, _plain(torch.jit.load), map_location=map_location)


def _loaded(records: dict[str, bytes], allowance: Allowance, load: Any, **options: Any) -> torch.jit.ScriptModule:
    with scripted.quietly():
        try:
            return load(io.BytesIO(_written(_translated(records, allowance))), **options)
        except RuntimeError as error:
            if "quantized::" not in str(error):
                raise
            raise NotImplementedError(
                "this file has an operator of torch.ops.quantized that zeropoint does not have: quantize the original"
                f" model with zeropoint, or keep the PyTorch that wrote the file. PyTorch said: {str(error).strip()}"
            ) from error


def _plain(load: Any) -> Any:
    """PyTorch's own torch.jit.load."""
    return getattr(load, "__wrapped__", load) if getattr(load, "_reads_old_files", False) else load


def on_our_operators(load: Any) -> Any:
    """torch.jit.load that reads files of the old stack as `load_script` does, and leaves others to PyTorch."""

    @functools.wraps(load)
    def loading(f: Any, *args: Any, **kwargs: Any) -> Any:
        found = _records_of_the_old_stack(f)
        if found is None:
            return _rounded_now(load(f, *args, **kwargs))
        names = ("map_location", "_extra_files", "_restore_shapes")
        records, allowance = found
        return _loaded(records, allowance, load, **dict(zip(names, args)), **kwargs)

    loading._reads_old_files = True  # type: ignore[attr-defined]
    return loading


def _rounded_now(module: Any) -> Any:
    """A module that was scripted under compat: its layers round as the engine that is set now. PyTorch packs again."""
    for part in module.modules():
        if hasattr(part, "_rounding") and hasattr(part, "_weight_zero_points"):
            part._rounding = chosen(
                part._weight_zero_points, getattr(part, "groups", 0), getattr(part, "_output_pads", ())
            )
    return module


def _records_of_the_old_stack(file: Any) -> tuple[dict[str, bytes], Allowance] | None:
    """What is in a file, and the memory left for it, if its code or objects name parts of the old stack."""
    start = file.tell() if hasattr(file, "tell") else 0
    try:
        with zip_records(file) as archive:
            words = {name: archive.read(name) for name in archive.names if name.endswith((".py", ".pkl"))}
            if not any(map(_OLD.search, words.values())):
                return None
            records = {name: words[name] if name in words else archive.read(name) for name in archive.names}
            return records, archive.allowance
    except (zipfile.BadZipFile, OSError, ValueError):
        return None  # PyTorch says what is wrong with it
    finally:
        if hasattr(file, "seek"):
            file.seek(start)


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
    """Let torch.jit.load put files of the old stack on our operators."""
    changes.attribute(torch.jit, "load", on_our_operators(torch.jit.load))


def _translated(records: dict[str, bytes], allowance: Allowance) -> dict[str, bytes]:
    """The records of a file, with our names in code and objects."""
    root = next(iter(records)).split("/")[0]
    found: dict[str, bytes] = {}
    is_changed = False
    for name, content in records.items():
        if name.endswith(".py"):
            new = _code(content.decode(), name).encode()
        elif name.endswith(".pkl"):
            new, memory = _objects(content, records, name.removesuffix(".pkl"), allowance)
            found |= memory
        else:
            new = content
        is_changed = is_changed or new != content
        if not name.endswith(".debug_pkl"):  # where in the code an error was: not in this code
            found[name] = new
    if not is_changed:
        return records
    return {**found, **{f"{root}/code/{path}": code.encode() for path, code in _support().items()}}


def _with_our_classes(text: str) -> str:
    for theirs, ours in _CLASSES.items():
        text = re.sub(rf"{re.escape(PREFIX + theirs)}\b", f"{_OURS}.{ours}", text)
    return text


def _code(code: str, path: str) -> str:
    if PLAN in code:  # it calls our overloads of the old operators
        return code
    code = current_code(code, path, lambda kind: f"{_OURS}.{kind}PackedParams")
    code = _with_our_classes(code)
    code = _OPERATOR.sub(_operator, code)
    code = _SEQUENCE.sub(_sequence, code)
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


def _sequence(found: re.Match[str]) -> str:
    name, data, rest = found.groups()
    is_packed = rest.endswith(", [") or (name == "quantized_gru" and rest.count(",") == 2 and _is_sizes(rest))
    return f"{_OURS}.{name}{'_packed' if is_packed else ''}({data}, {rest}"


def _is_sizes(rest: str) -> bool:
    """Whether the second argument of a GRU is the sizes of a packed sequence, and not its state."""
    return rest.split(",")[0].startswith("batch_sizes")


def _operator(found: re.Match[str]) -> str:
    name = found[1]
    if name in scripted.FUNCTIONS:
        return f"{_OURS}.{name}("
    return f"ops.{script.NAMESPACE}.{name}(" if name in script.OPERATORS else found[0]


def _objects(
    pickled: bytes, records: dict[str, bytes], folder: str, allowance: Allowance
) -> tuple[bytes, dict[str, bytes]]:
    """A pickle of a file with our classes in it and no quantized tensor, and the memory that it needs beside it.

    A quantized tensor becomes a tensor of bytes, which `zeropoint.compat.script.weight_parts` understands.
    """
    if PREFIX.encode() not in pickled and b"_rebuild_qtensor" not in pickled:
        return pickled, {}
    stored = _Stored(records, folder, allowance)
    content = read_records(pickled, stored.found)
    made: dict[int, Any] = {}
    memory: dict[str, bytes] = {}

    def replaced(part: Any) -> Any:
        if is_global(part):
            return _class(part)
        if isinstance(part, Record) and part.name.startswith(PREFIX):
            if _class(type(part)).name == f"{_OURS}.ConvPackedParams":
                part.state = _current_conv(part.state, folder, memory)
            part.__class__ = _class(type(part))
        if isinstance(part, Record) and part.name == _TYPED:
            part.args = (part.args[0], *map(_with_our_classes, part.args[1:]))
        if isinstance(part, Record) and part.name == "torch._utils._rebuild_qtensor":
            if id(part) not in made:
                tensor = built(part)
                allowance.take(tensor.numel(), "its quantized tensors")  # that may share their memory, and are copied
                data = script.written(tensor).numpy().tobytes()
                made[id(part)] = _tensor(data, "Byte", len(data), folder, memory)
            return made[id(part)]
        return part

    return write_records(content, replaced), memory


class _Stored:
    """The memory of the tensors that a pickle names."""

    def __init__(self, records: dict[str, bytes], folder: str, allowance: Allowance) -> None:
        self._records, self._folder, self._allowance = records, folder, allowance

    def found(self, pid: Any) -> StoredTensor:
        kind, key, count = storage_id(pid)
        record = f"{self._folder}/{key}"
        if record not in self._records:
            raise ValueError(f"the file is damaged: {record} is missing")
        return StoredTensor(pid, kind, self._records[record], count, self._allowance)


def _class(cls: type[Record]) -> type[Record]:
    """The class of records for one of PyTorch's classes of packed weights, with our name."""
    ours = _CLASSES.get(cls.name.removeprefix(PREFIX)) if cls.name.startswith(PREFIX) else None
    return cls if ours is None else named_record(f"{_OURS}.{ours}")


def _tensor(data: bytes, kind: str, count: int, folder: str, memory: dict[str, bytes]) -> Record:
    """A tensor of one dimension in memory that is added beside the pickle."""
    key = f"quantized_{len(memory)}"
    memory[f"{folder}/{key}"] = data
    pid = ("storage", named_record(f"torch.{kind}Storage"), key, "cpu", count)
    args = Persistent(pid), 0, (count,), (1,), False, named_record("collections.OrderedDict")()
    return named_record("torch._utils._rebuild_tensor_v2")(*args)


def _current_conv(state: Any, folder: str, memory: dict[str, bytes]) -> Any:
    """The state of a packed convolution as `scripted.ConvPackedParams` reads it."""
    if str(state[0]) == "2":
        return state

    def listed(part: Any) -> Any:
        return part.args[0] if isinstance(part, Record) else part

    def integers(part: Any) -> list[int]:
        return built(part).flatten().tolist()

    numbers, weight, bias = conv_state(state, listed, integers)
    data = _tensor(torch.tensor(numbers, dtype=torch.int64).numpy().tobytes(), "Long", len(numbers), folder, memory)
    tensors = named_record("torch.jit._pickle.build_tensorlist")([data, weight])
    return "2", tensors, named_record(_TYPED)([bias], "List[Optional[Tensor]]")


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
    functions |= {name: scripted.compiled(function) for name, function in scripted.SEQUENCES.items()}
    functions |= {name: scripted.compiled(getattr(scripted, name)) for name in ("_values", "_weights")}
    codes = [re.sub(r"^def \w+", f"def {name}", function.code, count=1) for name, function in functions.items()]
    between = [scripted.compiled(function).code for function in (quantized, integers_of)]
    return {
        path: "\n".join([classes, *codes]),
        f"__torch__/{quantized.__module__.replace('.', '/')}.py": "\n".join(between),
    }


class _Packed(torch.nn.Module):
    """Uses the classes, for their code."""

    def forward(
        self,
        a: scripted.LinearPackedParams,
        b: scripted.ConvPackedParams,
        c: scripted.CellParams,
        d: scripted.EmbeddingPackedParams,
    ) -> tuple[torch.Tensor, torch.Tensor, bool, torch.Tensor]:
        return a.unpack()[0], b.unpack()[0], c.reduce_range, d.rows


def _written(records: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return buffer.getvalue()

"""QTensors in safetensors files: integers and qparams as tensors, how they belong together as JSON, no pickle.

The file is an ordinary safetensors file. Its metadata has an entry "zeropoint", JSON of this form::

    {
        "version": 1,
        "quantized": {
            "weight": {"dtype": "qint8", "scale": 0.1, "zero_point": 0},
            "table": {"dtype": "quint4x2", "axis": 0, "size": [8, 3], "stride": [3, 1], "offset": 0},
        },
        "views": {"tied": {"of": "memory::0", "size": [2, 3], "stride": [3, 1], "offset": 0}},
    }

A quantized tensor `name` has its integers (packed bytes, for sub-byte types) in the tensor `name`; per channel its
parameters in `name::scales` and `name::zero_points`. Tensors that share memory, and those that are not contiguous, are
views of a flat tensor `memory::<n>`, and share memory again after loading.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from zeropoint.described import described, shortened
from zeropoint.numerics.blocks import is_dense
from zeropoint.regular_file import Allowance, require_regular
from zeropoint.tensor.qtensor import QTensor, rebuild
from zeropoint.tensor.quantizer import PerTensorQuantizer
from zeropoint.tensor.safetensors_file import read_safetensors, write_safetensors

VERSION = 1
_KEY = "zeropoint"

Path = str | os.PathLike[str]


# ------------------------------------------------------------------------------------------------------------- saving


def save_qtensors(tensors: Mapping[str, torch.Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors, quantized or not, to a safetensors file.

    Args:
        tensors: by name, a state_dict for example. Those that share memory do so again after loading.
        metadata: strings of your own; `safetensors.safe_open(path, "pt").metadata()` reads them.

    Raises:
        ValueError: if a tensor has no values (meta), or a name or a key of `metadata` is one this format uses.

    Example:
        >>> import tempfile, zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.qint8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_qtensors({"q": q, "x": torch.ones(1)}, f"{folder}/model.safetensors")
        ...     load_qtensors(f"{folder}/model.safetensors")["q"].dequantize()
        tensor([1., 1.])
    """
    if metadata and _KEY in metadata:
        raise ValueError(f"the metadata key {_KEY!r} is reserved for quantized tensors")
    parts: dict[str, torch.Tensor] = {}
    quantized: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name!r} is not a tensor but {type(tensor).__name__}")
        if tensor.device.type == "meta":
            raise ValueError(f"{name!r} has no values to save: it is on the meta device")
        if "::" in name:
            raise ValueError(f"the name {name!r} contains '::', which separates the parts of a quantized tensor")
        if isinstance(tensor, QTensor):
            quantized[name] = _taken_apart(name, tensor, parts)
        else:
            parts[name] = tensor.detach()
    stored, views = _without_sharing(parts)
    description = json.dumps({"version": VERSION, "quantized": quantized, "views": views})
    write_safetensors(stored, path, {**(metadata or {}), _KEY: description})


def _taken_apart(name: str, q: QTensor, parts: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Put what is tensors in a QTensor into `parts`; the rest is the answer."""
    parts[name] = q._data
    record: dict[str, Any] = {"dtype": q._qdtype.name}
    quantizer = q._quantizer
    if isinstance(quantizer, PerTensorQuantizer):
        if not math.isfinite(quantizer.scale):
            raise ValueError(f"{name!r} has a scale that is not a number: {quantizer.scale}")
        record.update(scale=quantizer.scale, zero_point=quantizer.zero_point)
    else:
        parts[f"{name}::scales"], parts[f"{name}::zero_points"] = quantizer.scales, quantizer.zero_points
        record["axis"] = quantizer.axis
    if q.is_packed():
        record.update(size=list(q.size()), stride=list(q.stride()), offset=q.storage_offset())
    return record


def _without_sharing(parts: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Contiguous tensors, no two in the same memory, and which of the given ones are views of them."""
    memories: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name, t in parts.items():
        place = (t.untyped_storage().data_ptr(), t.device, t.dtype) if t.numel() else (name,)
        memories[place].append(name)
    stored: dict[str, torch.Tensor] = {}
    views: dict[str, Any] = {}
    for names in memories.values():
        first = parts[names[0]]
        if len(names) == 1 and (first.is_contiguous() or not is_dense(first)):
            stored[names[0]] = first.contiguous()
            continue
        start = min(parts[name].storage_offset() for name in names)
        end = max(_end(parts[name]) for name in names)
        memory = f"memory::{len(views)}"
        stored[memory] = first.as_strided((end - start,), (1,), start)
        for name in names:
            t = parts[name]
            offset = t.storage_offset() - start
            views[name] = {"of": memory, "size": list(t.size()), "stride": list(t.stride()), "offset": offset}
    # Two dtypes of one memory, or part of a larger memory: safetensors wants tensors that own theirs.
    return {name: t if _owns_memory(t) else t.clone() for name, t in stored.items()}, views


def _end(t: torch.Tensor) -> int:
    return t.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(t.size(), t.stride()))


def _owns_memory(t: torch.Tensor) -> bool:
    return t.storage_offset() == 0 and t.untyped_storage().nbytes() == t.numel() * t.element_size()


# ------------------------------------------------------------------------------------------------------------ loading


def load_qtensors(path: Path, device: Any = "cpu") -> dict[str, torch.Tensor]:
    """The tensors of a file that `save_qtensors` wrote, by name. Nothing in the file is executed.

    Raises:
        ValueError: if the file is damaged or was not written by `save_qtensors`; the message names what is wrong.
        OSError: if it cannot be read.

    Example:
        >>> import tempfile, zeropoint
        >>> q = zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 0, zeropoint.qint8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_qtensors({"q": q}, f"{folder}/model.safetensors")
        ...     load_qtensors(f"{folder}/model.safetensors")["q"].q_scale()
        0.5
    """
    stored, metadata = read_safetensors(path)
    stored = {name: tensor.to(device) for name, tensor in stored.items()}
    if _KEY not in metadata:
        raise ValueError(
            f"{path} has no {_KEY!r} entry in its metadata, so zeropoint.save_qtensors did not write it: read it with"
            " safetensors.torch.load_file"
        )
    try:
        return _put_together(stored, _description(metadata[_KEY]), Allowance(require_regular(path)))
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, AttributeError) as error:
        raise ValueError(shortened(f"{path} is damaged: {_words(error)}")) from error


def _words(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def _description(text: str) -> dict[str, Any]:
    description = json.loads(text)
    if not isinstance(description, dict):
        raise ValueError(f"its {_KEY!r} metadata is {type(description).__name__}, not an object")
    if description["version"] != VERSION:
        raise ValueError(f"its format has version {described(description['version'])}, this zeropoint reads {VERSION}")
    for kind in ("quantized", "views"):
        entries = description[kind]
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise ValueError(f"{kind!r} in its metadata is not an object of objects")
    return description


def _put_together(
    stored: dict[str, torch.Tensor], description: dict[str, Any], allowance: Allowance
) -> dict[str, torch.Tensor]:
    parts = dict(stored)
    for name, view in description["views"].items():
        parts[name] = _viewed(name, parts, view, allowance)
    memories = {view["of"] for view in description["views"].values()}
    tensors: dict[str, torch.Tensor] = {}
    parameters: set[str] = set()
    for name, record in description["quantized"].items():
        if name not in parts:
            raise ValueError(f"the integers of {name!r} are missing")
        try:
            q = tensors[name] = _quantized(name, record, parts, parameters)
            _require_memory(name, q, parts[name].numel() * q._qdtype.per_byte, allowance)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{name!r} cannot be restored: {_words(error)}") from error
    plain = {name: t for name, t in parts.items() if name not in memories | parameters | tensors.keys()}
    return {**plain, **tensors}


def _integers(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 2**63 for v in values):
        raise ValueError(f"expected a list of sizes, got {described(values)}")
    return values


def _viewed(name: str, parts: dict[str, torch.Tensor], view: dict[str, Any], allowance: Allowance) -> torch.Tensor:
    memory = parts.get(view["of"])
    if memory is None:
        raise ValueError(f"the storage {view['of']!r} of {name!r} is missing")
    size, stride, (offset,) = _integers(view["size"]), _integers(view["stride"]), _integers([view["offset"]])
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if len(size) != len(stride) or memory.dim() != 1 or (0 not in size and last >= memory.numel()):
        raise ValueError(f"{name!r} exceeds its storage {view['of']!r}")
    made = memory.as_strided(size, stride, offset)
    _require_memory(name, made, memory.numel(), allowance)
    return made


def _require_memory(name: str, tensor: torch.Tensor, stored: int, allowance: Allowance) -> None:
    """Count a tensor that repeats its memory (a stride of 0): whoever copies it takes as much as its shape says."""
    if tensor.numel() > stored:
        allowance.take(tensor.numel() * tensor.element_size(), f"{name!r} of shape {tuple(tensor.shape)}")


def _quantized(name: str, record: dict[str, Any], parts: dict[str, torch.Tensor], used: set[str]) -> QTensor:
    parameters: tuple[Any, ...]
    if "axis" in record:
        names = f"{name}::scales", f"{name}::zero_points"
        missing = [n for n in names if n not in parts]
        if missing:
            raise ValueError(f"the tensor {missing[0]!r} is missing")
        used.update(names)
        parameters = (parts[names[0]], parts[names[1]], _integers([record["axis"]])[0])
    else:
        scale, zero_point = record["scale"], record["zero_point"]
        if type(scale) not in (int, float) or not math.isfinite(scale) or type(zero_point) is not int:
            raise ValueError(f"scale {described(scale)} and zero_point {described(zero_point)} are not numbers")
        parameters = (float(scale), zero_point)
    geometry = None
    if "size" in record:
        geometry = tuple(_integers(record["size"])), tuple(_integers(record["stride"])), record["offset"]
    return rebuild(parts[name], record["dtype"], parameters, geometry)

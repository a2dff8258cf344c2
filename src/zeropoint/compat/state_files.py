"""State dictionaries of quantized modules in safetensors files.

Such a dictionary has more than tensors: pairs of weight and bias, packed recurrent weights, dtypes. Tensors are stored
under their path, and how they make up the dictionary is JSON in the metadata, under "zeropoint.state_dict".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zeropoint.numerics.dtypes import QuantizedDtype, quantized_dtype
from zeropoint.numerics.schemes import QScheme, qscheme
from zeropoint.qfunctions.embedding import EmbeddingPackedParams
from zeropoint.qfunctions.packed import LinearPackedParams, LinearPackedParamsFp16
from zeropoint.qfunctions.recurrent import CellParams
from zeropoint.tensor.files import load_qtensors, save_qtensors
from zeropoint.tensor.safetensors_file import read_safetensors

_KEY = "zeropoint.state_dict"


def write_state_dict(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state_dict of quantized modules to a safetensors file; `read_state_dict` gives it back.

    Raises:
        TypeError: for a value of another kind than modules have.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_state_dict({"pair": (torch.ones(1), None), "bits": 8}, f"{folder}/state.safetensors")
        ...     read_state_dict(f"{folder}/state.safetensors")
        {'pair': (tensor([1.]), None), 'bits': 8}
    """
    tensors: dict[str, Tensor] = {}
    described = {str(name): _described(value, str(name), tensors) for name, value in state.items()}
    save_qtensors(tensors, path, {_KEY: json.dumps(described)})


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `write_state_dict` wrote. Nothing in the file is run.

    Raises:
        ValueError: if the file is damaged, or another program wrote it.
    """
    tensors = load_qtensors(path)
    text = read_safetensors(path)[1].get(_KEY)
    if text is None:
        return dict(tensors)
    try:
        return {name: _restored(part, tensors) for name, part in json.loads(text).items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is damaged: wrong {_KEY!r} entry: {error}") from error


def _described(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, (tuple, list)):
        return {"tuple": [_described(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]}
    if isinstance(value, QuantizedDtype):
        return {"qdtype": value.name}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, QScheme):
        return {"qscheme": value.name}
    if isinstance(value, (LinearPackedParams, LinearPackedParamsFp16)):
        return {type(value).__name__: _described(value.unpack(), name, tensors)}
    if isinstance(value, EmbeddingPackedParams):
        return {"EmbeddingPackedParams": _described((value.unpack(),), name, tensors)}
    if isinstance(value, CellParams):
        parts = value.w_ih, value.w_hh, value.reduce_range
        return {"CellParams": _described(parts, name, tensors)}
    raise TypeError(f"{name!r} is a {type(value).__name__}, which is not supported in a state_dict")


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the file is damaged: {name!r} is not a dtype")
    return found


_RESTORED: dict[str, Any] = {
    "value": lambda value, _: value,
    "tensor": lambda name, tensors: tensors[name],
    "tuple": lambda parts, tensors: tuple(_restored(part, tensors) for part in parts),
    "qdtype": lambda name, _: quantized_dtype(name),
    "dtype": lambda name, _: _dtype(name),
    "qscheme": lambda name, _: qscheme(name),
    "LinearPackedParams": lambda parts, tensors: LinearPackedParams(*_restored(parts, tensors)),
    "LinearPackedParamsFp16": lambda parts, tensors: LinearPackedParamsFp16(*_restored(parts, tensors)),
    "EmbeddingPackedParams": lambda parts, tensors: EmbeddingPackedParams(*_restored(parts, tensors)),
    "CellParams": lambda parts, tensors: _cell(*_restored(parts, tensors)),
}


def _cell(w_ih: Any, w_hh: Any, reduce_range: bool) -> CellParams:
    return CellParams(w_ih, w_hh, reduce_range=reduce_range)


def _restored(part: Any, tensors: Mapping[str, Tensor]) -> Any:
    ((kind, content),) = part.items()
    return _RESTORED[kind](content, tensors)

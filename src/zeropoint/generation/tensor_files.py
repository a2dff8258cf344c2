"""Tensors by name, in float32: of the safetensors files of a folder, or of a model in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from zeropoint.described import described
from zeropoint.regular_file import open_regular
from zeropoint.safetensors_header import read_header

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8", "U8": "|u1", "I8": "|i1"}
_MOST_JSON = 100_000_000


class Tensors(Protocol):
    """Tensors by name."""

    def names(self) -> list[str]:
        """The names of all."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of one."""

    def raw(self, name: str) -> np.ndarray:
        """One with its integers, or float32."""

    def said(self, name: str) -> str:
        """What the metadata of the files says under a name, or an empty text."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in a file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is something else.
    """
    with open_regular(path) as file:
        text = file.read(_MOST_JSON + 1)
    try:
        found = json.loads(text) if len(text) <= _MOST_JSON else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it has no JSON object, or it is too large")
    return found


class FolderTensors:
    """The tensors of all ``*.safetensors`` files of a folder, or of one file."""

    def __init__(self, folder: Path) -> None:
        self._rows: dict[str, tuple[Path, str, tuple[int, ...], int]] = {}
        self._said: dict[str, str] = {}
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        if not files:
            raise ValueError(
                f"{folder} has no .safetensors files: other weights are not read, because they may be code"
            )
        for path in files:
            header = read_header(path)
            with open_regular(path) as file:
                begin = 8 + int.from_bytes(file.read(8), "little")
            for name, entry in header.items():
                if name == "__metadata__":
                    self._said |= entry
                    continue
                if name in self._rows:
                    raise ValueError(f"{folder} has two tensors {name!r}")
                self._rows[name] = path, entry["dtype"], tuple(entry["shape"]), begin + entry["data_offsets"][0]
                self._check(name, entry)

    def _check(self, name: str, entry: Mapping[str, Any]) -> None:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if dtype not in _DTYPES:
            raise ValueError(f"the tensor {name!r} has the dtype {dtype}, which is not supported")
        size = int(np.dtype(_DTYPES[dtype]).itemsize)
        for n in shape:
            size *= n
        if size != end - begin:
            raise ValueError(f"the tensor {name!r} of shape {shape} does not have the bytes that it says")

    def names(self) -> list[str]:
        """The names of all."""
        return list(self._rows)

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of one."""
        return self._row(name)[2]

    def _row(self, name: str) -> tuple[Path, str, tuple[int, ...], int]:
        if name not in self._rows:
            raise ValueError(f"the model has no tensor {name!r}, which its other tensors need")
        return self._rows[name]

    def raw(self, name: str) -> np.ndarray:
        """One with its integers, or float32."""
        path, dtype, shape, begin = self._row(name)
        found = np.memmap(path, np.dtype(_DTYPES[dtype]), "r", begin, shape) if 0 not in shape else np.zeros(shape)
        if dtype == "BF16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32) if dtype.startswith("F") else np.asarray(found)

    def said(self, name: str) -> str:
        """What the metadata of the files says under a name, or an empty text."""
        return self._said.get(name, "")


class ModelTensors:
    """The tensors of a state dict."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)
        wrong = next((value for value in self._state.values() if not hasattr(value, "detach")), None)
        if wrong is not None:
            raise TypeError(f"the state dict of the model must have tensors, got {described(wrong)}")
        packed = next((name for name, value in self._state.items() if hasattr(value, "__tensor_flatten__")), None)
        if packed is not None:
            raise TypeError(
                f"{packed} is a {type(self._state[packed]).__name__}, whose integers are not read from memory: save the"
                " model to a folder, and pass that"
            )

    def names(self) -> list[str]:
        """The names of all."""
        return list(self._state)

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of one."""
        return tuple(self._state[name].shape)

    def raw(self, name: str) -> np.ndarray:
        """One with its integers, or float32."""
        tensor = self._state[name].detach().cpu()
        array: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        return array

    def said(self, name: str) -> str:
        """Nothing: a model in memory has no metadata."""
        return ""

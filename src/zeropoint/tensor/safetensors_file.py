"""Safetensors files, read into memory of their own, and written whole or not at all.

`safetensors.safe_open` maps the file: tensors that it gives are the file, and the process dies with SIGBUS when
somebody shortens it. What is read here stays what it was.
"""

from __future__ import annotations

import os

from torch import Tensor

from zeropoint.atomic_file import replacing
from zeropoint.safetensors_header import read_whole


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, and its metadata.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a whole safetensors file.
    """
    import safetensors.torch

    data, header = read_whole(path)
    try:
        tensors = safetensors.torch.load(data)  # checks the header against the bytes
    except safetensors.SafetensorError as error:
        raise ValueError(f"{os.fspath(path)} is not a whole safetensors file: {error}") from error
    return tensors, header.get("__metadata__", {})


def write_safetensors(tensors: dict[str, Tensor], path: str | os.PathLike[str], metadata: dict[str, str]) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: if it cannot be written.
    """
    import safetensors.torch

    try:
        with replacing(path) as new:
            safetensors.torch.save_file(tensors, new, metadata)
    except safetensors.SafetensorError as error:
        raise OSError(f"{os.fspath(path)} cannot be written: {error}") from error

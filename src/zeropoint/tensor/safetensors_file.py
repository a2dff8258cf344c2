"""Reading safetensors files into memory of their own.

`safetensors.safe_open` maps the file: tensors that it gives are the file, and the process dies with SIGBUS when
somebody shortens it. What is read here stays what it was.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from torch import Tensor

__all__ = ["read_safetensors"]


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, and its metadata.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not a whole safetensors file.
    """
    import safetensors.torch

    data = Path(path).read_bytes()
    try:
        tensors = safetensors.torch.load(data)  # checks the header against the bytes
    except safetensors.SafetensorError as error:
        raise ValueError(f"{os.fspath(path)} is not a whole safetensors file: {error}") from error
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return tensors, header.get("__metadata__", {})

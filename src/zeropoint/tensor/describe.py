"""QTensors in words: what repr shows."""

from __future__ import annotations

import torch

from zeropoint.tensor.qtensor import QTensor, floats
from zeropoint.tensor.quantizer import is_plain


def describe(q: QTensor, contents: str | None = None) -> str:
    """The tensor in torch's words: its dequantized values (or `contents`), then what it is."""
    prefix = "tensor("
    if contents is None:
        contents = _values(q, len(prefix)) if is_plain(q._data) else "..."
    parts = [f"device='{q.device}'"] if q.device.type != "cpu" else []
    dtype = q.qdtype if q.dtype == torch.float32 else q.dtype  # zeropoint.compat answers the old name
    parts += [f"size={tuple(q.size())}", f"dtype={dtype}", f"quantization_scheme={q.qscheme()}"]
    parts += q._quantizer.describe()
    return torch._tensor_str._add_suffixes(prefix + contents, parts, len(prefix), force_newline=False)


def _values(q: QTensor, indent: int) -> str:
    with torch.no_grad():
        return torch._tensor_str._tensor_str(floats(q), indent)

"""QTensors in words: what repr shows."""

from __future__ import annotations

from html import escape

import torch

from zeropoint.html_table import html_table
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


def describe_html(q: QTensor) -> str:
    """The tensor as a table for notebooks: what it is, then its dequantized values as torch shows them."""
    facts = [("size", "×".join(map(str, q.size()))), ("dtype", str(q.qdtype)), ("scheme", str(q.qscheme()))]
    facts += [tuple(part.split("=", 1)) for part in q._quantizer.describe()]  # type: ignore[misc]
    values = _values(q, 0) if is_plain(q._data) else "..."
    return html_table(("", "quantized tensor"), facts) + f"<pre>{escape(values)}</pre>"


def _values(q: QTensor, indent: int) -> str:
    with torch.no_grad():
        return torch._tensor_str._tensor_str(floats(q), indent)

"""Copies of tensors with some elements written anew."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

__all__ = ["FORMS"]


def _write_scatter(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    mode = {"reduction": "add"} if "scatter_add" in str(node.target) else {}
    return w.op("ScatterElements", *(w.tensor(a[k]) for k in ("self", "index", "src")), axis=a["dim"], **mode)


def _read_scatter(r: OnnxReader, n: ReadNode) -> Any:
    reduction, axis = n.attribute("reduction", "none"), n.attribute("axis", 0)
    x, index, values = (r.tensor(value) for value in n.inputs)
    if reduction == "none":
        return torch.scatter(x, axis, index, values)
    if reduction == "add":
        return torch.scatter_add(x, axis, index, values)
    raise r.unsupported(f"unsupported reduction {reduction!r}")


def _read_scatter_nd(r: OnnxReader, n: ReadNode) -> Any:
    if n.attribute("reduction", "none") not in ("none", "add"):
        raise r.unsupported(f"unsupported reduction {n.attribute('reduction')!r}")
    x, index, values = (r.tensor(value) for value in n.inputs)
    return torch.index_put(x, tuple(index.unbind(-1)), values, n.attribute("reduction", "none") == "add")


FORMS = {
    "scatter": OnnxForms(
        writes(_write_scatter, "aten.scatter.src", "aten.scatter_add.default"), reads(_read_scatter, "ScatterElements")
    ),
    "index_put": OnnxForms(reads=reads(_read_scatter_nd, "ScatterND")),
}

"""ONNX forms of scatter and index_put."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from zeropoint.operators.node import arguments
from zeropoint.operators.onnx.indexing import from_begin
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, OnnxWriter, ReadNode, reads, writes

_REDUCED = {"mul": "prod", "max": "amax", "min": "amin"}  # reductions of ONNX, by their names of PyTorch


def _write_scatter(w: OnnxWriter, node: fx.Node) -> Any:
    a = arguments(node)
    mode = {"reduction": "add"} if "scatter_add" in str(node.target) else {}
    return w.op("ScatterElements", *(w.tensor(a[k]) for k in ("self", "index", "src")), axis=a["dim"], **mode)


def _read_scatter(r: OnnxReader, n: ReadNode) -> Any:
    reduction, axis = n.attribute("reduction", "none"), n.attribute("axis", 0)
    x, values = r.tensor(n.input(0)), r.tensor(n.input(2))
    index = from_begin(r, n.input(1), x.shape[axis]).to(torch.int64)
    if reduction == "none":
        return torch.scatter(x, axis, index, values)
    if reduction == "add":
        return torch.scatter_add(x, axis, index, values)
    if reduction not in _REDUCED:
        raise r.unsupported(f"unknown reduction {reduction!r}")
    return torch.scatter_reduce(x, axis, index, values, _REDUCED[reduction])


def _read_scatter_nd(r: OnnxReader, n: ReadNode) -> Any:
    """The reductions that `index_put` has not are made along one axis, of all that are indexed."""
    reduction = n.attribute("reduction", "none")
    x, index, values = (r.tensor(value) for value in n.first(3))
    if reduction in ("none", "add"):
        return torch.index_put(x, tuple(index.unbind(-1)), values, reduction == "add")
    if reduction not in _REDUCED:
        raise r.unsupported(f"unknown reduction {reduction!r}")
    axes = index.shape[-1]
    place = torch.zeros_like(index[..., 0])
    for axis, part in enumerate(index.unbind(-1)):
        place = place * x.shape[axis] + torch.where(part < 0, part + x.shape[axis], part)
    flat, rest = x.reshape(-1, math.prod(x.shape[axes:])), values.reshape(-1, math.prod(x.shape[axes:]))
    places = place.reshape(-1, 1).expand(rest.shape)
    return torch.scatter_reduce(flat, 0, places, rest, _REDUCED[reduction]).reshape(x.shape)


FORMS = {
    "scatter": OnnxForms(
        writes(_write_scatter, "aten.scatter.src", "aten.scatter_add.default"),
        reads(_read_scatter, "ScatterElements", "Scatter"),
    ),
    "index_put": OnnxForms(reads=reads(_read_scatter_nd, "ScatterND")),
}

"""Sums and products with constants into the layer before them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.passes.fold_batch_norm import add_parameter
from zeropoint.nn.qat.trained import scaled
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, parameter

_FOLDED = {
    "add.Tensor": (None, lambda c: c), "add.Scalar": (None, lambda c: c), "sub.Tensor": (None, lambda c: -c),
    "mul.Tensor": (lambda c: c, None), "mul.Scalar": (lambda c: c, None), "div.Tensor": (lambda c: 1 / c, None),
}  # fmt: skip


def fold_affine(graph: fx.GraphModule) -> int:
    """``layer(x) * a + b`` as one layer, with constants for all or for each channel; how many were folded.

    Models from ONNX files have their biases like this, and so have learned scales behind a layer.
    """
    count = 0
    for node in list(graph.graph.nodes):
        layer = node.args[0] if node.args else None
        if aten_name(node) in ("add.Tensor", "mul.Tensor") and not _is_layer(layer):
            layer = node.args[1]
        if aten_name(node) in _FOLDED and _is_layer(layer) and _fold(graph, layer, node):
            node.replace_all_uses_with(layer)
            graph.graph.erase_node(node)
            count += 1
    if count:
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return count


def _is_layer(node: Any) -> bool:
    record = BY_ATEN.get(aten_name(node) or "") if isinstance(node, fx.Node) else None
    return record is not None and record.folds_batch_norm and len(node.users) == 1


def _fold(graph: fx.GraphModule, layer: fx.Node, node: fx.Node) -> bool:
    a, la, record = arguments(node), arguments(layer), BY_ATEN[str(aten_name(layer))]
    weight, bias = parameter(graph, la["weight"]), parameter(graph, la["bias"])
    value = layer.meta.get("val")
    if a.get("alpha", 1) != 1 or weight is None or (bias is None) != (la["bias"] is None) or not _is_float(value):
        return False
    axis = 1 - weight.dim()  # of channels, from the end
    outputs = int(value.shape[axis])
    constant = _constant(graph, a["other"] if a["self"] is layer else a["self"], value.dim(), axis)
    if constant is None or constant.numel() not in (1, outputs):
        return False
    with torch.no_grad():
        factor, summand = (None if f is None else f(constant).expand(outputs) for f in _FOLDED[str(aten_name(node))])
        if not all(f is None or bool(f.isfinite().all()) for f in (factor, summand)):
            return False
        if factor is not None:
            weight = scaled(weight, factor, la["groups"] if record.weight_axis == 1 else 0)
            bias = None if bias is None else bias * factor
        if summand is not None:
            bias = summand.clone() if bias is None else bias + summand
        if not all(t is None or bool(t.isfinite().all()) for t in (weight, bias)):
            return False
    path = str(la["weight"].target)
    new = [la["weight"], la["bias"]]
    if factor is not None:
        new[0] = add_parameter(graph, path + "_scaled", weight, layer)
    if bias is not None:
        new[1] = add_parameter(graph, f"{path.removesuffix('_scaled')}_bias", bias, layer)
    layer.args = (layer.args[0], *new, *layer.args[3:])
    return True


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _constant(graph: fx.GraphModule, given: Any, dims: int, axis: int) -> Tensor | None:
    """A constant as a vector of one number, or of one for each channel; None for any other."""
    if isinstance(given, (int, float)):
        return torch.tensor([float(given)])
    found: Any = parameter(graph, given)
    if not _is_float(found) or found.dim() > dims:
        return None
    others = [size for k, size in enumerate(found.shape, -found.dim()) if k != axis]
    is_for_channels = -axis <= found.dim() and set(others) <= {1}
    return found.detach().flatten() if found.numel() == 1 or is_for_channels else None

"""Models with float16, bfloat16 or float64 inside, in float32, which the operators on integers read and give.

The weights of a model in bfloat16 are float32 numbers already. What float64 gives beyond float32 is less than 8 bits
lose. A model so changed takes its inputs as they are, or in float32, and gives float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.operators.node import aten_name

__all__ = ["compute_in_float32"]

aten = torch.ops.aten
_OTHERS = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}
_LARGEST = torch.finfo(torch.float32).max


def compute_in_float32(graph: fx.GraphModule) -> None:
    """Let a captured graph compute in float32, in place; one that sees the bytes of its floats stays as it is."""
    nodes = list(graph.graph.nodes)
    if not any(_is_other(value) for node in nodes for value in internals.leaves(node.meta.get("val"))):
        return
    if any(aten_name(node) == "view.dtype" for node in nodes):
        return
    copies = [node for node in nodes if _is_copy(node)]
    for node in nodes:
        if node.op == "get_attr":
            _convert_tensor(graph, str(node.target))
        elif node.op == "placeholder" and _is_other(node.meta.get("val")):
            _convert_input(graph, node)
            continue
        elif node.op == "call_function":
            node.args = internals.map_values(node.args, _in_float32)
            node.kwargs = internals.map_values(node.kwargs, _in_float32)
        if "val" in node.meta:
            node.meta["val"] = internals.map_values(node.meta["val"], _converted)
    for node in copies:
        if node.args[0].meta["val"].dtype == node.meta["val"].dtype:  # what is written to it is not seen in the other
            node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}
    graph.recompile()


def _is_copy(node: fx.Node) -> bool:
    """Whether it converts to another dtype."""
    if (aten_name(node) or "").split(".")[0] not in ("to", "_to_copy", "type_as"):
        return False
    read, made = node.args[0].meta.get("val"), node.meta.get("val")
    return isinstance(read, Tensor) and isinstance(made, Tensor) and read.dtype != made.dtype


def _is_other(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _OTHERS


def _converted(value: Any) -> Any:
    return value.to(_OTHERS[value.dtype]) if _is_other(value) else value


def _in_float32(value: Any) -> Any:
    """A dtype or a number among the arguments of a call: the lowest number of float64 is that of float32 then."""
    if isinstance(value, torch.dtype):
        return _OTHERS.get(value, value)
    if isinstance(value, float) and _LARGEST < abs(value) < float("inf"):
        return _LARGEST if value > 0 else -_LARGEST
    return value


def _convert_tensor(graph: fx.GraphModule, name: str) -> None:
    """A parameter or buffer, where it is."""
    path, _, last = name.rpartition(".")
    owner = graph.get_submodule(path)
    value = getattr(owner, last)
    if not _is_other(value):
        return
    made = value.detach().to(_OTHERS[value.dtype])
    if isinstance(value, nn.Parameter):
        setattr(owner, last, nn.Parameter(made, requires_grad=value.requires_grad))
    else:
        owner.register_buffer(last, made)


def _convert_input(graph: fx.GraphModule, node: fx.Node) -> None:
    users = [user for user in node.users if user.op != "call_module"]  # but for checks of sizes
    last = next(n for n in reversed(graph.graph.nodes) if n.op == "placeholder")
    with graph.graph.inserting_after(last):
        made = graph.graph.call_function(aten.to.dtype, (node, _OTHERS[node.meta["val"].dtype]))
    made.meta.update(node.meta, val=_converted(node.meta["val"]))
    for user in users:
        user.replace_input_with(node, made)

"""Models with float16, bfloat16 or float64 inside, in float32, which the operators on integers read and give.

The weights of a model in bfloat16 are float32 numbers already. What a model with parameters or inputs in float64 gives
beyond float32 is less than 8 bits lose. A model so changed takes its inputs as they are, or in float32, and gives
float32. Where a float32 model computes something in float64, as a phase that grows, it has its reason, and still does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.graph import torch_internals as internals
from zeropoint.operators.node import aten_name

aten = torch.ops.aten
_HALVES = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_DOUBLES = {torch.float64: torch.float32, torch.complex128: torch.complex64}
_LARGEST = torch.finfo(torch.float32).max


def compute_in_float32(graph: fx.GraphModule) -> None:
    """Let a captured graph compute in float32, in place; one that sees the bytes of its floats stays as it is."""
    nodes = list(graph.graph.nodes)
    dtypes = {value.dtype for node in nodes for value in internals.leaves(node.meta.get("val")) if _is_tensor(value)}
    others = (_HALVES | _DOUBLES) if _is_double(graph, nodes) else _HALVES
    if dtypes.isdisjoint(others) or any(aten_name(node) == "view.dtype" for node in nodes):
        return
    _Conversion(graph, others).run(nodes)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_double(graph: fx.GraphModule, nodes: list[fx.Node]) -> bool:
    """Whether a parameter or an input is."""
    given = [node.meta.get("val") for node in nodes if node.op == "placeholder"]
    return any(_is_tensor(value) and value.dtype in _DOUBLES for value in (*given, *graph.parameters()))


def _is_copy(node: fx.Node) -> bool:
    """Whether it converts to another dtype."""
    if (aten_name(node) or "").split(".")[0] not in ("to", "_to_copy", "type_as"):
        return False
    read, made = node.args[0].meta.get("val"), node.meta.get("val")
    return isinstance(read, Tensor) and isinstance(made, Tensor) and read.dtype != made.dtype


class _Conversion:
    """A graph, and the dtypes in it that become others."""

    def __init__(self, graph: fx.GraphModule, others: dict[torch.dtype, torch.dtype]) -> None:
        self._graph, self._others = graph, others

    def run(self, nodes: list[fx.Node]) -> None:
        copies = [node for node in nodes if _is_copy(node)]
        for node in nodes:
            if node.op == "get_attr":
                self._convert_tensor(str(node.target))
            elif node.op == "placeholder" and self._is_other(node.meta.get("val")):
                self._convert_input(node)
                continue
            elif node.op == "call_function":
                node.args = internals.map_values(node.args, self._argument)
                node.kwargs = internals.map_values(node.kwargs, self._argument)
            if "val" in node.meta:
                node.meta["val"] = internals.map_values(node.meta["val"], self._converted)
        for node in copies:  # what is written to a copy is not seen in the other
            if node.args[0].meta["val"].dtype == node.meta["val"].dtype:
                node.target, node.args, node.kwargs = aten.clone.default, node.args[:1], {}
        self._graph.recompile()

    def _is_other(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype in self._others

    def _converted(self, value: Any) -> Any:
        return value.to(self._others[value.dtype]) if self._is_other(value) else value

    def _argument(self, value: Any) -> Any:
        """A dtype or a number among the arguments of a call: the lowest number of float64 is that of float32 then."""
        if isinstance(value, torch.dtype):
            return self._others.get(value, value)
        if isinstance(value, float) and _LARGEST < abs(value) < float("inf"):
            return _LARGEST if value > 0 else -_LARGEST
        return value

    def _convert_tensor(self, name: str) -> None:
        """A parameter or buffer, where it is."""
        path, _, last = name.rpartition(".")
        owner = self._graph.get_submodule(path)
        value = getattr(owner, last)
        if not self._is_other(value):
            return
        made = value.detach().to(self._others[value.dtype])
        if isinstance(value, nn.Parameter):
            setattr(owner, last, nn.Parameter(made, requires_grad=value.requires_grad))
        else:
            owner.register_buffer(last, made)

    def _convert_input(self, node: fx.Node) -> None:
        users = [user for user in node.users if user.op != "call_module"]  # but for checks of sizes
        last = next(n for n in reversed(self._graph.graph.nodes) if n.op == "placeholder")
        with self._graph.graph.inserting_after(last):
            made = self._graph.graph.call_function(aten.to.dtype, (node, self._others[node.meta["val"].dtype]))
        made.meta.update(node.meta, val=self._converted(node.meta["val"]))
        for user in users:
            user.replace_input_with(node, made)

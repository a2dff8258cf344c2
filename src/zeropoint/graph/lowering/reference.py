"""A calibrated graph with quantize and dequantize where values and weights are rounded, and float operators between."""

from __future__ import annotations

import operator

import torch
from torch import fx

from zeropoint.graph.lowering.integer import Lowering
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.numerics.affine import BYTE_LIMITS
from zeropoint.operators import BY_ATEN
from zeropoint.operators.lowered_value import Scale, Value
from zeropoint.operators.node import arguments, aten_name
from zeropoint.operators.record import Effect

ours = torch.ops.zeropoint


class Reference(Lowering):
    """As `Lowering`, but operators stay float: what they read was quantized and dequantized."""

    def observed(self, node: fx.Node) -> None:
        scale = self.scale_of(node)
        watched = self.choices.get(node.args[0])
        if watched is not None and watched.rounded and not self._is_read_as_integers(node):
            self.values[node] = Value(self.floats(node.args[0]), scale=scale)
            return
        q = self.call(ours.quantize_per_tensor.default, self.floats(node.args[0]), *scale.all)
        self.values[node] = Value(self.call(ours.dequantize_per_tensor.default, q, *scale.all), scale=scale)

    def _is_read_as_integers(self, node: fx.Node) -> bool:
        read_by = [self.choices.get(user) for user in node.users]
        return any(c is not None and c.precision is not Precision.FLOAT for c in read_by)

    def joined(self, node: fx.Node) -> list[int]:
        return []

    def add(self, node: fx.Node) -> None:
        choice = self.choices.get(node)
        if choice is not None and choice.precision is Precision.JOINED:
            scale = self.values[self.by_name[choice.inputs[0]]].scale if choice.inputs else None
            self.values[node] = Value(self.copy(node), scale=scale)
            return
        if (
            node.op == "call_function"
            and choice is not None
            and choice.precision in (Precision.STATIC, Precision.PASSED, Precision.FUSED)
        ):
            if choice.precision is Precision.FUSED and node.target is operator.getitem:  # of bags, which are one tensor
                self.values[node] = self.values[node.args[0]]
            else:
                self.values[node] = self.float_value(node, choice)
        else:
            super().add(node)

    def float_value(self, node: fx.Node, choice: Choice) -> Value:
        scale = self.values[node.args[0]].scale if choice.precision is Precision.PASSED else None
        record = BY_ATEN.get(aten_name(node) or "")
        if scale is not None and record is not None and record.effect is Effect.AVERAGES:
            return Value(self.average(node, scale), scale=scale)
        return Value(self.float_form(node, choice), scale=scale)

    def average(self, node: fx.Node, scale: Scale) -> fx.Node:
        """An average, which is rounded, by the operator on integers: floats miss values just between two steps."""
        first = node.args[0]
        q = self.call(ours.quantize_per_tensor.default, self.floats(first), *scale.all)
        named = {k: self.argument(v) for k, v in arguments(node).items() if v is not first}
        q = BY_ATEN[str(aten_name(node))].integers(self, q, scale, named, node)  # type: ignore[misc]
        return self.call(ours.dequantize_per_tensor.default, q, *scale.all)

    def float_form(self, node: fx.Node, choice: Choice) -> fx.Node:
        made = self.copy(node)
        if (
            choice.precision is Precision.STATIC
            and choice.operator is not None
            and choice.operator.reference is not None
        ):
            choice.operator.reference(self, node, choice, made)
        return made

    def dequantized_weight(
        self, integers: fx.Node, scales: fx.Node, zero_points: fx.Node, axis: int, reader: fx.Node
    ) -> fx.Node:
        """The floats that a quantized weight stands for, computed before `reader`."""
        kind = self.tensors[str(integers.target)].dtype
        limits = BYTE_LIMITS[kind]
        with self.graph.inserting_before(reader):
            if self.tensors[str(scales.target)].numel() > 1:
                per_channel = ours.dequantize_per_channel.default
                weight = self.call(per_channel, integers, scales, zero_points, axis, *limits, kind)
            else:
                scale, zero_point = (self.tensors[str(n.target)].item() for n in (scales, zero_points))
                weight = self.call(ours.dequantize_per_tensor.default, integers, scale, zero_point, *limits, kind)
            for constant in (zero_points, scales, integers):
                weight.prepend(constant)
        return weight


def reference(graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> fx.GraphModule:
    """The graph with quantize and dequantize of a graph with observers that have seen data."""
    return Reference(graph, choices).run()

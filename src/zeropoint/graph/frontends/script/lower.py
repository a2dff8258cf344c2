"""A calibrated view on integers, in the spelling that graphs of TorchScript had before: ``dequantize`` without a range,
and clamps as ATen's own, in place where nothing else reads the value."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from zeropoint.graph.lowering.integer import Lowering
from zeropoint.graph.passes.annotate import Choice, Precision
from zeropoint.graph.passes.insert_observers import is_observer
from zeropoint.numerics.dtypes import qint8, quint8
from zeropoint.numerics.functions import quantize_number
from zeropoint.operators.lowered_value import Scale, Value
from zeropoint.operators.node import arguments, aten_name

aten, ours = torch.ops.aten, torch.ops.zeropoint
_CLAMPS = {"hardtanh.default": ("min_val", "max_val"), "clamp.default": ("min", "max")}


class _Lowering(Lowering):
    def dequantized(self, integers: fx.Node, scale: Scale) -> fx.Node:
        return self.call(ours.dequantize.default, integers, *scale.pair)

    def keep_scale(self, node: fx.Node) -> Value:
        name, a = aten_name(node) or "", arguments(node) if aten_name(node) in _CLAMPS else {}
        bounds: list[Any] = [a.get(key) for key in _CLAMPS.get(name, ())]
        if not bounds or not all(isinstance(bound, (int, float)) for bound in bounds):
            return super().keep_scale(node)
        integers, scale = self.integers(node.args[0])
        kind = quint8 if scale.dtype == torch.uint8 else qint8
        ends = [quantize_number(float(bound), *scale.pair, kind) for bound in bounds]
        packet = name.split(".")[0]
        op = getattr(aten, packet + "_" if self.is_last_reader(node) else packet).default
        return Value(integers=self.call(op, integers, *ends), scale=scale)

    def is_last_reader(self, node: fx.Node) -> bool:
        """Whether `node` may write over its input: integers that were computed for it alone."""
        source: Any = node.args[0]
        if is_observer(source) and len(source.users) == 1:
            source = source.args[0]
        choice = self.choices.get(source)
        if choice is not None and choice.precision is Precision.FUSED:
            source = source.args[0]
            choice = self.choices.get(source)
        is_made = choice is not None and (choice.precision is Precision.STATIC or aten_name(source) in _CLAMPS)
        return is_made and len(node.args[0].users) == 1 and len(source.users) == 1


def lower(view: fx.GraphModule, choices: dict[fx.Node, Choice]) -> fx.GraphModule:
    """The view on integers of a view with observers that have seen data."""
    return _Lowering(view, choices).run()

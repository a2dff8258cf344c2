"""A calibrated graph on integers.

Every value of the old graph may be had as floats or as integers with their parameters. Nodes are taken in order: one
that was chosen for integers asks for its inputs as integers and gives integers, every other asks for floats; what is
asked for and not there yet is made by quantizing or dequantizing, once. So no pair of the two is ever needless.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph import torch_internals as internals
from zeropoint.graph.graph_module import Graph
from zeropoint.graph.passes.annotate import Choice, Precision, is_float, watched
from zeropoint.graph.passes.insert_observers import OBSERVER, is_observer
from zeropoint.graph.provenance import Identity, Represented, identity
from zeropoint.nn.quantized.storage import found_qparams, has_observed, plain_parts, quantize_weight
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.operators import BY_ATEN
from zeropoint.operators.lowered_value import Scale, Value
from zeropoint.operators.node import arguments, aten_name, only_reads_shape, operator_key, parameter

ours = torch.ops.zeropoint


class NotCalibrated(ValueError):
    """Raised when a model is converted before its observers saw data."""


class Lowering:
    """The new graph while it is made."""

    def __init__(self, graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> None:
        self.old, self.choices = graph, choices
        self.graph = fx.Graph()
        internals.copy_codegen(graph.graph, self.graph)
        self.values: dict[fx.Node, Value] = {}
        self.tensors: dict[str, Tensor] = {}
        self.origin: Any = None
        self.by_name = {node.name: node for node in graph.graph.nodes}

    # ------------------------------------------------------------------------------------------------- values

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta["origin"] = self.origin
        return node

    def converted(self, value: Value, make: Callable[[], fx.Node]) -> fx.Node:
        """`value` in its other form: what was made of it in this scope or one around it, or else made here."""
        scope = self.origin.scope if self.origin is not None else ()
        for depth in range(len(scope) + 1):
            if scope[:depth] in value.converted:
                return value.converted[scope[:depth]]
        value.converted[scope] = make()
        return value.converted[scope]

    def dequantized(self, integers: fx.Node, scale: Scale) -> fx.Node:
        return self.call(ours.dequantize_per_tensor.default, integers, *scale.all)

    def floats(self, node: fx.Node) -> fx.Node:
        value = self.values[node]
        if value.floats is not None:
            return value.floats
        integers, scale = value.integers, value.scale
        assert integers is not None
        assert scale is not None
        return self.converted(value, lambda: self.dequantized(integers, scale))

    def integers(self, node: fx.Node) -> tuple[fx.Node, Scale]:
        value = self.values[node]
        scale = value.scale
        if scale is None:
            raise NotCalibrated(f"{node} has no scale: run the prepared model on some batches before you convert it")
        if value.integers is not None:
            return value.integers, scale
        made = self.converted(value, lambda: self.call(ours.quantize_per_tensor.default, value.floats, *scale.all))
        made.meta["represented"] = Represented(self.meant(node), *scale.pair, scale.dtype)
        return made, scale

    def quantized(self, node: fx.Node) -> tuple[Any, ...]:
        """Integers, scale, zero point: as operators take them."""
        integers, scale = self.integers(node)
        return integers, *scale.pair

    def constant(self, name: str, value: Tensor) -> fx.Node:
        name = "".join(c if c.isalnum() else "_" for c in name)
        while hasattr(self.old, name) or (name in self.tensors and self.tensors[name] is not value):
            name += "_"
        self.tensors[name] = value
        return self.graph.get_attr(name)

    def argument(self, value: Any) -> Any:
        return internals.map_nodes(value, self.floats)

    def as_is(self, node: fx.Node) -> fx.Node:
        """A value in the form that there is already, where only its shape matters, or it is no float."""
        value = self.values[node]
        return self.floats(node) if value.integers is None else value.integers

    def parameter(self, node: Any) -> Any:
        found = parameter(self.old, node)
        return None if found is None else found.detach()

    # -------------------------------------------------------------------------------------------------- nodes

    def run(self) -> fx.GraphModule:
        for node in self.old.graph.nodes:
            self.origin = node.meta.get("origin")
            self.add(node)
            self.mean(node)
        whole = Graph(_Root(self.old, self.tensors), self.graph)
        whole.graph.eliminate_dead_code()
        made = Graph(whole, whole.graph)  # without the float weights, which nothing reads now
        made.graph.lint()
        return made

    def add(self, node: fx.Node) -> None:
        if node.op == "output":
            self.graph.node_copy(node, self.floats)
            return
        if is_observer(node):
            self.observed(node)
            return
        choice = self.choices.get(node)
        if node.op == "call_module":
            self.values[node] = Value(self.copy(node))
        elif choice is None or choice.precision is Precision.FLOAT:
            self.values[node] = Value(self.float_node(node))
        elif choice.precision is Precision.FUSED:
            value = self.values[node] = self.values[node.args[0]]
            if node.target is operator.getitem and value.floats is not None:  # of bags, which are one tensor
                value.floats.meta["val"] = node.meta.get("val")
        elif choice.precision is Precision.JOINED:
            same = self.values[self.by_name[choice.inputs[0]]].scale if choice.inputs else None
            self.values[node] = Value(integers=self.copy(node), scale=same or self.output_scale(node, choice))
        elif choice.precision is Precision.PASSED and choice.operator is None:
            self.values[node] = self.keep_scale(node)
        else:
            self.values[node] = choice.operator.lower(self, node, choice)

    def unobserved(self, node: fx.Node) -> fx.Node:
        """What an observer watches; other nodes as they are."""
        return node.args[0] if is_observer(node) else node

    def meant(self, node: fx.Node) -> Identity:
        """Which value of the float graph a node is."""
        return identity(self.unobserved(node))

    def mean(self, node: fx.Node) -> None:
        """Write down which value of the float graph the new nodes hold, for who compares the two."""
        value = self.values.get(node)
        if value is None:
            return
        meant = self.meant(node)
        if value.floats is not None:
            value.floats.meta["represented"] = Represented(meant)
        if value.integers is not None and value.scale is not None:
            value.integers.meta["represented"] = Represented(meant, *value.scale.pair, value.scale.dtype)

    def copy(self, node: fx.Node, form: Callable[[fx.Node], fx.Node] | None = None) -> fx.Node:
        leaving = {place: self.integers(node.args[place])[0] for place in self.joined(node)}
        made = self.graph.node_copy(node, form or self.floats)
        for place, value in leaving.items():
            made.update_arg(place, value)
        made.meta = dict(node.meta)
        return made

    def float_node(self, node: fx.Node) -> fx.Node:
        """A node that stays float: with our operator, if there is one, else as it is."""
        record = BY_ATEN.get(operator_key(node) or "")
        found = record.float_form(self, node) if record is not None and record.float_form is not None else None
        if found is None:
            return self.copy(node, self.as_is if only_reads_shape(node) else self.floats)
        made = self.call(found[0], *found[1])
        made.meta = dict(node.meta)
        return made

    def joined(self, node: fx.Node) -> list[int]:
        """Of the end of a branch: the places of values that leave it as integers."""
        chosen = [(place, self.choices.get(joined)) for place, joined in node.meta.get("joins", ())]
        return [place for place, choice in chosen if choice is not None and choice.precision is Precision.JOINED]

    def observed(self, node: fx.Node) -> None:
        value = self.values[node.args[0]]
        scale = self.byte_scale(node)
        if value.scale is not None and value.scale != scale:  # behind a dropout, which training sees and this does not
            rescaled = self.call(ours.requantize.default, *self.quantized(node.args[0]), *scale.pair, scale.dtype)
            self.values[node] = Value(integers=rescaled, scale=scale)
            return
        # Later requests through either name make one quantize.
        value.scale = scale
        self.values[node] = value

    def scale_of(self, observer: fx.Node) -> Scale:
        module: Any = self.old.get_submodule(str(observer.target))
        module = getattr(module, "post_process", module)
        if not has_observed(module):
            raise NotCalibrated(
                f"{observer.target} saw no data: run the prepared model on some batches before you convert it"
            )
        scale, zero_point = found_qparams(module)
        return Scale(float(scale), int(zero_point), quantized_dtype(module.dtype).torch_storage)

    def byte_scale(self, observer: fx.Node) -> Scale:
        """`scale_of`, with one dtype in all of the graph: operators give bytes of the dtype that they take.

        Observers differ where activations are int8 and a function has parameters of its own, which are uint8.
        """
        scale = self.scale_of(observer)
        return scale.as_uint8 if self._observers_differ else scale

    @cached_property
    def _observers_differ(self) -> bool:
        observers = [self.old.get_submodule(str(node.target)) for node in self.by_name.values() if is_observer(node)]
        kinds = {quantized_dtype(getattr(o, "post_process", o).dtype).torch_storage for o in observers}
        return {torch.uint8, torch.int8} <= kinds

    def output_scale(self, node: fx.Node, choice: Choice) -> Scale:
        last = watched(node, self.choices, self.by_name)
        return self.byte_scale(next(u for u in last.users if is_observer(u)))

    # ---------------------------------------------------------------------------------------------- operators

    def op(self, choice: Choice, suffix: str = "") -> Any:
        name = choice.operator.name + ("_relu" if choice.relu is not None else "") + suffix
        return getattr(ours, name).default

    def weight(self, node: Any, choice: Choice, axis: int = 0) -> tuple[fx.Node, fx.Node, fx.Node]:
        """Integers, scales and zero points of a weight as constants."""
        weight = self.parameter(node)
        assert weight is not None
        observer = self.weight_observer(node, choice.qconfig.weight, axis)
        return self.stored(str(node.target), quantize_weight(weight, observer))

    def weight_observer(self, node: fx.Node, new: Callable[[], Any], axis: int = 0) -> Any:
        """What watched a weight: the fake quantization it was trained with, or else a new observer."""
        weight = self.parameter(node)
        trained = node.meta.get("fake_quant")
        observer = new() if trained is None else trained
        if "per_channel" in str(observer.qscheme) and axis != observer.ch_axis:
            observer.ch_axis = axis
        if trained is None or not has_observed(trained):
            observer(weight)
        return observer

    def stored(self, name: str, q: Any) -> tuple[fx.Node, fx.Node, fx.Node]:
        """Integers, scales and zero points of a quantized tensor as constants."""
        integers, scales, zero_points = plain_parts(q)
        return (
            self.constant(name, integers),
            self.constant(f"{name}_scale", scales),
            self.constant(f"{name}_zero_point", zero_points),
        )

    def stored_or_none(self, node: Any) -> fx.Node | None:
        """A parameter as a constant; None for None."""
        return None if node is None else self.constant(node.target, self.parameter(node))

    def scale_at(self, node: fx.Node) -> Scale:
        scale = self.values[node].scale
        if scale is None:
            raise NotCalibrated(f"{node} has no scale: run the prepared model on some batches before you convert it")
        return scale

    # ------------------------------------------------------------------------------- what keeps its input's scale

    def keep_scale(self, node: fx.Node) -> Value:
        first = node.args[0]
        integers, scale = self.integers(first)
        if node.target is operator.getitem:
            if not is_float(node):  # places, as sort gives them beside the values
                return Value(self.call(operator.getitem, integers, node.args[1]))
            return Value(integers=self.call(operator.getitem, integers, node.args[1]), scale=scale)
        compute = BY_ATEN[aten_name(node) or ""].integers
        if compute is None:
            rest = [internals.map_nodes(v, self.as_is) for v in node.args[1:]]
            made = self.call(node.target, integers, *rest, **self.argument(dict(node.kwargs)))
            return Value(integers=made, scale=scale)
        named = {k: self.argument(v) for k, v in arguments(node).items() if v is not first}
        return Value(integers=compute(self, integers, scale, named, node), scale=scale)


class _Root(torch.nn.Module):
    """What the new graph refers to: its own tensors, and whatever of the old one it still reads."""

    def __init__(self, old: fx.GraphModule, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, module in old.named_children():
            if not name.startswith(OBSERVER):
                self.add_module(name, module)
        for name, p in old.named_parameters(recurse=False, remove_duplicate=False):
            self.register_parameter(name, p)
        for name, b in old.named_buffers(recurse=False, remove_duplicate=False):
            self.register_buffer(name, b)
        for name, value in tensors.items():
            self.register_buffer(name, value)


def lower(graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> fx.GraphModule:
    """The graph on integers of a graph with observers that have seen data."""
    return Lowering(graph, choices).run()

"""A calibrated graph on integers.

Every value of the old graph may be had as floats or as integers with their parameters. Nodes are taken in order: one
that was chosen for integers asks for its inputs as integers and gives integers, every other asks for floats; what is
asked for and not there yet is made by quantizing or dequantizing, once. So no pair of the two is ever needless.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.graph_module import Graph
from zeropoint.graph.lowering.float_operators import float_call
from zeropoint.graph.lowering.shared_scale import PASSED, Scale
from zeropoint.graph.passes.annotate import Choice, Way, is_float, table_bits, watched
from zeropoint.graph.passes.canonicalize import arguments, aten_name, each, only_reads_shape
from zeropoint.graph.passes.fold_batch_norm import parameter
from zeropoint.graph.passes.insert_observers import OBSERVER, is_observer
from zeropoint.graph.provenance import Meaning, name_of
from zeropoint.graph.recipes import MOVING, Form
from zeropoint.nn.quantized.storage import found_qparams, has_observed, plain_parts, quantize_weight
from zeropoint.numerics import scalars
from zeropoint.numerics.dtypes import qint8, quantized_dtype, quint8
from zeropoint.observers import MinMaxObserver
from zeropoint.qfunctions.embedding import embedding_bag_prepack
from zeropoint.qfunctions.weight_only import weight_only_prepack

__all__ = ["NotCalibrated", "lower"]

aten, ours = torch.ops.aten, torch.ops.zeropoint
GROUP = 128  # inputs that share a scale in a weight of 4 bits


class NotCalibrated(ValueError):
    """A graph whose observers saw no data."""


@dataclass
class Value:
    """A value of the old graph in the new one: floats or integers, and what was made of them in each scope."""

    floats: fx.Node | None = None
    integers: fx.Node | None = None
    scale: Scale | None = None
    converted: dict[tuple[int, ...], fx.Node] = field(default_factory=dict)


class Lowering:
    """The new graph while it is made."""

    def __init__(self, graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> None:
        self.old, self.choices = graph, choices
        self.graph = fx.Graph()
        self.graph.set_codegen(copy.copy(graph.graph._codegen))  # how inputs and outputs are nested
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
            raise NotCalibrated(f"{node} has no scale")
        if value.integers is not None:
            return value.integers, scale
        made = self.converted(value, lambda: self.call(ours.quantize_per_tensor.default, value.floats, *scale.all))
        made.meta["meaning"] = Meaning(self.meant(node), *scale.pair, scale.dtype)
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
        return fx.node.map_arg(value, self.floats)

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
        made = Graph(whole, whole.graph)  # without the float weights, which nobody reads now
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
        elif choice is None or choice.way is Way.FLOAT:
            self.values[node] = Value(self.float_node(node))
        elif choice.way is Way.FUSED:
            self.values[node] = self.values[node.args[0]]
        elif choice.way is Way.JOINED:
            same = self.values[self.by_name[choice.inputs[0]]].scale if choice.inputs else None
            self.values[node] = Value(integers=self.copy(node), scale=same or self.output_scale(node, choice))
        elif choice.way is Way.PASSED:
            self.values[node] = self.passed(node)
        elif choice.way in (Way.WEIGHT, Way.WEIGHT_4):
            self.values[node] = self.weight_only(node, choice)
        else:
            self.values[node] = {
                Form.LAYER: self.layer,
                Form.BINARY: self.binary,
                Form.MATMUL: self.binary,
                Form.CAT: self.cat,
                Form.FUNCTION: self.function,
                Form.EMBEDDING: self.embedding,
                Form.SLOPES: self.slopes,
                Form.RECURRENT: self.recurrent,
                Form.CELL: self.cell,
            }[choice.operator.form](node, choice)

    def meant(self, node: fx.Node) -> str:
        """The name of a value in the float graph."""
        return name_of(node.args[0] if is_observer(node) else node)

    def mean(self, node: fx.Node) -> None:
        """Write down which value of the float graph the new nodes hold, for who compares the two."""
        value = self.values.get(node)
        if value is None:
            return
        name = self.meant(node)
        if value.floats is not None:
            value.floats.meta["meaning"] = Meaning(name)
        if value.integers is not None and value.scale is not None:
            value.integers.meta["meaning"] = Meaning(name, *value.scale.pair, value.scale.dtype)

    def copy(self, node: fx.Node, form: Callable[[fx.Node], fx.Node] | None = None) -> fx.Node:
        leaving = {place: self.integers(node.args[place])[0] for place in self.joined(node)}
        made = self.graph.node_copy(node, form or self.floats)
        for place, value in leaving.items():
            made.update_arg(place, value)
        made.meta = dict(node.meta)
        return made

    def float_node(self, node: fx.Node) -> fx.Node:
        """A node that stays float: with our operator, if there is one, else as it is."""
        found = float_call(self, node)
        if found is None:
            return self.copy(node, self.as_is if only_reads_shape(node) else self.floats)
        made = self.call(found[0], *found[1])
        made.meta = dict(node.meta)
        return made

    def joined(self, node: fx.Node) -> list[int]:
        """Of the end of a branch: the places of values that leave it as integers."""
        chosen = [(place, self.choices.get(joined)) for place, joined in node.meta.get("joins", ())]
        return [place for place, choice in chosen if choice is not None and choice.way is Way.JOINED]

    def observed(self, node: fx.Node) -> None:
        value = self.values[node.args[0]]
        scale = self.scale_of(node)
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
                f"{observer.target} saw no data: run the prepared model on some batches before it is converted"
            )
        scale, zero_point = found_qparams(module)
        return Scale(float(scale), int(zero_point), quantized_dtype(module.dtype).torch_storage)

    def output_scale(self, node: fx.Node, choice: Choice) -> Scale:
        last = watched(node, self.choices, self.by_name)
        return self.scale_of(next(u for u in last.users if is_observer(u)))

    # ---------------------------------------------------------------------------------------------- operators

    def op(self, choice: Choice, suffix: str = "") -> Any:
        name = choice.operator.name + ("_relu" if choice.relu is not None else "") + suffix
        return getattr(ours, name).default

    def weight(self, node: Any, choice: Choice, axis: int = 0) -> tuple[fx.Node, fx.Node, fx.Node]:
        """Integers, scales and zero points of a weight as constants."""
        weight = self.parameter(node)
        assert weight is not None
        return self.stored(str(node.target), quantize_weight(weight, self.weight_observer(node, choice, axis)))

    def weight_observer(self, node: fx.Node, choice: Choice, axis: int = 0) -> Any:
        """What watched a weight: the fake quantization it was trained with, or else a new observer."""
        weight = self.parameter(node)
        trained = node.meta.get("fake_quant")
        observer = choice.qconfig.weight() if trained is None else trained
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

    def layer(self, node: fx.Node, choice: Choice) -> Value:
        a = arguments(node)
        bias = None if a["bias"] is None else self.constant(a["bias"].target, self.parameter(a["bias"]))
        if choice.way is Way.HALF:
            half = self.parameter(a["weight"]).clamp(-65504, 65504).to(torch.float16)
            stored = self.constant(a["weight"].target, half)
            return Value(self.call(ours.linear_dynamic_fp16.default, self.floats(a["input"]), stored, bias))
        weight = self.weight(a["weight"], choice, choice.operator.weight_axis)
        geometry: list[Any] = []
        if "stride" in a:
            names = ("stride", "padding", "output_padding", "dilation", "groups")
            dims = int(choice.operator.name[-2])
            numbers = [self.argument(a[k]) for k in names if k in a]
            geometry = [each(v, dims) if isinstance(v, (list, tuple)) else v for v in numbers]
        if choice.way is Way.DYNAMIC:
            activation = choice.qconfig.activation()
            options = [bool(getattr(activation, "reduce_range", False))]
            if choice.operator.name == "linear":
                options.append("per_channel" in str(activation.qscheme))  # a range for each token
            args = (self.floats(a["input"]), *weight, bias, *geometry, *options)
            return Value(self.call(self.op(choice, "_dynamic"), *args))
        if choice.to_float:
            return Value(self.call(ours.linear_to_float.default, *self.quantized(a["input"]), *weight, bias))
        out = self.output_scale(node, choice)
        args = (*self.quantized(a["input"]), *weight, bias, *geometry, *out.pair)
        return Value(integers=self.call(self.op(choice), *args), scale=out)

    def binary(self, node: fx.Node, choice: Choice) -> Value:
        out = self.output_scale(node, choice)
        integers, scale, zero_point = self.quantized(node.args[1])
        factor = arguments(node).get("alpha", 1) * (-1 if str(aten_name(node)).startswith("sub") else 1)
        args = (*self.quantized(node.args[0]), integers, scale * factor, zero_point, *out.pair)
        return Value(integers=self.call(self.op(choice), *args), scale=out)

    def cat(self, node: fx.Node, choice: Choice) -> Value:
        out = self.output_scale(node, choice)
        parts = [self.quantized(t) for t in node.args[0]]
        integers, scales, zero_points = (list(column) for column in zip(*parts))
        dim = arguments(node)["dim"]
        return Value(integers=self.call(self.op(choice), integers, scales, zero_points, dim, *out.pair), scale=out)

    def function(self, node: fx.Node, choice: Choice) -> Value:
        a, out = arguments(node), self.output_scale(node, choice)
        more = []
        for name in choice.operator.more:
            value = a[name]
            if isinstance(value, fx.Node):
                value = self.constant(value.target, self.parameter(value))
            elif name == "approximate":
                value = float(value == "tanh")
            elif choice.operator.name in ("elu", "celu", "leaky_relu"):
                value = float(value)
            more.append(value)
        args = (*self.quantized(node.args[0]), *more, *out.pair)
        return Value(integers=self.call(self.op(choice), *args), scale=out)

    def slopes(self, node: fx.Node, choice: Choice) -> Value:
        out = self.output_scale(node, choice)
        weight = self.slopes_of(node)
        stored = self.constant(node.args[1].target, weight.int_repr().clone())
        args = (*self.quantized(node.args[0]), stored, weight.q_scale(), weight.q_zero_point(), *out.pair)
        return Value(integers=self.call(self.op(choice), *args), scale=out)

    def slopes_of(self, node: fx.Node) -> Any:
        """The slopes of a PReLU, with the dtype of its input and a range of their own."""
        weight, kind = self.parameter(node.args[1]), self.scale_at(node.args[0]).dtype
        observer = node.args[1].meta.get("fake_quant") or MinMaxObserver(dtype=quint8 if kind == torch.uint8 else qint8)
        if not has_observed(observer):
            observer(weight)
        return quantize_weight(weight, observer)

    def scale_at(self, node: fx.Node) -> Scale:
        scale = self.values[node].scale
        if scale is None:
            raise NotCalibrated(f"{node} has no scale")
        return scale

    def weight_only(self, node: fx.Node, choice: Choice) -> Value:
        """A linear layer on floats with weights of 8 bits, as observed, or of 4 bits in groups of inputs."""
        a = arguments(node)
        weight, name = self.parameter(a["weight"]), str(a["weight"].target)
        if choice.way is Way.WEIGHT_4:
            packed = weight_only_prepack(weight, bits=4, group_size=GROUP, symmetric=False)
        else:
            packed = weight_only_prepack(quantize_weight(weight, self.weight_observer(a["weight"], choice)))
        scale, zero_point = packed.qparams()
        bias = None if a["bias"] is None else self.constant(a["bias"].target, self.parameter(a["bias"]))
        stored = (
            self.constant(name, packed.int_repr()),
            self.constant(f"{name}_scale", scale),
            None if zero_point is None else self.constant(f"{name}_zero_point", zero_point),
        )
        op = ours.weight_only_linear_4bit if packed.bits == 4 else ours.weight_only_linear
        return Value(self.call(op.default, self.floats(a["input"]), *stored, bias, packed.group_size))

    def embedding(self, node: fx.Node, choice: Choice) -> Value:
        table = self.parameter(node.args[0])
        four = table_bits(choice.qconfig.weight()) == 4
        if "fake_quant" in node.args[0].meta:
            packed = embedding_bag_prepack(quantize_weight(table, self.weight_observer(node.args[0], choice))).table()
        else:
            packed = (ours.embedding_bag_4bit_prepack if four else ours.embedding_bag_byte_prepack)(table)
        rows = self.constant(node.args[0].target, packed)
        if choice.operator.name == "embedding_bag":
            a = arguments(node)
            bags = ours.embedding_bag_4bit_rowwise_offsets if four else ours.embedding_bag_byte_rowwise_offsets
            options = self.argument([a[k] for k in ("indices", "offsets", "scale_grad_by_freq", "mode")])
            samples, last = self.argument([a["per_sample_weights"], a["include_last_offset"]])
            return Value(self.call(bags.default, rows, *options, False, samples, None, last))
        lookup = ours.embedding_4bit.default if four else ours.embedding_byte.default
        return Value(self.call(lookup, rows, self.floats(node.args[1])))

    def recurrent(self, node: fx.Node, choice: Choice) -> Value:
        a = arguments(node)
        params: list[Any] = list(a["params"])
        step = 4 if a["has_biases"] else 2
        weights = [w for i, w in enumerate(params) if i % step < 2]
        biases = [self.constant(b.target, self.parameter(b)) for i, b in enumerate(params) if i % step >= 2]
        if choice.way is Way.HALF:
            half = [self.constant(w.target, self.parameter(w).to(torch.float16)) for w in weights]
            columns: tuple[list[Any], ...] = (half, [], [])
        else:
            columns = tuple(list(c) for c in zip(*(self.weight(w, choice) for w in weights)))
        hx = a["hx"]
        states = [self.floats(h) for h in hx] if isinstance(hx, (list, tuple)) else self.floats(hx)
        op = getattr(ours, choice.operator.name).input
        options = (a["num_layers"], 0.0, False, a["bidirectional"], a["batch_first"], True)
        return Value(self.call(op, self.floats(a["input"]), states, *columns, biases, *options))

    def cell(self, node: fx.Node, choice: Choice) -> Value:
        a = arguments(node)
        weights = (*self.weight(a["w_ih"], choice), *self.weight(a["w_hh"], choice))
        biases = [a[k] if a[k] is None else self.constant(a[k].target, self.parameter(a[k])) for k in ("b_ih", "b_hh")]
        reduce_range = bool(getattr(choice.qconfig.activation(), "reduce_range", False))
        args = (self.floats(a["input"]), self.argument(a["hx"]), *weights, *biases, reduce_range)
        return Value(self.call(self.op(choice, "_dynamic"), *args))

    # -------------------------------------------------------------------------------------------- passed on

    def passed(self, node: fx.Node) -> Value:
        first = node.args[0]
        integers, scale = self.integers(first)
        name = aten_name(node) or ""
        if node.target is operator.getitem:
            if not is_float(node):  # places, as sort gives them beside the values
                return Value(self.call(operator.getitem, integers, node.args[1]))
            return Value(integers=self.call(operator.getitem, integers, node.args[1]), scale=scale)
        if name in MOVING:
            rest = [fx.node.map_arg(v, self.as_is) for v in node.args[1:]]
            made = self.call(node.target, integers, *rest, **self.argument(dict(node.kwargs)))
            return Value(integers=made, scale=scale)
        if name in ("add.Tensor", "add.Scalar", "mul.Tensor", "mul.Scalar"):
            return self.with_number(node, integers, scale, name)
        special: Callable[..., Any] = PASSED[name]
        named = {k: self.argument(v) for k, v in arguments(node).items() if v is not first}
        return Value(integers=special(self, integers, scale, named, node), scale=scale)

    def with_number(self, node: fx.Node, integers: fx.Node, scale: Scale, name: str) -> Value:
        number = float(node.args[1])
        adds = name.startswith("add")
        parameters = scalars.sum_parameters if adds else scalars.product_parameters
        new = parameters(scale.scale, scale.zero_point, number, scale.dtype)
        op = ours.add_scalar.default if adds else ours.mul_scalar.default
        return Value(integers=self.call(op, integers, *scale.pair, number), scale=Scale(*new, scale.dtype))


class _Root(torch.nn.Module):
    """What the new graph refers to: its own tensors, and whatever of the old one it still reads."""

    def __init__(self, old: fx.GraphModule, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, module in old.named_children():
            if not name.startswith(OBSERVER):
                self.add_module(name, module)
        for name, p in old.named_parameters(recurse=False):
            self.register_parameter(name, p)
        for name, b in old.named_buffers(recurse=False):
            self.register_buffer(name, b)
        for name, value in tensors.items():
            self.register_buffer(name, value)


def lower(graph: fx.GraphModule, choices: dict[fx.Node, Choice]) -> fx.GraphModule:
    """The graph on integers of a graph with observers that have seen data."""
    return Lowering(graph, choices).run()

"""Pairs of values from graph mode: what each node of a quantized graph holds is written beside it (`represented`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from zeropoint.comparison.pairs import OUTPUT, Layer, Pair, first_tensor
from zeropoint.graph.frontends.export import is_training
from zeropoint.graph.passes.input_checks import free_sizes
from zeropoint.graph.passes.recurrent_precision import split_layers
from zeropoint.graph.provenance import Identity, Represented, Values, origin, represented
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Quantized, float_graph
from zeropoint.operators import BY_ATEN
from zeropoint.operators.node import arguments, aten_name, parameter

_WEIGHTS_ONLY = {"weight_only_linear": "int8 weights", "weight_only_linear_4bit": "int4 weights"}
_NOT_A_LAYER = ("dequantize_per_tensor", "dequantize", "stored_max_pool")  # exact


def evaluate(
    graph: fx.GraphModule, node: fx.Node, values: Mapping[fx.Node, Any], given: Iterator[Any] | None = None
) -> Any:
    """The value of one node, from those of the nodes it reads; `given` are the inputs of the graph that are to come."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "placeholder":
        return next(given or iter(()), node.args[0] if node.args else None)
    if node.op == "get_attr":
        return parameter(graph, node)
    if node.op == "call_function":
        target: Any = node.target
        return target(*args, **kwargs)
    if node.op == "call_module":
        return graph.get_submodule(str(node.target))(*args, **kwargs)
    return args[0]


def steps(graph: fx.GraphModule, inputs: list[Any]) -> Iterator[tuple[fx.Node, dict[fx.Node, Any]]]:
    """Run a graph node by node: each node, with the values so far, its own included. Others are dropped when nothing
    needs them any more."""
    values: dict[fx.Node, Any] = {}
    left = {node: len(node.users) for node in graph.graph.nodes}
    given = iter(inputs)
    for node in graph.graph.nodes:
        values[node] = evaluate(graph, node, values, given)
        yield node, values
        for used in node.all_input_nodes:
            left[used] -= 1
            if left[used] == 0:
                del values[used]


class GraphPairs:
    """A model, and what `to_int8` or `convert_graph` made of it.

    Args:
        graph: that of the float model, if it is there already.

    Raises:
        ValueError: if the quantized graph was made of another model.
    """

    def __init__(
        self, float_model: nn.Module, quantized: Quantized, batch: Any, graph: fx.GraphModule | None = None
    ) -> None:
        self._model = _in_evaluation(float_model)
        if graph is None:
            args = self._arguments(batch)
            graph = float_graph(self._model, args, free_sizes(quantized.graph_module, args))
        self._float = graph
        self._values = Values(self._float)
        for value, runs in quantized.splits.items():
            split_layers(self._float, self._source(value), runs)
        self._values = Values(self._float)
        self._quantized = quantized.graph_module
        self._layers = {node: layer for node in self._quantized.graph.nodes if (layer := self._layer(node))}
        if not self._layers:
            raise ValueError("the quantized model has no layers to compare: pass a model from to_int8 or convert_graph")

    def layers(self) -> tuple[Layer, ...]:
        return tuple(self._layers.values())

    def run(self, batch: Any) -> Iterator[Pair]:
        inputs = pytree.tree_leaves(self._arguments(batch))
        needed = {self._source(_held(node).value) for node in self._layers}
        kept, wanted_output = {}, None
        for node, values in steps(self._float, inputs):
            if node in needed or node.op == "placeholder":
                kept[node] = values[node]
            if node.op == "output":
                wanted_output = first_tensor(values[node])
        for node, values in steps(self._quantized, inputs):
            if node in self._layers:
                yield self._pair(node, values, kept)
            if node.op == "output":
                got = first_tensor(values[node])
                if wanted_output is not None and got is not None:
                    yield Pair(OUTPUT, wanted_output, wanted_output, got, None)

    def _arguments(self, batch: Any) -> tuple[Any, ...]:
        args, kwargs = call_of(batch)
        if not kwargs:
            return args
        bound = inspect.signature(self._model.forward).bind(*args, **kwargs)
        return (*bound.args, *bound.kwargs.values())

    def _pair(self, node: fx.Node, values: dict[fx.Node, Any], kept: dict[fx.Node, Any]) -> Pair:
        held = _held(node)
        got, integers = floats_of(values[node], held), None
        if held.scale is not None:
            integers = values[node]
        source = self._source(held.value)
        wanted = first_tensor(kept[source])
        result = first_tensor(got)
        assert wanted is not None
        assert result is not None
        if wanted.shape != result.shape:
            raise ValueError(
                f"{node.name} returns {tuple(result.shape)}, but the float model returns {tuple(wanted.shape)}: "
                "pass the float model that the quantized model was made from"
            )
        alone: Any = wanted
        if self._layers[node].computed == "float32":
            alone = result
        else:
            local = {
                self._source(m.value): floats_of(values[n], m) for n in node.all_input_nodes if (m := represented(n))
            }
            alone = first_tensor(self._evaluate(source, local, kept))
        return Pair(self._layers[node], wanted, alone, result, integers)

    def _source(self, value: Identity) -> fx.Node:
        """The node of the float graph that has a value."""
        found = self._values.find(value)
        if found is None:
            raise ValueError(
                f"the float model has no {value}: pass the float model that the quantized model was made from"
            )
        return found

    def _evaluate(self, node: fx.Node, known: dict[fx.Node, Any], kept: dict[fx.Node, Any]) -> Any:
        """The value of a float node, from the known ones."""
        if node not in known:
            if node.op == "placeholder":
                known[node] = kept[node]
            elif node.op == "get_attr":
                known[node] = parameter(self._float, node)
            else:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._evaluate(n, known, kept))
                target: Any = node.target
                known[node] = target(*args, **kwargs)
        return known[node]

    def _layer(self, node: fx.Node) -> Layer | None:
        """What a node computes, if it is worth a row: an operator of zeropoint, or a float one that has a recipe."""
        held = represented(node)
        if node.op != "call_function" or held is None:
            return None
        ours = getattr(node.target, "namespace", "") == "zeropoint"
        operator = node.target._schema.name.removeprefix("zeropoint::") if ours else (aten_name(node) or "")
        if operator in _NOT_A_LAYER or (not ours and (operator not in BY_ATEN or BY_ATEN[operator].annotate is None)):
            return None
        constants = [n for n in node.all_input_nodes if n.op == "get_attr"]
        source = self._source(held.value)
        weight, rounded = self._weights(source, node) if ours else (None, None)
        factors = next(
            (m.factors for n in node.all_input_nodes if (m := represented(n)) and m.factors is not None), None
        )
        if rounded is not None and factors is not None:
            rounded = rounded / factors
        layer = layer_before_relu(source)
        stored = [parameter(self._quantized, n) for n in constants]
        halves = any(t is not None and t.dtype == torch.float16 for t in stored)
        return Layer(
            name=node.name,
            path=origin(node).path,
            operator=operator.removeprefix("stored_")
            .removesuffix("_per_tensor")
            .removesuffix("_per_channel")
            .split(".")[0],
            computed=_computed(operator, held, halves) if ours else "float32",
            scale=held.scale,
            zero_point=held.zero_point if held.scale is not None else None,
            dtype="float32" if held.dtype is None else str(held.dtype).removeprefix("torch."),
            weight=weight,
            rounded_weight=rounded,
            nbytes=sum(_bytes(parameter(self._quantized, n)) for n in constants),
            float_nbytes=sum(_bytes(parameter(self._float, n)) for n in layer.all_input_nodes if n.op == "get_attr"),
        )

    def _weights(self, source: fx.Node, node: fx.Node) -> tuple[Tensor | None, Tensor | None]:
        """The weight of a layer in float and as its integers stand for it, if they are one for each value."""
        floats = next((n for n in layer_before_relu(source).all_input_nodes if n.op == "get_attr"), None)
        weight = parameter(self._float, floats)
        a = arguments(node)
        prefix = "weight_" if "weight_scale" in a else ""
        integers, scale, zero_point = (
            parameter(self._quantized, a.get(k)) if isinstance(a.get(k), fx.Node) else None
            for k in ("weight", f"{prefix}scale", f"{prefix}zero_point")
        )
        if scale is None or integers is None or weight is None or integers.shape != weight.shape:
            return None, None
        if zero_point is None:
            zero_point = torch.zeros(scale.shape)
        if scale.numel() > 1:
            axis = 0 if scale.numel() == integers.shape[0] else 1
            shape = [-1 if d == axis else 1 for d in range(integers.dim())]
            if integers.shape[axis] != scale.numel():
                return None, None
            scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
        return weight.detach(), (integers.float() - zero_point.float()) * scale.float()


def _in_evaluation(model: nn.Module) -> nn.Module:
    if is_training(model):
        raise ValueError("the float model is in training mode: call model.eval()")
    return model


def _held(node: fx.Node) -> Represented:
    held = represented(node)
    assert held is not None
    return held


def layer_before_relu(node: fx.Node) -> fx.Node:
    """The layer before a ReLU or dropout that is part of it."""
    while not any(n.op == "get_attr" for n in node.all_input_nodes) and len(node.all_input_nodes) == 1:
        before = node.all_input_nodes[0]
        if before.op != "call_function" or aten_name(node) not in ("relu.default", "dropout.default"):
            break
        node = before
    return node


def floats_of(value: Any, held: Represented | None) -> Any:
    """What a node of a quantized graph holds, as floats."""
    if held is None or held.scale is None or not isinstance(value, Tensor):
        return value
    floats = (value.float() - held.zero_point) * held.scale
    return floats if held.factors is None else floats * held.factors


def _bytes(value: Tensor | None) -> int:
    return 0 if value is None else value.numel() * value.element_size()


def _computed(operator: str, held: Represented, halves: bool) -> str:
    if operator in _WEIGHTS_ONLY:
        return _WEIGHTS_ONLY[operator]
    if halves:
        return "float16 weights"
    if operator.startswith("embedding"):
        return "int4 weights" if "4bit" in operator else "int8 weights"
    if operator.startswith("float_"):
        return "float32"
    return "int8" if held.scale is not None or operator == "linear_to_float" else "int8 dynamic"

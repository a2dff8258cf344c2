"""Layers of graph mode: the float graph and the quantized one are run side by side, node by node, on all batches."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from zeropoint.accuracy.layers import TunableLayer
from zeropoint.accuracy.operation import Operation
from zeropoint.accuracy.recurrent_layers import is_recurrent, recurrent_matrices
from zeropoint.comparison.graph_pairs import evaluate, floats_of, layer_before_relu
from zeropoint.comparison.lockstep import Lockstep, most_bytes
from zeropoint.comparison.pairs import first_tensor
from zeropoint.graph.frontends.export import is_training
from zeropoint.graph.passes.input_checks import free_sizes
from zeropoint.graph.passes.recurrent_precision import split_layers
from zeropoint.graph.provenance import Represented, Values, origin, represented
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Quantized, float_graph
from zeropoint.numerics import packing
from zeropoint.operators.node import arguments, parameter
from zeropoint.ops.weight_only import middle


class GraphLayer(TunableLayer):
    """A node of a quantized graph that has an integer weight."""

    def __init__(self, pair: _Pair, node: fx.Node, source: fx.Node) -> None:
        self._pair, self._node = pair, node
        self._graph = pair.quantized.graph
        a = arguments(node)
        self.name, self.path = node.name, origin(node).path
        layer = layer_before_relu(source)
        floats = arguments(layer)
        weight = parameter(pair.floats.graph, floats["weight"])
        assert weight is not None
        self.weight = weight.detach().float()
        given: Any = a["input"]
        held = represented(given)
        if held is not None and held.factors is not None:
            self.weight = self.weight * held.factors
        dims = self.weight.dim() - 2 if "stride" in floats else 0
        self.operation = Operation.of_arguments(floats, dims, "_relu" in str(node.target))
        self._bits = 4 if "4bit" in str(node.target) else 8
        prefix = "weight_" if "weight_scale" in a else ""
        self._weight_only = not prefix
        self._scale, self._zero_point = a[f"{prefix}scale"], a[f"{prefix}zero_point"]
        self._group_size = int(a["group_size"]) if self._weight_only else 0
        self.scale = self._spread(parameter(self._graph, self._scale))
        self.zero_point = self._zero_points()
        stored = self.integers
        self.low, self.high = (0, 15) if self._bits == 4 else (int(stored.min()), int(stored.max()))
        values = pair.quantized.values[given]
        self.inputs = [
            floats_of(v, Represented(held.value, held.scale, held.zero_point) if held else None) for v in values
        ]
        self.wanted = [_tensor(value) for value in pair.floats.until(source)]

    def _spread(self, t: Tensor | None) -> Tensor:
        """One number, or one for each output or each group of its inputs, so that it is broadcast to the weight."""
        assert t is not None
        t = t.float()
        if t.numel() == 1:
            return t.reshape([1] * self.weight.dim())
        if self._weight_only:
            t = t.reshape(self.weight.shape[0], -1)
            size = self._group_size or self.weight.shape[1] // t.shape[1]
            return t if t.shape[1] == 1 else t.repeat_interleave(size, 1)[:, : self.weight.shape[1]]
        axis = 0 if self.operation.output_padding is None else 1
        return t.reshape([-1 if d == axis else 1 for d in range(self.weight.dim())])

    def _zero_points(self) -> Tensor:
        stored = parameter(self._graph, self._zero_point)
        weight = parameter(self._graph, arguments(self._node)["weight"])
        assert weight is not None
        if stored is None or stored.is_floating_point():  # (q - middle) s + z = (q - (middle - z / s)) s
            shift = 0.0 if stored is None else self._spread(stored) / self.scale
            return torch.zeros_like(self.scale) + middle(weight, self._bits) - shift
        return self._spread(stored)

    @property
    def integers(self) -> Tensor:
        stored = parameter(self._graph, arguments(self._node)["weight"])
        assert stored is not None
        if self._bits == 4:
            stored = packing.unpack(stored, self.weight.shape[1], 4)
        return stored.to(torch.int32)

    @property
    def bias(self) -> Tensor | None:
        return parameter(self._graph, arguments(self._node)["bias"])

    def store(self, integers: Tensor) -> None:
        stored = parameter(self._graph, arguments(self._node)["weight"])
        assert stored is not None
        made = integers.to(stored.dtype)
        self._replace(arguments(self._node)["weight"], packing.pack(made, 4) if self._bits == 4 else made)

    def store_bias(self, bias: Tensor) -> None:
        at = arguments(self._node)["bias"]
        if at is None:
            at = self._pair.quantized.add_constant(f"{self.name}_bias", bias, self._node)
            names = [argument.name for argument in self._node.target._schema.arguments]
            self._node.update_arg(names.index("bias"), at)
            self._graph.recompile()
        self._replace(at, bias.detach().float())

    def _replace(self, at: fx.Node, value: Tensor) -> None:
        # A new tensor, not a write: the old one may be shared with the graph that this one was made of.
        *parents, name = str(at.target).split(".")
        owner = self._graph.get_submodule(".".join(parents))
        if name in owner._parameters:
            del owner._parameters[name]
        owner.register_buffer(name, value.contiguous())
        self._pair.quantized.values[at] = [value] * self._pair.quantized.batches

    def run(self) -> list[Tensor]:
        walk, found = self._pair.quantized, []
        held = represented(self._node)
        with torch.no_grad():
            for i in range(walk.batches):
                value = evaluate(walk.graph, self._node, {n: walk.values[n][i] for n in self._node.all_input_nodes})
                found.append(floats_of(value, held))
        return found


def _tensor(value: Any) -> Tensor:
    found = first_tensor(value)
    assert found is not None
    return found


class _Pair:
    """The two graphs, as far as they have been run."""

    def __init__(self, floats: Lockstep, quantized: _QuantizedLockstep) -> None:
        self.floats, self.quantized = floats, quantized


class _QuantizedLockstep(Lockstep):
    def add_constant(self, name: str, value: Tensor, before: fx.Node) -> fx.Node:
        while hasattr(self.graph, name):
            name += "_"
        self.graph.register_buffer(name, value.detach().float())
        with self.graph.graph.inserting_before(before):
            made = self.graph.graph.get_attr(name)
        self._left[made] = 1
        self.values[made] = [value] * self.batches
        return made


def inputs_of(model: Any, batch: Any) -> list[Any]:
    """A batch as the inputs of a graph, one after the other."""
    args, kwargs = call_of(batch)
    if kwargs:
        if isinstance(model, fx.GraphModule):
            raise ValueError(
                "a batch with keyword inputs needs the names of forward: pass the model itself instead of its graph"
            )
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
        args = (*bound.args, *bound.kwargs.values())
    return pytree.tree_leaves(args)


def fitting_inputs(graph: fx.GraphModule, batches: list[Any], memory: int) -> list[list[Any]]:
    """The inputs of as many batches as fit into `memory` when a graph is run on all of them at once, one at least."""
    count = max(1, memory // max(1, most_bytes(graph, inputs_of(graph, batches[0]))))
    return [inputs_of(graph, batch) for batch in batches[:count]]


def split_alike(graph: fx.GraphModule, quantized: Quantized) -> Values:
    """Split the layers of a float graph, in place, as those of its quantized version are; what it computes then."""
    values = Values(graph)
    for value, runs in quantized.splits.items():
        at = values.find(value)
        assert at is not None
        split_layers(graph, at, runs)
    return Values(graph)


def graph_layers(model: Any, quantized: Quantized, batches: Iterable[Any], memory: int) -> Iterator[TunableLayer]:
    """The layers of `quantized`, which are changed in place; see `zeropoint.accuracy.layers.layers_of`."""
    target = quantized.graph_module
    if any("update_state" in str(node.target) for node in target.graph.nodes):
        raise NotImplementedError("models with state between calls cannot be tuned: use to_int8 alone")
    if not isinstance(model, fx.GraphModule) and is_training(model):
        raise ValueError("the float model is in training mode: call model.eval()")
    inputs, graph = _fitting(model, quantized, batches, memory)
    values = split_alike(graph, quantized)
    sources: dict[fx.Node, fx.Node] = {}
    for node in target.graph.nodes:
        held, integer = represented(node), _has_integer_weight(target, node)
        found = values.find(held.value) if held is not None and integer else None
        recurrent = found is not None and bool({"params", "w_ih"} & arguments(found).keys())
        if found is not None and (recurrent or "weight" in arguments(layer_before_relu(found))):
            sources[node] = found
        elif integer and held is not None:
            raise ValueError(
                f"the float model has no {held.value}: pass the float model that the quantized model was made from"
            )
    floats, walk = Lockstep(graph, inputs, sources.values()), _QuantizedLockstep(target, inputs)
    for node in list(target.graph.nodes):
        if node in sources and is_recurrent(target, node):
            yield from recurrent_matrices(walk, node, graph, sources[node], floats.until(sources[node]))
        elif node in sources:
            yield GraphLayer(_Pair(floats, walk), node, sources[node])
        walk.compute(node)


def _has_integer_weight(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.op != "call_function" or getattr(node.target, "namespace", "") != "zeropoint":
        return False
    if is_recurrent(graph, node):
        return True
    a = arguments(node)
    if not {"input", "weight", "bias"} <= a.keys() or not ({"weight_scale", "scale"} & a.keys()):
        return False
    weight = parameter(graph, a["weight"])
    return weight is not None and weight.dtype in (torch.int8, torch.uint8)


def _fitting(model: Any, quantized: Quantized, batches: Iterable[Any], memory: int) -> tuple[Any, fx.GraphModule]:
    """The inputs of as many batches as fit into `memory`, one at least, and the float graph."""
    inputs: list[list[Any]] = []
    graph, most = None, 0
    for batch in batches:
        given = inputs_of(model, batch)
        if graph is None:
            if isinstance(model, fx.GraphModule):
                graph = copy.deepcopy(model)
            else:
                graph = float_graph(model, tuple(given), free_sizes(quantized.graph_module, tuple(given)))
            most = most_bytes(graph, given)
        inputs.append(given)
        if (len(inputs) + 1) * 2 * most > memory:  # of both graphs
            break
    assert graph is not None
    return inputs, graph

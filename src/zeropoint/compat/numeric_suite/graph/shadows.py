"""Layers of one graph as shadows of those of another, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from zeropoint.compat.fx.modules import free_name, is_activation_post_process
from zeropoint.compat.fx.targets import PER_TENSOR, TARGETS, dtype_argument
from zeropoint.compat.numeric_suite.graph.instrument import Layer, insert_logger, node_path, target_name
from zeropoint.compat.numeric_suite.graph.matching import Subgraph, called
from zeropoint.compat.numeric_suite.graph.related import io_types, pair_names
from zeropoint.numerics.dtypes import quint8
from zeropoint.tensor.create import dequantize

# Two tensors come in: which of them the shadow would share is not said.
_NOT_SHADOWED = pair_names() | {"stack"}


class _Kinds:
    """Which values of a graph are quantized: "int8" or "fp32"; None where that is unknown."""

    def __init__(self, gm: nn.Module, io: dict[str, set[Any]]) -> None:
        self._gm, self._io = gm, io

    def takes(self, node: fx.Node) -> str | None:
        """What a node takes."""
        if node.op == "call_method":
            if node.target == "dequantize":
                return self.of(node.args[0])
            return self.of(node.args[0]) if node.target in self._io["meths_io_type_fp32_or_int8"] else None
        kind = "mods" if node.op == "call_module" else "funs"
        call = called(self._gm, node)
        module = self._gm.get_submodule(str(node.target)) if node.op == "call_module" else None
        if is_activation_post_process(module):
            return self.of(node.args[0])
        for name in ("fp32", "int8"):
            if call in self._io[f"{kind}_io_type_{name}"]:
                both = call in self._io[f"{kind}_io_type_fp32_or_int8"]
                return self.of(node.args[0]) if both and node.args else name
        if call in self._io[f"{kind}_io_type_fp32_or_int8"] and node.args:
            return self.of(node.args[0])
        return None

    def takes_either(self, node: fx.Node) -> bool:
        """Whether a node passes on what it gets, floats or quantized tensors, and has no form for one of them alone."""
        kind = {"call_module": "mods", "call_function": "funs"}.get(node.op, "meths")
        call = node.target if node.op == "call_method" else called(self._gm, node)
        others = (self._io.get(f"{kind}_io_type_{name}", ()) for name in ("fp32", "int8"))
        return call in self._io[f"{kind}_io_type_fp32_or_int8"] and not any(call in other for other in others)

    def of(self, value: Any) -> str | None:
        """What a value is."""
        if isinstance(value, (list, tuple)):
            return self.of(value[0])
        if not isinstance(value, fx.Node):
            return None
        if value.op in ("placeholder", "get_attr"):
            return "fp32"
        if value.target == PER_TENSOR or getattr(value.target, "__name__", "") == "quantize_per_tensor":
            return "int8"
        if value.target in ("dequantize", dequantize):
            return "fp32"
        if value.op == "call_method" and value.target not in self._io["meths_io_type_fp32_or_int8"]:
            return self.of(value.args[0])
        return self.takes(value)


def _input_qparams(gm: Any, node: Any) -> tuple[Any, Any] | None:
    """Scale and zero point of what a quantized layer gets."""
    while isinstance(node, fx.Node):
        if getattr(node.target, "__name__", "") == "quantize_per_tensor":
            return _value(gm, node.args[1]), _value(gm, node.args[2])
        module = gm.get_submodule(str(node.target)) if node.op == "call_module" else None
        if module is not None and hasattr(module, "scale"):
            return module.scale, module.zero_point
        if node.op == "call_function" and len(node.args) > 3 and node.target in TARGETS.functions.values():
            return _value(gm, node.args[-2]), _value(gm, node.args[-1])
        node = node.args[0] if node.args else None
        node = node[0] if isinstance(node, (list, tuple)) and node else node
    return None


def _value(gm: Any, argument: Any) -> Any:
    return getattr(gm, str(argument.target)) if isinstance(argument, fx.Node) else argument


class _Shadows:
    def __init__(self, gm_a: fx.GraphModule, gm_b: fx.GraphModule, io: dict[str, set[Any]]) -> None:
        self.gm_a, self.gm_b, self.graph = gm_a, gm_b, fx.Graph()
        self.kinds_a, self.kinds_b = _Kinds(gm_a, io), _Kinds(gm_b, io)
        self._input_names = {node.name for node in gm_b.graph.nodes if node.op == "placeholder"}
        self.inputs: dict[str, fx.Node] = {}  # those of the new graph

    def reason_against(self, a: Subgraph, b: Subgraph) -> str:
        """Why a layer gets no shadow, or ""."""
        for node in (a.start_node, b.start_node):
            if node.op == "call_function" and getattr(node.target, "__name__", "") in _NOT_SHADOWED:
                return "it takes two tensors"
            if not node.args or not isinstance(node.args[0], (fx.Node, list, tuple)):
                return "its input is given by name"
        if self.kinds_a.takes_either(a.start_node):
            return "it has no quantized form of its own, so a shadow would tell nothing of it"
        takes_a, takes_b = self.kinds_a.takes(a.start_node), self.kinds_b.of(b.start_node.args[0])
        if takes_a is None or self.kinds_b.takes(b.start_node) is None or takes_b is None:
            return "nobody knows whether it takes quantized tensors"
        if takes_a == "int8" and takes_b == "fp32" and _input_qparams(self.gm_a, a.start_node.args[0]) is None:
            return "the scale of its input is not known"
        node, nodes = a.end_node, [a.end_node]
        while node is not a.start_node:
            node = node.args[0]
            nodes.append(node)
        for node in nodes:
            others = (*node.args[1:], *node.kwargs.values())
            if any(isinstance(other, fx.Node) and not self._is_known(other) for other in others):
                return "its other inputs are computed"
        return ""

    def _is_known(self, node: fx.Node) -> bool:
        """Whether a value is there without the layers of A: from attributes, or an input that B has, too."""
        return _is_parameter(node) or (node.op == "placeholder" and node.name in self._input_names)

    def cast(self, value: Any, a: Subgraph, b: Subgraph) -> Any:
        """A value of the graph B as the layer of A takes it."""
        if isinstance(value, (list, tuple)):
            return [self.cast(part, a, b) for part in value]
        takes_a, is_b = self.kinds_a.takes(a.start_node), self.kinds_b.of(b.start_node.args[0])
        if takes_a == is_b:
            return value
        if takes_a == "fp32":
            return self.graph.create_node("call_function", dequantize, (value,))
        scale, zero_point = _input_qparams(self.gm_a, a.start_node.args[0]) or (1.0, 0)
        nodes = []
        for name, number in (("scale", scale), ("zero_point", zero_point)):
            attribute = free_name(self.gm_b, f"{a.start_node.name}_input_{name}_")
            setattr(self.gm_b, attribute, number if not isinstance(number, torch.Tensor) else number.detach())
            nodes.append(self.graph.create_node("get_attr", attribute))
        return self.graph.create_node("call_function", PER_TENSOR, (value, *nodes, dtype_argument(quint8)))

    def copied(self, a: Subgraph, first: Any, prefix: str) -> fx.Node:
        """The layer of A in the new graph, with another input."""
        nodes = [a.end_node]
        while nodes[-1] is not a.start_node:
            nodes.append(nodes[-1].args[0])
        value = first
        for node in reversed(nodes):
            value = self._copy(node, (value, *self._parameters(node.args[1:])), self._parameters(node.kwargs), prefix)
        return value

    def _parameters(self, arguments: Any) -> Any:
        return map_arg(arguments, lambda node: self._parameter(node))

    def _parameter(self, node: fx.Node) -> fx.Node:
        if node.op == "placeholder":
            return self.inputs[node.name]
        if node.op != "get_attr":
            return self._copy(node, self._parameters(node.args), self._parameters(node.kwargs), f"{node.name}_shadow_")
        owner, _, attribute = str(node.target).rpartition(".")
        name = free_name(self.gm_b, f"{attribute}_shadow_")
        value = getattr(self.gm_a.get_submodule(owner), attribute)
        setattr(self.gm_b, name, value.detach() if isinstance(value, torch.Tensor) else value)
        return self.graph.create_node("get_attr", name)

    def _copy(self, node: fx.Node, args: Any, kwargs: Any, prefix: str) -> fx.Node:
        target = node.target
        if node.op == "call_module":
            target = free_name(self.gm_b, prefix)
            setattr(self.gm_b, target, self.gm_a.get_submodule(str(node.target)))
        return self.graph.create_node(node.op, target, args, kwargs, free_name(self.gm_b, f"{prefix}node_"))


def _is_parameter(node: fx.Node) -> bool:
    """Whether a value comes from attributes alone."""
    return node.op == "get_attr" or (bool(node.all_input_nodes) and all(map(_is_parameter, node.all_input_nodes)))


def a_shadows_b(
    name_a: str,
    gm_a: fx.GraphModule,
    name_b: str,
    gm_b: fx.GraphModule,
    pairs: dict[str, tuple[Subgraph, Subgraph]],
    logger_cls: Callable[..., nn.Module],
    should_log_inputs: bool,
    io: dict[str, set[Any]] | None = None,
) -> fx.GraphModule:
    """The graph of B, in which each layer of A gets the input of its pair in B; loggers watch both.

    Layers whose inputs cannot be shared get neither shadow nor logger.
    """
    shadows = _Shadows(gm_a, gm_b, io_types() if io is None else io)
    graph = shadows.graph
    made: dict[fx.Node, fx.Node] = {}
    by_start = {b.start_node: (name, a, b) for name, (a, b) in pairs.items() if not shadows.reason_against(a, b)}
    by_end = {b.end_node: entry for entry in by_start.values() for b in (entry[2],)}

    def load(argument: Any) -> Any:
        return map_arg(argument, lambda node: made[node])

    for node in gm_b.graph.nodes:
        if node.op == "output":
            graph.output(load(node.args[0]))
            continue
        shared = None
        if node in by_start:
            name, a, b = by_start[node]
            layer_a = Layer(name, target_name(gm_a, a.base_op_node))
            layer_b = Layer(name, target_name(gm_b, b.base_op_node))
            path_a, path_b = node_path(gm_a, a.base_op_node), node_path(gm_b, b.base_op_node)
            shared = load(node.args[0])
            if should_log_inputs:
                for within, part in enumerate(_parts(node.args[0])):
                    made[part] = insert_logger(
                        gm_b, made[part], logger_cls, "_ns_logger_b_inp_", node.name, name_b, layer_b, "node_input",
                        path_b, (0, within), target_name(gm_b, part),
                    )  # fmt: skip
        made[node] = graph.node_copy(node, load)
        if node.op == "placeholder":
            shadows.inputs[node.name] = made[node]
        if shared is not None:
            first = shadows.cast(shared, a, b)
            if should_log_inputs:
                logged = [
                    insert_logger(
                        gm_b, part, logger_cls, "_ns_logger_a_inp_", a.start_node.name, name_a, layer_a, "node_input",
                        path_a, (0, within), "",
                    )
                    for within, part in enumerate(_parts(first))
                ]  # fmt: skip
                first = logged if isinstance(first, (list, tuple)) else logged[0]
            shadow = shadows.copied(a, first, f"{node.name}_shadow_copy_")
            insert_logger(
                gm_b, shadow, logger_cls, "_ns_logger_a_", shadow.name, name_a, layer_a, "node_output", path_a, (0, 0),
                target_name(gm_a, a.end_node),
            )  # fmt: skip
        if node in by_end:
            name, _, b = by_end[node]
            layer = Layer(name, target_name(gm_b, b.base_op_node))
            made[node] = insert_logger(
                gm_b, made[node], logger_cls, "_ns_logger_b_", node.name, name_b, layer, "node_output",
                node_path(gm_b, b.base_op_node), (0, 0), target_name(gm_b, node),
            )  # fmt: skip
    return fx.GraphModule(gm_b, graph)


def _parts(value: Any) -> list[fx.Node]:
    return list(value) if isinstance(value, (list, tuple)) else [value]

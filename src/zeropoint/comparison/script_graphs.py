"""TorchScript for who compares graphs: a float model and its quantized form as graphs, with what each node of the
second means in the first.

Files of TorchScript do not say so, but both graphs come from the same code: a node of the quantized graph is the first
node of the float graph that is not taken yet, reads the same values and is the same operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from zeropoint.graph.frontends.dynamic_shapes import ALL
from zeropoint.graph.frontends.export import capture
from zeropoint.graph.frontends.script import saved_plan
from zeropoint.graph.frontends.script.evaluate import straight_graph
from zeropoint.graph.passes.canonicalize import make_plain
from zeropoint.graph.passes.fold_batch_norm import fold_batch_norm
from zeropoint.graph.passes.fold_linear import fold_linear
from zeropoint.graph.provenance import Identity, Origin, Represented, identify, identity, origin, represented
from zeropoint.graph.summary import Summary
from zeropoint.graph.to_int8 import call_of
from zeropoint.graph.workflow import Quantized
from zeropoint.numerics import scalars
from zeropoint.operators import BY_ATEN, STEPS
from zeropoint.operators.node import arguments, aten_name
from zeropoint.operators.steps import emit_same

_SAME = frozenset(call.removeprefix("aten.") for call, emit in STEPS.items() if emit is emit_same) | {
    "feature_dropout.default"
}
_BORDERS = ("quantize_per_tensor", "dequantize", "dequantize_per_tensor", "requantize")
_SUFFIXES = ("_fp16", "_dynamic", "_to_float", "_relu", "_scalar", "_byte", "_4bit", "_rowwise_offsets")


def graphs_of(float_model: Any, quantized: Any, batch: Any) -> tuple[fx.GraphModule, Quantized]:
    """The graphs of a model, TorchScript or not, and of the TorchScript that quantization made of it.

    Args:
        batch: one to run on, from which the shapes are taken.

    Raises:
        NotStraight: if what they compute depends on data.
    """
    args, kwargs = call_of(batch)
    if kwargs:
        raise ValueError("a batch for a TorchScript model must be a tensor or a tuple of arguments, got a dictionary")
    is_script = isinstance(float_model, torch.jit.ScriptModule)
    source = (
        straight_graph("compare", float_model, args) if is_script else capture(float_model, args, dynamic_shapes=ALL)
    )
    made = straight_graph("compare", quantized, args)
    for graph in (source, made):
        make_plain(graph)
    fold_linear(source)
    fold_batch_norm(source)
    identify(source)
    _Matching(source).run(made)
    return source, Quantized(made, _summary(quantized))


def _summary(quantized: Any) -> Summary:
    try:
        return saved_plan.summary(quantized)
    except TypeError:
        return Summary(())


class _Matching:
    """Which float node each quantized one stands for."""

    def __init__(self, source: fx.GraphModule) -> None:
        nodes = list(source.graph.nodes)
        self.by_identity = {identity(node): node for node in nodes}
        self.inputs = [node for node in nodes if node.op == "placeholder"]
        self.readers: dict[tuple[Identity, ...], list[fx.Node]] = {}
        for node in nodes:
            if node.op == "call_function" and _is_tensor(node) and aten_name(node) not in _SAME:
                self.readers.setdefault(self.reads(node), []).append(node)

    def root(self, node: fx.Node) -> fx.Node:
        """A float node without what does nothing behind it."""
        while aten_name(node) in _SAME and isinstance(before := node.args[0], fx.Node):
            node = before
        return node

    def reads(self, node: fx.Node) -> tuple[Identity, ...]:
        """The values that a float node reads, parameters and sizes left out."""
        return tuple(identity(self.root(n)) for n in node.all_input_nodes if n.op != "get_attr" and _is_tensor(n))

    def run(self, made: fx.GraphModule) -> None:
        inputs = iter(self.inputs)
        for node in made.graph.nodes:
            if node.op == "placeholder":
                node.meta["represented"] = Represented(identity(next(inputs)))
            elif node.op == "call_function" and _is_tensor(node):
                self.explain(node)

    def explain(self, node: fx.Node) -> None:
        """Write down what a node of the quantized graph holds, if a float node holds the same."""
        tensors = [n for n in node.all_input_nodes if _is_tensor(n) and n.op != "get_attr"]
        known = [m for n in tensors if (m := represented(n)) is not None]
        kind = _kind(node)
        if kind in _BORDERS or aten_name(node) in _SAME:
            if known:
                node.meta["represented"] = _with_scale(node, known[0].value, known[0])
                node.meta["origin"] = Origin(origin(self.by_identity[known[0].value]).path, None)
            return
        found = self.counterpart(node, kind, tuple(m.value for m in known)) if known or not tensors else None
        if found is not None:
            result = found
            if isinstance(node.meta["val"], Tensor) and not isinstance(found.meta["val"], Tensor):
                result = self.behind(result, lambda n: n.target is operator.getitem and n.args[1] == 0)
            if "_relu" in str(node.target):  # part of the quantized layer
                result = self.behind(result, lambda n: (aten_name(n) or "").startswith("relu."))
            node.meta["represented"] = _with_scale(node, identity(result), known[0] if known else None)
            node.meta["origin"] = Origin(origin(found).path, None)

    def counterpart(self, node: fx.Node, kind: str, read: tuple[Identity, ...]) -> fx.Node | None:
        """The first float node that fits and reads the same; else one that fits or reads the same, nearly."""
        same = self.readers.get(read, [])
        nearly = [c for key, several in self.readers.items() if read and key[:1] == read[:1] for c in several]
        fitting = ([c for c in several if self.fits(node, kind, c)] for several in (same, nearly))
        for candidates in (*fitting, same if read else []):
            if candidates:
                found = candidates[0]
                self.readers[self.reads(found)].remove(found)
                return found
        return None

    def behind(self, node: fx.Node, wanted: Callable[[fx.Node], bool]) -> fx.Node:
        """The reader of a float node that is wanted, or the node itself."""
        readers = self.readers.get((identity(node),), [])
        found = next(filter(wanted, readers), None)
        if found is None:
            return node
        readers.remove(found)
        return found

    def fits(self, node: fx.Node, kind: str, candidate: fx.Node) -> bool:
        if node.target is operator.getitem or candidate.target is operator.getitem:
            return node.target is candidate.target and node.args[1] == candidate.args[1]
        name = aten_name(candidate) or ""
        recipe = BY_ATEN.get(name)
        return kind in (name.split(".")[0], recipe.name if recipe is not None else None)


def _kind(node: fx.Node) -> str:
    """``conv2d`` of ``zeropoint.conv2d_relu``, ``reshape`` of ``aten.reshape.default``."""
    schema = getattr(node.target, "_schema", None)
    name = schema.name.split("::")[1] if schema is not None else str(node.target)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _is_tensor(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) or (
        isinstance(value, (tuple, list)) and bool(value) and isinstance(value[0], Tensor)
    )


def _with_scale(node: fx.Node, held: Identity, before: Represented | None) -> Represented:
    """That `node` has the value `held`; if as integers, with its operator's scale, or else with the one before."""
    value = node.meta["val"]
    dtype = value.dtype if isinstance(value, Tensor) else getattr(before, "dtype", None)
    if dtype not in (torch.uint8, torch.int8):
        return Represented(held)
    a = arguments(node) if hasattr(node.target, "_schema") else {}
    if "_scalar" in str(node.target):
        derive = scalars.sum_parameters if "add_scalar" in str(node.target) else scalars.product_parameters
        return Represented(held, *derive(a["input_scale"], a["input_zero_point"], a["other"], dtype), dtype)
    if isinstance(a.get("scale"), float):
        return Represented(held, a["scale"], int(a["zero_point"]), dtype)
    return Represented(held) if before is None else Represented(held, before.scale, before.zero_point, dtype)

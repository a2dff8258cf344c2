"""Functions of reference models on quantized tensors: layers whose weight is an argument, sums and products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import fx

from zeropoint.compat.fx.reference import (
    is_dequantize,
    is_dynamic_quantize,
    is_quantize,
    is_relu,
    static_match,
    stays_float,
)
from zeropoint.compat.fx.targets import PER_CHANNEL, call
from zeropoint.operators import Observed, operators, traced

# Function -> the name of its quantized form.
_SUMS = {call: record.name for record in traced(Observed.SUM, Observed.PRODUCT) for call in record.traced_calls}


def _layers() -> dict[Any, Any]:
    """Function of a layer -> its record."""
    return {function: record for record in operators() if record.is_layer for function in record.functions}


def _prepack(graph: fx.Graph, node: fx.Node, record: Any, weight: fx.Node) -> fx.Node:
    """The node that packs a weight with its bias and the numbers of the layer."""
    args, kwargs = list(node.args[2:]), dict(node.kwargs)
    if record.name == "linear":
        bias = kwargs.get("bias", args[0] if args else None)
        is_half = weight.op == "call_method"
        return graph.call_function(call("linear_prepack_fp16" if is_half else "linear_prepack"), (weight, bias))
    names = ["bias", "stride", "padding", "dilation", "groups"]
    if "transpose" in record.name:
        names = ["bias", "stride", "padding", "output_padding", "groups", "dilation"]
    given = {**dict(zip(names, args)), **kwargs}
    dims = int(record.name[-2])
    order = ["stride", "padding", *(["output_padding"] if "transpose" in record.name else []), "dilation"]
    missing = {"stride": 1, "dilation": 1}
    numbers = [_each(given.get(name, missing.get(name, 0)), dims) for name in order]
    packed = (weight, given.get("bias"), *numbers, given.get("groups", 1))
    return graph.call_function(call(f"{record.name}_prepack"), packed)


def _each(value: Any, dims: int) -> Any:
    return [value] * dims if isinstance(value, int) else value


def lower_functions(model: fx.GraphModule, qconfigs: Mapping[str, Any]) -> None:
    """Layers with calibrated inputs."""
    modules, layers = dict(model.named_modules(remove_duplicate=False)), _layers()
    for node in list(model.graph.nodes):
        match = static_match(node, modules, qconfigs, layers, (0, 1))
        if match is None:
            continue
        record, layer = layers[match.node.target], match.node
        weight = layer.args[1].args[0] if len(layer.args) > 1 else None
        if not (is_quantize(weight) or (isinstance(weight, fx.Node) and weight.target is PER_CHANNEL)):
            continue
        scale, zero_point = match.quantize.args[1:3]
        with model.graph.inserting_before(scale):
            packed = _prepack(model.graph, layer, record, weight)
        fuses = match.relu is not None and record.relu
        layer.target = call(f"{record.name}{'_relu' if fuses else ''}")
        layer.args = (layer.args[0].args[0], packed, scale, zero_point)
        layer.kwargs = {}
        match.quantize.replace_all_uses_with(layer)
        zero_point.append(layer)
        model.graph.erase_node(match.quantize)
        if match.relu is not None:
            if fuses:
                model.graph.erase_node(match.relu)
            else:
                _keep_relu(layer, match.relu)


def _keep_relu(layer: fx.Node, relu: fx.Node) -> None:
    """A ReLU that the layer has not taken in, on its quantized result."""
    layer.replace_all_uses_with(relu, delete_user_cb=lambda user: user is not relu)
    layer.append(relu)


_DYNAMIC = {
    ("quint8", "qint8"): "_dynamic",
    ("qint8", "qint8"): "_dynamic",
    ("float16", "float16"): "_dynamic_fp16",
}


def _dtype_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def lower_dynamic_functions(model: fx.GraphModule, qconfigs: Mapping[str, Any]) -> None:
    """Linear layers whose inputs are quantized while the model runs."""
    modules, graph = dict(model.named_modules(remove_duplicate=False)), model.graph
    for node in reversed(list(graph.nodes)):
        relu = node if is_relu(node, modules) else None
        layer: Any = node.args[0] if relu is not None else node
        if not isinstance(layer, fx.Node) or layer.op != "call_function" or layer.target is not F.linear:
            continue
        if stays_float(layer, qconfigs) or len(layer.args) < 2 or not all(map(is_dequantize, layer.args[:2])):
            continue
        quantize, weight = (argument.args[0] for argument in layer.args[:2])
        if not is_dynamic_quantize(quantize):
            continue
        source, dtype, reduce_range = quantize.args
        suffix = _DYNAMIC.get((_dtype_name(dtype), _dtype_name(weight.args[-1])))
        if suffix is None:
            continue
        record = _layers()[layer.target]
        with graph.inserting_before(layer):
            packed = _prepack(graph, layer, record, weight)
        layer.target = call(f"linear{'_relu' if relu is not None else ''}{suffix}")
        layer.args = (source, packed) if suffix.endswith("fp16") else (source, packed, reduce_range)
        layer.kwargs = {}
        if relu is not None:
            relu.replace_all_uses_with(layer)
            graph.erase_node(relu)


def lower_sums(model: fx.GraphModule, qconfigs: Mapping[str, Any]) -> None:
    """Sums and products, of two quantized tensors or of one and a number, with a ReLU behind them or without."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in list(model.graph.nodes):
        match = static_match(node, modules, qconfigs, _SUMS, (0, 1))
        if match is None:
            continue
        args = [a.args[0] if is_dequantize(a) else a for a in match.node.args]
        if sum(map(is_dequantize, match.node.args)) == 2:
            args += match.quantize.args[1:3]
        elif not is_dequantize(match.node.args[0]):
            args.reverse()  # the tensor first, as scripted code wants it: both operations commute
        name = _SUMS[match.node.target]
        with model.graph.inserting_after(match.quantize):
            made = model.graph.call_function(call(f"{name}{'_relu' if match.relu is not None else ''}"), tuple(args))
        made.stack_trace = match.node.stack_trace
        match.quantize.replace_all_uses_with(made)
        model.graph.erase_node(match.quantize)
        if match.relu is not None:
            model.graph.erase_node(match.relu)
        model.graph.erase_node(match.node)

"""The weight that a node of a graph computes with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx, nn

from zeropoint.compat.fx.targets import TARGETS
from zeropoint.compat.numeric_suite.graph.matching import called
from zeropoint.compat.numeric_suite.graph.related import related_sets
from zeropoint.nn import quantized as nnq
from zeropoint.nn.intrinsic import FusedModule
from zeropoint.nn.quantized import dynamic as nnqd
from zeropoint.operators import layer_records, modules_of

_RECORDS = tuple(layer_records(transposed=False))
_LAYERS = modules_of(_RECORDS)
_FUNCTIONS = tuple(function for record in _RECORDS for function in record.functions)
_FORMS = ("", "_relu", "_dynamic", "_relu_dynamic", "_dynamic_fp16", "_relu_dynamic_fp16")
_QUANTIZED = tuple(record.name + form for record in _RECORDS for form in _FORMS)


def _of_layer(module: Any) -> Tensor:
    layer = module[0] if isinstance(module, FusedModule) and not hasattr(module, "weight") else module
    weight = layer.weight
    return weight() if callable(weight) else weight.detach()


def _of_lstm(module: Any) -> list[Tensor]:
    if isinstance(module, nnqd.LSTM):
        cells = [values.param for values in module._all_weight_values]
        return [part.unpack()[0] for cell in cells for part in (cell.w_ih, cell.w_hh)]
    return [weight.detach() for name, weight in module.named_parameters() if "weight" in name]


def _attribute(gm: nn.Module, path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return getattr(gm.get_submodule(owner), name)


def _source(node: fx.Node) -> fx.Node:
    """The attribute behind observers and conversions of a weight."""
    while node.op != "get_attr" and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def weight_of_function(node: fx.Node, gm: nn.Module) -> Tensor | None:
    """The weight that a function of floats is called with, if it is an attribute."""
    weight = node.args[1] if len(node.args) > 1 else node.kwargs.get("weight")
    if not isinstance(weight, fx.Node) or (source := _source(weight)).op != "get_attr":
        return None
    found = _attribute(gm, str(source.target)).detach()
    # A float16 weight is converted on its way.
    step: Any = weight
    while step is not source:
        if step.op == "call_method" and step.target == "to":
            found = found.to(step.args[1])
        step = step.args[0]
    return found


def _of_packed(node: fx.Node, gm: nn.Module) -> Tensor | None:
    packed = node.args[1]
    if not isinstance(packed, fx.Node) or packed.op != "get_attr":
        return None
    return _attribute(gm, str(packed.target)).unpack()[0]


def weight_extraction() -> dict[str, dict[Any, Callable[..., Any]]]:
    """Kind of node -> what it calls -> the function that gives its weight."""
    modules: dict[Any, Callable[..., Any]] = {}
    for members in related_sets().values():
        if any(layer in members for layer in _LAYERS):
            modules |= {member: _of_layer for member in members if isinstance(member, type)}
    modules |= {nn.LSTM: _of_lstm, nnqd.LSTM: _of_lstm}
    modules.pop(nnq.LSTM, None)
    functions: dict[Any, Callable[..., Any]] = dict.fromkeys(_FUNCTIONS, weight_of_function)
    functions |= {TARGETS.functions[name]: _of_packed for name in _QUANTIZED if name in TARGETS.functions}
    return {"call_module": modules, "call_function": functions}


def weight_of(node: fx.Node, gm: nn.Module, extraction: dict[str, dict[Any, Any]] | None = None) -> Any:
    """The weight of a node, a list for a recurrent layer; None if it has none."""
    known = (weight_extraction() if extraction is None else extraction).get(node.op, {})
    extract = known.get(called(gm, node))
    if extract is None:
        return None
    return extract(gm.get_submodule(str(node.target))) if node.op == "call_module" else extract(node, gm)

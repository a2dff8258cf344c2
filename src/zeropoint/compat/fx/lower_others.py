"""Operators of one tensor on quantized tensors: those that keep the scale of their input, norms, activations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from zeropoint.compat.fx.modules import set_module
from zeropoint.compat.fx.reference import is_dequantize, is_quantize
from zeropoint.compat.fx.targets import call
from zeropoint.operators import Observed, eager_functions, module_forms, traced
from zeropoint.operators.registry import BY_NAME

# Arguments of float functions that their quantized forms do not have.
_DROPPED = ("inplace", "running_mean", "running_var", "use_input_stats", "momentum")
_WITH_OWN_RANGE = (Observed.OWN, Observed.NORM, Observed.BATCH_NORM)


def _calls(*observed: Observed) -> set[Any]:
    return {call for record in traced(*observed) for call in record.traced_calls}


def _quantized_modules() -> dict[type, type]:
    """Module, or reference of a transposed convolution -> its quantized form, which has a scale of its own."""
    known = {form.module: form.static for _, form in module_forms() if form.static is not None}
    fused = {fusion.evaluation for fusion in BY_NAME["batch_norm"].fusions}
    named = {*_calls(*_WITH_OWN_RANGE, Observed.FIXED), *fused}
    found = {kind: known[kind] for kind in named if isinstance(kind, type) and kind in known}
    for record, form in module_forms():
        if "transpose" in record.name and form.reference is not None and form.static is not None:
            found[form.reference] = form.static
    return found


def _is_half(node: fx.Node) -> bool:
    return node.op == "call_method" and node.target == "to" and node.args[1:] == (torch.float16,)


def lower_others(model: fx.GraphModule) -> None:
    """Let operators between dequantize and quantize take and give quantized tensors."""
    own, fixed = _calls(*_WITH_OWN_RANGE), _calls(Observed.FIXED)
    kept = _calls(Observed.SHARED, Observed.JOINED, Observed.PASSED, Observed.INFO)
    swapped = _quantized_modules()
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in list(model.graph.nodes):
        is_half = _is_half(node)
        source = node.args[0] if node.args else None
        if not (is_quantize(node) or is_half) or not isinstance(source, fx.Node):
            continue
        called: Any = type(modules[str(source.target)]) if source.op == "call_module" else source.target
        if called not in kept and (is_half or not (called in own or called in fixed or called in swapped)):
            continue
        taken = _first_tensors(source)
        if taken is None:
            continue
        if source.op == "call_module" and called in swapped and not is_half:
            _swap(model, node, source, modules[str(source.target)], swapped[called])
        for value in taken:
            source.replace_input_with(value, value.args[0])
        numbers = node.args[1:3]
        node.replace_all_uses_with(source)
        model.graph.erase_node(node)
        if source.op == "call_function" and called in own:
            _call_quantized(model, source, numbers)
        else:
            for number in numbers:
                if isinstance(number, fx.Node):
                    model.graph.erase_node(number)


def _first_tensors(node: fx.Node) -> list[fx.Node] | None:
    """The dequantized tensors that a node is called with first; None if one of them is not dequantized."""
    first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    parts = list(first) if isinstance(first, (list, tuple)) else [first]
    return parts if parts and all(map(is_dequantize, parts)) else None


def _swap(model: fx.GraphModule, quantize: fx.Node, node: fx.Node, module: nn.Module, kind: Any) -> None:
    scale, zero_point = (getattr(model, number.target) for number in quantize.args[1:3])
    set_module(model, str(node.target), kind.from_reference(module, scale, zero_point))


def _call_quantized(model: fx.GraphModule, node: fx.Node, numbers: tuple[Any, ...]) -> None:
    """A function whose result has a scale of its own."""
    function = eager_functions().get(node.target)
    if function is None:
        raise NotImplementedError(
            f"{node.target} has no quantized version; keep {node.name} in float by setting its qconfig to None"
        )
    kwargs = {name: value for name, value in node.kwargs.items() if name not in _DROPPED}
    kwargs |= {"output_scale": numbers[0], "output_zero_point": numbers[1]}
    if node.target is F.leaky_relu:
        kwargs |= {k: v for k, v in node.kwargs.items() if k == "inplace"}
    with model.graph.inserting_after(numbers[1]):
        made = model.graph.call_function(call(function.__name__), node.args, kwargs)
    made.stack_trace = node.stack_trace
    node.replace_all_uses_with(made)
    model.graph.erase_node(node)

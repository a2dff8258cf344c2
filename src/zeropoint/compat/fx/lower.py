"""A reference model on integers: ``dequantize, operator, quantize`` becomes the quantized operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from zeropoint.compat.fx.lower_functions import lower_dynamic_functions, lower_functions, lower_sums
from zeropoint.compat.fx.lower_others import lower_others
from zeropoint.compat.fx.modules import called_module, set_module
from zeropoint.compat.fx.packed_weights import pack_weights
from zeropoint.compat.fx.qconfigs import Scopes
from zeropoint.compat.fx.reference import is_dequantize, is_dynamic_quantize, static_match
from zeropoint.nn.intrinsic import ConvAdd2d, ConvAddReLU2d, FusedModule
from zeropoint.operators import module_forms, operators


def lower(
    model: fx.GraphModule, qconfigs: Mapping[str, Any], scopes: Scopes, keep_original_weights: bool
) -> fx.GraphModule:
    """The model with quantized modules and functions; nodes whose qconfig is None stay as they are."""
    _lower_layers(model, qconfigs)
    _lower_sums_into_layers(model, qconfigs)
    _lower_dynamic_modules(model)
    _lower_embeddings(model)
    lower_functions(model, qconfigs)
    lower_dynamic_functions(model, qconfigs)
    lower_sums(model, qconfigs)
    _ask_quantized_tensors(model)
    lower_others(model)
    model.graph.eliminate_dead_code()
    made = pack_weights(model, scopes, keep_original_weights)
    made.graph.eliminate_dead_code()
    made.recompile()
    made.graph.lint()
    return made


# ----------------------------------------------------------------------------------------------------- modules' forms


def _quantized_forms(form: str) -> dict[type, tuple[type | None, type]]:
    """Reference or fused module -> (the reference module inside it, its quantized form)."""
    found: dict[type, tuple[type | None, type]] = {}
    for record in operators():
        forms = {f.module: f for f in record.forms}
        roots = [forms[m] for m in record.modules if m in forms and forms[m].reference is not None]
        for root in roots:
            if getattr(root, form) is not None:
                found[root.reference] = (None, getattr(root, form))  # type: ignore[index]
            for other in record.forms:
                if issubclass(other.module, FusedModule) and getattr(other, form) is not None:
                    found[other.module] = (root.reference, getattr(other, form))
    return found


def _swap(model: fx.GraphModule, node: fx.Node, module: Any, *numbers: Any, form: str) -> bool:
    """Put the quantized form where a reference module is; False if it has none."""
    inside, quantized = _quantized_forms(form)[type(module)]
    if inside is not None and type(module[0]) is not inside:
        return False
    set_module(model, str(node.target), quantized.from_reference(module, *numbers))  # type: ignore[attr-defined]
    return True


def _numbers(model: fx.GraphModule, quantize: fx.Node) -> tuple[Any, Any]:
    scale, zero_point = quantize.args[1:3]
    return getattr(model, scale.target), getattr(model, zero_point.target)


def _replace(model: fx.GraphModule, quantize: fx.Node, node: fx.Node) -> None:
    """The quantized `node` stands for what was quantized behind it."""
    for argument in node.args:
        if is_dequantize(argument):
            node.replace_input_with(argument, argument.args[0])
    quantize.replace_all_uses_with(node)
    numbers = quantize.args[1:3]
    model.graph.erase_node(quantize)
    for number in numbers:
        model.graph.erase_node(number)


def _lower_layers(model: fx.GraphModule, qconfigs: Mapping[str, Any]) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    known = {kind for kind in _quantized_forms("static") if kind not in (ConvAdd2d, ConvAddReLU2d)}
    known -= _transposed()
    for node in list(model.graph.nodes):
        match = static_match(node, modules, qconfigs, known, (0,))
        if match is None or match.relu is not None:
            continue
        module = called_module(match.node, modules)
        if _swap(model, match.node, module, *_numbers(model, match.quantize), form="static"):
            _replace(model, match.quantize, match.node)


def _transposed() -> set[Any]:
    """Reference modules of transposed convolutions, which no activation is fused with."""
    return {f.reference for record, f in module_forms() if "transpose" in record.name}


def _lower_sums_into_layers(model: fx.GraphModule, qconfigs: Mapping[str, Any]) -> None:
    """Convolutions that add a second input."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in list(model.graph.nodes):
        match = static_match(node, modules, qconfigs, {ConvAdd2d, ConvAddReLU2d}, (0, 1))
        if match is None or match.relu is not None or not all(map(is_dequantize, match.node.args)):
            continue
        module = called_module(match.node, modules)
        if _swap(model, match.node, module, *_numbers(model, match.quantize), form="static"):
            _replace(model, match.quantize, match.node)


def _lower_dynamic_modules(model: fx.GraphModule) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    known = _quantized_forms("dynamic")
    for node in model.graph.nodes:
        module = called_module(node, modules)
        if type(module) not in known or not node.args or not is_dequantize(node.args[0]):
            continue
        quantize = node.args[0].args[0]
        if is_dynamic_quantize(quantize) and _swap(model, node, module, form="dynamic"):
            node.replace_input_with(node.args[0], quantize.args[0])


def _lower_embeddings(model: fx.GraphModule) -> None:
    modules = dict(model.named_modules(remove_duplicate=False))
    known = {f.reference for record, f in module_forms() if record.name.startswith("embedding") and f.reference}
    for node in model.graph.nodes:
        module = called_module(node, modules)
        if type(module) in known:
            _swap(model, node, module, form="static")


def _ask_quantized_tensors(model: fx.GraphModule) -> None:
    """What asks for a size asks the quantized tensor, not the dequantized one."""
    for node in model.graph.nodes:
        is_shape = node.op == "call_function" and node.target is getattr and node.args[1] == "shape"
        is_size = node.op == "call_method" and node.target in ("shape", "size")
        if (is_shape or is_size) and is_dequantize(node.args[0]):
            node.args = (node.args[0].args[0], *node.args[1:])

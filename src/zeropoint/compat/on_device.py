"""Dynamic quantization on the device that runs a TorchScript model: methods that observe, quantize and compute.

A prepared model has ``observe_forward`` and ``reset_observers_forward`` beside ``forward``; a converted one also has
``quantize_forward``, which quantizes the weights and drops the float ones, and ``quantized_forward``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zeropoint.compat.fx.qconfig_dtypes import QuantType
from zeropoint.compat.on_device_operators import OPERATORS, PLAN
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.script import saved_plan
from zeropoint.graph.frontends.script.observers import scripted
from zeropoint.graph.frontends.script.script_module import (
    SCRIPT_OBSERVER,
    modules,
    of_kind,
    path_of,
    private_copy,
    result,
)
from zeropoint.graph.frontends.script.write import call_observer
from zeropoint.numerics.dtypes import qint8
from zeropoint.ops.rounding import linear_takes_7_bits

_PACKED = "_packed_"  # submodules with packed weights are named so, and numbered

# What the sources below call; torch.ops.quantized is another namespace while zeropoint.compat is installed.
_NAMES = {"torch": torch, **{name: internals.operator_namespace(name, used) for name, used in OPERATORS.items()}}


class LinearPackedParamsBase(nn.Module):
    """The packed weight of a layer: nothing, until ``quantize_forward`` was called."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: Any = torch.jit.Attribute([], list[Tensor])


# ------------------------------------------------------------------------------------------------------------- prepare


def _prepare_ondevice_jit(
    model: Any,
    qconfig_dict: Mapping[str, Any],
    method_name: str = "forward",
    inplace: bool = False,
    quant_type: int = QuantType.STATIC,
) -> Any:
    """Give a ScriptModule ``observe_forward`` and ``reset_observers_forward``, which watch weights of linear layers.

    Raises:
        ValueError: for another kind of quantization than dynamic, and for a model that is prepared already.
        NotImplementedError: for weights that are not to be qint8.
    """
    name = "_prepare_ondevice_dynamic_jit"
    _require_dynamic(name, quant_type)
    module = private_copy(name, model)
    if module._has_method(f"observe_{method_name}"):
        raise ValueError(f"{name}: the model is already prepared: pass the original model")
    internals.inline(module._get_method(method_name).graph)
    observers: dict[tuple[str, str | None], Any] = {}
    qconfigs = _qconfigs(module, qconfig_dict)
    for _, layer in _linear_layers(module, method_name):
        qconfig = _of_module(qconfigs, layer[0].rpartition(".")[0])
        if qconfig is not None and layer not in observers:
            observers[layer] = _add_observer(module, f"{SCRIPT_OBSERVER}{len(observers)}", qconfig.weight(), layer[0])
    numbers = {layer: number for number, layer in enumerate(observers)}
    graph = _copy(module, method_name, f"observe_{method_name}")
    for node, layer in _linear_layers(module, f"observe_{method_name}"):
        if layer in numbers:
            call_observer(graph, module, node, 1, f"{SCRIPT_OBSERVER}{numbers[layer]}")
    resets = [f"self.{SCRIPT_OBSERVER}{number}.reset_min_max_vals()" for number in numbers.values()]
    internals.define(module, _source(f"reset_observers_{method_name}", "self", resets), _NAMES)
    layers = [(*layer, _axis(observer)) for layer, observer in observers.items()]
    saved_plan.store(module, PLAN, {"method": method_name, "layers": layers})
    return result(model, module, inplace)


def _require_dynamic(name: str, quant_type: int) -> None:
    if quant_type != QuantType.DYNAMIC:
        raise ValueError(f"{name}: only dynamic quantization (QuantType.DYNAMIC) can be done on a device")


def _qconfigs(module: Any, qconfig_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(qconfig_dict, Mapping):
        raise TypeError(f"qconfig_dict must be a dictionary of module paths, got {type(qconfig_dict).__name__}")
    known = {path for path, _ in modules(module)}
    for path in qconfig_dict:
        if path not in known:
            warnings.warn(f"qconfig_dict: the model has no module {path!r}", stacklevel=4)
    return qconfig_dict


def _of_module(qconfigs: Mapping[str, Any], path: str) -> Any:
    """The qconfig of a module: its own, or that of the nearest module around it."""
    while path and path not in qconfigs:
        path = path.rpartition(".")[0]
    return qconfigs.get(path)


def _add_observer(module: Any, name: str, observer: Any, weight: str) -> Any:
    if observer.dtype != qint8:
        raise NotImplementedError(
            f"weights are quantized to qint8 on the device; the qconfig of {weight!r} asks for {observer.dtype}:"
            " use quantize_dynamic_jit"
        )
    made = scripted(observer)
    internals.add_attribute(module, name, made._type(), made)
    return observer


def _axis(observer: Any) -> int | None:
    return int(observer.ch_axis) if "per_channel" in str(observer.qscheme) else None


def _linear_layers(module: Any, method: str) -> list[tuple[Any, tuple[str, str | None]]]:
    """The linear layers of an inlined method, with the paths of weight and bias, where modules have them."""

    def found() -> Iterator[tuple[Any, tuple[str, str | None]]]:
        graph = module._get_method(method).graph
        for node in of_kind(graph, "aten::linear"):
            weight, bias = (_path(graph, node.inputsAt(index)) for index in (1, 2))
            if weight is not None and (bias is not None or node.inputsAt(2).type().kind() == "NoneType"):
                yield node, (weight, bias)

    return list(found())


def _path(graph: Any, value: Any) -> str | None:
    """What a value is read from, if source code can name it."""
    path = path_of(graph, value)
    return path if path and all(part.isidentifier() or part.isdigit() for part in path.split(".")) else None


def _copy(module: Any, method: str, name: str) -> Any:
    """The graph of a new method, `name`, that is a copy of `method`."""
    schema = module._get_method(method).schema
    given = ", ".join(argument.name for argument in schema.arguments[1:])
    internals.define(module, _source(name, _declared(schema), [f"return self.{method}({given})"]), _NAMES)
    graph = module._get_method(name).graph
    internals.inline(graph)
    return graph


def _declared(schema: Any) -> str:
    return ", ".join(["self", *(f"{a.name}: {a.type.annotation_str}" for a in schema.arguments[1:])])


def _source(name: str, arguments: str, lines: list[str]) -> str:
    return "\n    ".join([f"def {name}({arguments}):", *(lines or ["pass"])]) + "\n"


def _read(path: str) -> str:
    """Source that reads an attribute of the model; names of modules in lists are numbers."""
    read = "self"
    for part in path.split("."):
        read = f"getattr({read}, '{part}')" if part.isdigit() else f"{read}.{part}"
    return read


def _prepare_ondevice_dynamic_jit(
    model: Any, qconfig_dict: Mapping[str, Any], method_name: str = "forward", inplace: bool = False
) -> Any:
    """`_prepare_ondevice_jit` for dynamic quantization, the one kind that it has."""
    return _prepare_ondevice_jit(model, qconfig_dict, method_name, inplace, QuantType.DYNAMIC)


# ------------------------------------------------------------------------------------------------------------- convert


def _convert_ondevice_jit(
    model: Any, method_name: str, inplace: bool = False, debug: bool = False, quant_type: int = QuantType.STATIC
) -> Any:
    """Give a model of `_prepare_ondevice_jit` ``quantize_forward`` and ``quantized_forward``.

    Raises:
        ValueError: for another kind of quantization than dynamic, and for a model or method that is not prepared.
    """
    name = "_convert_ondevice_dynamic_jit"
    _require_dynamic(name, quant_type)
    module = private_copy(name, model)
    plan = saved_plan.load(module, PLAN)
    if plan is None or plan["method"] != method_name:
        raise ValueError(f"{name} expects a model whose method {method_name!r} was prepared")
    lines = []
    for number, (weight, bias, axis) in enumerate(plan["layers"]):
        made = torch.jit.script(LinearPackedParamsBase())._c
        internals.add_attribute(module, f"{_PACKED}{number}", made._type(), made)
        lines += _packing(number, weight, bias, axis)
    lines += dict.fromkeys(f"{_read(weight)} = torch.empty([0])" for weight, *_ in plan["layers"])
    quantize = f"quantize_{method_name}"
    internals.define(module, _source(quantize, _declared(module._get_method(method_name).schema), lines), _NAMES)
    _make_constant(module._get_method(quantize).graph)
    numbers = {(weight, bias): number for number, (weight, bias, _) in enumerate(plan["layers"])}
    graph = _copy(module, method_name, f"quantized_{method_name}")
    for node, layer in _linear_layers(module, f"quantized_{method_name}"):
        if layer in numbers:
            _compute(graph, module, node, f"{_PACKED}{numbers[layer]}")
    internals.remove_dead_code(graph)
    return result(model, module, inplace)


def _make_constant(graph: Any) -> None:
    """Let a constant be the empty tensor that float weights become."""
    for node in of_kind(graph, "aten::empty"):
        with graph.insert_point_guard(node):
            node.output().replaceAllUsesWith(graph.insertConstant(torch.empty(0)))
    internals.remove_dead_code(graph)


def _packing(number: int, weight: str, bias: str | None, axis: int | None) -> list[str]:
    """The lines that quantize and pack a weight."""
    parameters = f"scale_{number}, zero_point_{number}"
    call = "quantize_per_tensor" if axis is None else "quantize_per_channel"
    where = "" if axis is None else f"{axis}, "
    quantized = f"aten.{call}({_read(weight)}, {parameters}, {where}'{qint8.name}')"
    more = "" if bias is None else f", {_read(bias)}"
    return [
        f"{parameters} = self.{SCRIPT_OBSERVER}{number}.calculate_qparams()",
        f"self.{_PACKED}{number}.parts = quantized.linear_prepack({quantized}{more})",
    ]


def _compute(graph: Any, module: Any, node: Any, packed: str) -> None:
    """Let a packed weight take the place of that of a linear layer."""
    read = graph.create("prim::GetAttr", [next(graph.inputs())], 1)
    read.s_("name", packed)
    read.output().setType(module.getattr(packed)._type())
    parts = graph.create("prim::GetAttr", [read.output()], 1)
    parts.s_("name", "parts")
    parts.output().setType(internals.list_of_tensors_type())
    with graph.insert_point_guard(node):
        reduce_range = graph.insertConstant(linear_takes_7_bits())
    made = graph.create("quantized::linear_dynamic", [node.inputsAt(0), parts.output(), reduce_range], 1)
    made.output().setType(internals.tensor_type())
    for new in (read, parts, made):
        new.insertBefore(node)
    node.output().replaceAllUsesWith(made.output())
    node.destroy()


def _convert_ondevice_dynamic_jit(model: Any, method_name: str, inplace: bool = False, debug: bool = False) -> Any:
    """`_convert_ondevice_jit` for dynamic quantization, the one kind that it has."""
    return _convert_ondevice_jit(model, method_name, inplace, debug, QuantType.DYNAMIC)


def _quantize_ondevice_dynamic_jit_impl(
    model: Any, qconfig_dict: Mapping[str, Any], method_name: str, inplace: bool = False
) -> Any:
    """`_prepare_ondevice_dynamic_jit` and `_convert_ondevice_dynamic_jit`."""
    prepared = _prepare_ondevice_dynamic_jit(model, qconfig_dict, method_name)
    return result(model, _convert_ondevice_dynamic_jit(prepared, method_name)._c, inplace)


def _quantize_ondevice_dynamic_jit(
    model: Any, qconfig_dict: Mapping[str, Any], method_name: str = "forward", inplace: bool = False
) -> Any:
    """A model that quantizes itself: call ``observe_forward`` and ``quantize_forward``, then ``quantized_forward``.

    Example:
        >>> import zeropoint
        >>> model = torch.jit.script(nn.Sequential(nn.Linear(2, 2)).eval())
        >>> made = _quantize_ondevice_dynamic_jit(model, {"": zeropoint.default_dynamic_qconfig})
        >>> x = torch.ones(1, 2)
        >>> _ = made.observe_forward(x), made.quantize_forward(x)
        >>> made.quantized_forward(x).shape
        torch.Size([1, 2])
    """
    return _quantize_ondevice_dynamic_jit_impl(model, qconfig_dict, method_name, inplace)

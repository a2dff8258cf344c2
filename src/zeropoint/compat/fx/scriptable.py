"""Converted graphs for `torch.jit.script`, which cannot compile the functions that they call.

TorchScript asks a module for a form of itself that it can read (`__prepare_scriptable__`). That of a converted graph
calls the functions below, on operators of torch.ops.zeropoint; a packed weight is its plain parts there, and scales and
zero points are the numbers of this moment.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from zeropoint.compat.fx.functions import FUNCTIONS
from zeropoint.compat.fx.modules import free_name
from zeropoint.nn.quantized.storage import integers_of, quantized
from zeropoint.numerics.dtypes import QuantizedDtype
from zeropoint.operators import Observed, traced
from zeropoint.qfunctions.packed import ConvPackedParams, LinearPackedParams, LinearPackedParamsFp16
from zeropoint.tensor.create import dequantize, quantize_per_channel, quantize_per_tensor

_PACKED = (LinearPackedParams, LinearPackedParamsFp16, ConvPackedParams)


class ConvertedGraph(fx.GraphModule):
    """A graph module that `convert_fx` gives."""

    def __prepare_scriptable__(self) -> nn.Module:
        return _Writer(self).module if any(map(_is_ours, self.graph.nodes)) else self


# ------------------------------------------------------------------------------------- what TorchScript reads instead


# Their arguments have the names that they have in zeropoint.qfunctions: graphs may give them by name.
def _pair(op: Any) -> Any:
    def pair(qa: Tensor, qb: Tensor, scale: float, zero_point: int) -> Tensor:
        return quantized(op(*integers_of(qa), *integers_of(qb), scale, zero_point), scale, zero_point)

    return pair


def _hardswish(input: Tensor, output_scale: float, output_zero_point: int) -> Tensor:
    y = torch.ops.zeropoint.hardswish(*integers_of(input), output_scale, output_zero_point)
    return quantized(y, output_scale, output_zero_point)


def _elu(
    input: Tensor, output_scale: float, output_zero_point: int, alpha: float = 1.0, scale: float = 1.0,
    input_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    y = torch.ops.zeropoint.elu(*integers_of(input), alpha, scale, input_scale, output_scale, output_zero_point)
    return quantized(y, output_scale, output_zero_point)


def _leaky_relu(
    qx: Tensor, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int
) -> Tensor:
    y = torch.ops.zeropoint.leaky_relu(*integers_of(qx), negative_slope, output_scale, output_zero_point)
    return quantized(y, output_scale, output_zero_point)


def _dropout(
    input: Tensor, output_scale: float, output_zero_point: int, p: float = 0.5, training: bool = False
) -> Tensor:
    return input


def _layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float,
    output_scale: float, output_zero_point: int,
) -> Tensor:  # fmt: skip
    y = torch.ops.zeropoint.layer_norm(
        *integers_of(input), normalized_shape, weight, bias, eps, output_scale, output_zero_point
    )
    return quantized(y, output_scale, output_zero_point)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float, output_scale: float,
    output_zero_point: int,
) -> Tensor:  # fmt: skip
    y = torch.ops.zeropoint.group_norm(
        *integers_of(input), num_groups, weight, bias, eps, output_scale, output_zero_point
    )
    return quantized(y, output_scale, output_zero_point)


def _instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, output_scale: float, output_zero_point: int
) -> Tensor:
    y = torch.ops.zeropoint.instance_norm(*integers_of(input), weight, bias, eps, output_scale, output_zero_point)
    return quantized(y, output_scale, output_zero_point)


def _linear(op: Any) -> Any:
    def linear(
        x: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor, bias: Tensor | None, rounding: str, scale: float,
        zero_point: int,
    ) -> Tensor:  # fmt: skip
        y = op(*integers_of(x), w, w_scale, w_zero_point, bias, scale, zero_point, rounding)
        return quantized(y, scale, zero_point)

    return linear


def _conv(op: Any) -> Any:
    def conv(
        x: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor, bias: Tensor | None, stride: list[int],
        padding: list[int], dilation: list[int], groups: int, rounding: str, scale: float, zero_point: int,
    ) -> Tensor:  # fmt: skip
        shape = (stride, padding, dilation, groups)
        y = op(*integers_of(x), w, w_scale, w_zero_point, bias, *shape, scale, zero_point, rounding)
        return quantized(y, scale, zero_point)

    return conv


def _conv_transpose(op: Any) -> Any:
    def conv(
        x: Tensor, w: Tensor, w_scale: Tensor, w_zero_point: Tensor, bias: Tensor | None, stride: list[int],
        padding: list[int], output_padding: list[int], dilation: list[int], groups: int, rounding: str, scale: float,
        zero_point: int,
    ) -> Tensor:  # fmt: skip
        shape = (stride, padding, output_padding, dilation, groups)
        y = op(*integers_of(x), w, w_scale, w_zero_point, bias, *shape, scale, zero_point, rounding)
        return quantized(y, scale, zero_point)

    return conv


_OPS: Any = torch.ops.zeropoint
# Functions of a packed weight, which are called with its parts.
_STATIC = {
    **{name: _linear(getattr(_OPS, name)) for name in ("linear", "linear_relu")},
    **{f"conv{d}d{relu}": _conv(getattr(_OPS, f"conv{d}d{relu}")) for d in (1, 2, 3) for relu in ("", "_relu")},
    **{f"conv_transpose{d}d": _conv_transpose(getattr(_OPS, f"conv_transpose{d}d")) for d in (1, 2, 3)},
}
_DYNAMIC = {
    name: getattr(_OPS, name)
    for name in (
        "linear_dynamic",
        "linear_relu_dynamic",
        "linear_dynamic_fp16",
        "linear_relu_dynamic_fp16",
        *(f"conv{d}d_dynamic" for d in (1, 2, 3)),
    )
}
_PAIRS = tuple(
    f"{record.name}{end}"
    for record in traced(Observed.SUM, Observed.PRODUCT)
    for end in (("", "_relu") if record.relu else ("",))
)
_OTHERS = {
    **{name: _pair(getattr(_OPS, name)) for name in _PAIRS},
    "hardswish": _hardswish,
    "elu": _elu,
    "leaky_relu": _leaky_relu,
    "dropout": _dropout,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
}
# A function of graphs -> its name, for those above; the rest have an operator with the same arguments.
_NAMES = {function: name for name, function in FUNCTIONS.items()}
_OPERATORS: dict[Any, Any] = {
    quantize_per_tensor: _OPS.qtensor,
    quantize_per_channel: _OPS.qtensor_per_channel,
    dequantize: _OPS.dequantize,
}
for _name, _function in {**_STATIC, **_OTHERS}.items():  # torch.fx writes a function by the name that finds it
    _function.__module__, _function.__name__, _function.__qualname__ = __name__, f"call_{_name}", f"call_{_name}"
    globals()[f"call_{_name}"] = _function


# ------------------------------------------------------------------------------------------------------------- graphs


def _is_ours(node: fx.Node) -> bool:
    """Whether TorchScript cannot read it. Graphs under zeropoint.compat call operators, and have dtypes of torch."""
    if node.op != "call_function":
        return False
    names_dtype = node.target in (quantize_per_tensor, quantize_per_channel) and _is_named(node.args[-1])
    return node.target in _NAMES or names_dtype


def _is_named(dtype: Any) -> bool:
    """Whether it is a name, or a dtype of zeropoint, which stands for torch's where torch has none."""
    return isinstance(dtype, str) or type(dtype) is QuantizedDtype


class _Writer:
    """The graph of a converted module, on these functions."""

    def __init__(self, model: fx.GraphModule) -> None:
        graph = fx.Graph()
        output = graph.graph_copy(model.graph, {})
        graph.output(output)
        self.module = fx.GraphModule(model, graph)
        for node in list(graph.nodes):
            if isinstance(node.type, str):  # an annotation that was not evaluated; TorchScript takes it for a class
                node.type = None
            if node.op == "call_function":
                self._rewrite(node)
            elif node.op == "call_method" and node.target == "dequantize":
                node.op, node.target = "call_function", _OPS.dequantize
        graph.eliminate_dead_code()
        for name in [n for n, value in vars(self.module).items() if isinstance(value, _PACKED)]:
            delattr(self.module, name)
        self.module.recompile()

    def _rewrite(self, node: fx.Node) -> None:
        target: Any = node.target
        if target in _OPERATORS:
            node.target = _OPERATORS[target]
            node.args = tuple(a.name if type(a) is QuantizedDtype else a for a in node.args)
            if target is quantize_per_tensor:
                node.args = tuple(self._number(a, i) for i, a in enumerate(node.args))
            return
        name = _NAMES.get(target)
        if name is None:
            return
        if name in _STATIC or name in _DYNAMIC:
            self._layer(node, name)
        elif name in _OTHERS and not (name in _PAIRS and len(node.args) == 2):
            node.target = _OTHERS[name]
            node.args = tuple(self._value(a) for a in node.args)
            node.kwargs = {k: self._value(v) for k, v in node.kwargs.items()}
        else:
            kind = f"{name} with a number" if name in _PAIRS else name
            raise NotImplementedError(
                f"torch.jit.script: {kind} in a converted graph ({node.name}) cannot be scripted; use torch.jit.trace"
            )

    def _layer(self, node: fx.Node, name: str) -> None:
        x, packed, *rest = (self._value(a) for a in node.args)
        if not isinstance(packed, _PACKED):
            raise NotImplementedError(
                f"torch.jit.script: the weight of {name} in a converted graph is not stored; use torch.jit.trace"
            )
        path = str(node.args[1].target)
        with node.graph.inserting_before(node):
            parts = [self._stored(path, part) for part in _parts(packed)]
        if name in _STATIC:
            node.target, parts = _STATIC[name], [*parts, packed._rounding]  # type: ignore[union-attr]
        else:
            node.target = _DYNAMIC[name]
        node.args = (x, *parts, *rest)

    def _stored(self, path: str, part: Any) -> Any:
        """A tensor as a buffer of the module, read by a node; numbers as they are."""
        if not isinstance(part, Tensor):
            return part
        name = free_name(self.module, f"{path}_part_")
        self.module.register_buffer(name, part)
        return self.module.graph.get_attr(name)

    def _value(self, a: Any) -> Any:
        """What a node reads, where it is no tensor of more than one element; else the node."""
        if not isinstance(a, fx.Node) or a.op != "get_attr":
            return a
        value: Any = self.module
        for part in str(a.target).split("."):
            value = getattr(value, part)
        return value if isinstance(value, _PACKED) else _number(value) if _is_scalar(value) else a

    def _number(self, a: Any, position: int) -> Any:
        return self._value(a) if position in (1, 2) else a


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and value.numel() == 1


def _number(value: Tensor) -> float | int:
    return float(value) if value.is_floating_point() else int(value)


def _parts(packed: Any) -> tuple[Any, ...]:
    if isinstance(packed, LinearPackedParamsFp16):
        return packed._weight, packed._bias
    return packed.operands()

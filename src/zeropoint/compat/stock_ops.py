"""Converted models with PyTorch's own quantized operators, for programs that read those: OpenVINO, TVM, libtorch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn

import zeropoint.nn.intrinsic.quantized as nniq
import zeropoint.nn.quantized as nnq
import zeropoint.nn.quantized.dynamic as nnqd
from zeropoint.compat.fx.functions import FUNCTIONS
from zeropoint.compat.fx.targets import TARGETS
from zeropoint.numerics.dtypes import quantized_dtype
from zeropoint.tensor.create import dequantize, quantize_per_tensor
from zeropoint.tensor.qtensor import QTensor

# PyTorch's, also while zeropoint.compat is installed, which has a namespace of its own in torch.ops.
QUANTIZED = torch._ops._OpNamespace("quantized")


def to_stock_ops(model: nn.Module) -> nn.Module:
    """A copy of a converted model, of eager or FX graph mode, that calls PyTorch's ``quantized::*`` operators.

    Trace it for programs that read such models; those of eager mode can be scripted, too. Its tensors are PyTorch's
    quantized tensors, and its weights are packed for the engine in ``torch.backends.quantized.engine``.

    Raises:
        NotImplementedError: if a module or function has no operator here, or this PyTorch has lost its operators.

    Example:
        >>> import zeropoint
        >>> model = zeropoint.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)))
        >>> traced = torch.jit.trace(to_stock_ops(model), torch.randn(1, 2))
        >>> "quantized::linear_dynamic" in str(traced.inlined_graph)
        True
    """
    try:
        _ = QUANTIZED.linear_prepack, torch.ops.aten.quantize_per_tensor
    except AttributeError as error:
        raise NotImplementedError("to_stock_ops: this PyTorch has no quantized operators: use an older one") from error
    made = _swapped(copy.deepcopy(model), "")
    for module in made.modules():
        if isinstance(module, fx.GraphModule):
            _rewrite(module)
    return made


# -------------------------------------------------------------------------------------------------------------- modules


class _Quantize(nn.Module):
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.scale, self.zero_point = float(module.scale), int(module.zero_point)
        self.dtype: torch.dtype = getattr(torch, quantized_dtype(module.dtype).name)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten.quantize_per_tensor(x, self.scale, self.zero_point, self.dtype)


class _DeQuantize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten.dequantize(x)


class _Layer(nn.Module):
    """A layer with a packed weight; what derives from it calls its operator."""

    def __init__(self, packed: Any, scale: float, zero_point: int) -> None:
        super().__init__()
        self._packed_params, self.scale, self.zero_point = packed, scale, zero_point


def _layer(operator: str) -> type[_Layer]:
    """The class of layers that call `operator`. TorchScript reads the function from a file, so each is written out."""
    return {name.removeprefix("_").lower(): kind for name, kind in globals().items() if _is_layer(kind)}[operator]


def _is_layer(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, _Layer) and kind is not _Layer


class _Linear(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.linear(x, self._packed_params, self.scale, self.zero_point)


class _Linear_ReLU(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.linear_relu(x, self._packed_params, self.scale, self.zero_point)


class _Linear_Dynamic(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.linear_dynamic(x, self._packed_params, True)


class _Conv1d(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.conv1d(x, self._packed_params, self.scale, self.zero_point)


class _Conv1d_ReLU(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.conv1d_relu(x, self._packed_params, self.scale, self.zero_point)


class _Conv2d(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.conv2d(x, self._packed_params, self.scale, self.zero_point)


class _Conv2d_ReLU(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.conv2d_relu(x, self._packed_params, self.scale, self.zero_point)


class _Conv3d(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.conv3d(x, self._packed_params, self.scale, self.zero_point)


class _Conv3d_ReLU(_Layer):
    def forward(self, x: Tensor) -> Tensor:
        return QUANTIZED.conv3d_relu(x, self._packed_params, self.scale, self.zero_point)


class _Functional(nn.Module):
    """QFunctional: sums and products of two tensors, and tensors joined."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.scale, self.zero_point = float(module.scale), int(module.zero_point)

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("call one of its methods, as add")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return QUANTIZED.add(x, y, self.scale, self.zero_point)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return QUANTIZED.add_relu(x, y, self.scale, self.zero_point)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return QUANTIZED.mul(x, y, self.scale, self.zero_point)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return QUANTIZED.cat(x, dim, self.scale, self.zero_point)


_LINEAR = {nnq.Linear: "linear", nniq.LinearReLU: "linear_relu", nnqd.Linear: "linear_dynamic"}
_CONV = {
    nnq.Conv1d: "conv1d", nnq.Conv2d: "conv2d", nnq.Conv3d: "conv3d",
    nniq.ConvReLU1d: "conv1d_relu", nniq.ConvReLU2d: "conv2d_relu", nniq.ConvReLU3d: "conv3d_relu",
}  # fmt: skip
_OTHERS = {nnq.Quantize: _Quantize, nnq.DeQuantize: lambda _: _DeQuantize(), nnq.QFunctional: _Functional}


def _swapped(module: Any, path: str) -> nn.Module:
    kind = type(module)
    if kind in _OTHERS:
        return _OTHERS[kind](module)
    if kind in _LINEAR:
        packed = QUANTIZED.linear_prepack(_theirs(module.weight()), module.bias())
    elif kind in _CONV and module.padding_mode == "zeros":
        prepack = getattr(QUANTIZED, _CONV[kind].removesuffix("_relu") + "_prepack")
        sizes = (list(module.stride), list(module.padding), list(module.dilation), module.groups)
        packed = prepack(_theirs(module.weight()), module.bias(), *sizes)
    elif kind.__module__.startswith("zeropoint.nn.") and ".quantized" in kind.__module__:
        raise NotImplementedError(
            f"to_stock_ops: {path or 'the model'} is a {kind.__name__}, for which it has no operator of PyTorch's;"
            " keep that layer in float, with the qconfig None"
        )
    else:
        for name, child in module.named_children():
            module._modules[name] = _swapped(child, f"{path}.{name}" if path else name)
        return module
    made = _layer(_LINEAR.get(kind) or _CONV[kind])
    return made(packed, float(getattr(module, "scale", 1.0)), int(getattr(module, "zero_point", 0)))


def _theirs(q: QTensor) -> Tensor:
    """A QTensor as a quantized tensor of PyTorch's."""
    integers = torch.ops.zeropoint.int_repr(q)
    if q._quantizer.scheme.per_channel:
        parameters = q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.q_per_channel_axis()
        return torch.ops.aten._make_per_channel_quantized_tensor(integers, *parameters)
    return torch.ops.aten._make_per_tensor_quantized_tensor(integers, q.q_scale(), q.q_zero_point())


# --------------------------------------------------------------------------------------------------------------- graphs


def _rewrite(graph_module: fx.GraphModule) -> None:
    """Let the functions of a graph be PyTorch's operators."""
    names = {called: name for table in (FUNCTIONS, TARGETS.functions) for name, called in table.items()}
    for node in graph_module.graph.nodes:
        if node.op == "call_method" and node.target == "dequantize":
            node.op, node.target = "call_function", torch.ops.aten.dequantize.self
        elif node.op != "call_function":
            continue
        elif node.target is quantize_per_tensor:
            *given, dtype = node.args
            node.args = (*given, getattr(torch, quantized_dtype(dtype).name))
            node.target = torch.ops.aten.quantize_per_tensor.tensor_qparams
        elif node.target is dequantize:
            node.target = torch.ops.aten.dequantize.self
        elif node.target in names:
            node.target = _calling(names[node.target])
            node.args = tuple(_number(graph_module, argument) for argument in node.args)
        elif str(getattr(node.target, "__module__", "")).startswith("zeropoint"):
            raise NotImplementedError(
                f"to_stock_ops: {node.name} calls {node.target}, which is no operator of PyTorch's: keep it in float"
            )
    graph_module.recompile()


def _calling(name: str) -> Any:
    """A function that calls an operator. Code of graphs would name the operator itself, and find compat's by it."""
    operator = getattr(QUANTIZED, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def _number(graph_module: fx.GraphModule, argument: Any) -> Any:
    """A scale or zero point of a graph, which is a tensor there, as the number that an operator takes."""
    if not isinstance(argument, fx.Node) or argument.op != "get_attr":
        return argument
    value = getattr(graph_module, str(argument.target), None)
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else argument

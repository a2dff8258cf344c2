"""What a quantized tensor is asked, as operators: how scripted, traced, exported and compiled code reads QTensors.

`zeropoint.tensor` answers for QTensors. The kernels here are for plain tensors, which are not quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from zeropoint.ops.library import differentiable, named, operator


def _refusing(name: str) -> Callable[[Tensor], NoReturn]:
    def refuse(q: Tensor) -> NoReturn:
        raise TypeError(
            f"{name} reads a quantized tensor (zeropoint.QTensor), got a {q.dtype} tensor of shape {tuple(q.shape)}:"
            " quantize it first"
        )

    return named(name, refuse, f"`QTensor.{name}`; refuses plain tensors.")


def _define(name: str, result: str) -> Callable[[Tensor], NoReturn]:
    refuse = _refusing(name)
    return operator(fake=refuse, types={"return": result})(refuse)


int_repr = _define("int_repr", "Tensor")
q_scale = _define("q_scale", "float")
q_zero_point = _define("q_zero_point", "int")
q_zero_point_number = _define("q_zero_point_number", "float")  # torch.compile takes floats of operators, not integers
q_per_channel_scales = _define("q_per_channel_scales", "Tensor")
q_per_channel_zero_points = _define("q_per_channel_zero_points", "Tensor")
q_per_channel_axis = _define("q_per_channel_axis", "int")
qscheme = _define("qscheme", "str")
qdtype = _define("qdtype", "str")


def _fake_dequantize(q: Tensor) -> Tensor:
    return torch.empty_like(q, dtype=torch.float32)


@operator(fake=_fake_dequantize, name="dequantize.self")
def dequantize(q: Tensor) -> Tensor:
    """The float32 values of a quantized tensor; of a plain one, a float32 copy.

    Example:
        >>> dequantize(torch.tensor([1.0], dtype=torch.float16))
        tensor([1.])
    """
    return q.to(torch.float32, copy=True)


def _setup_dequantize(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.dtype = inputs[0].dtype


def _dequantize_backward(ctx: Any, gradient: Tensor) -> Tensor:
    return gradient.to(ctx.dtype)


differentiable("dequantize.self", _dequantize_backward, _setup_dequantize)


def _plain() -> bool:
    return False


@operator(fake=_plain)
def is_quantized(q: Tensor) -> bool:
    """Whether this is a quantized tensor.

    Example:
        >>> is_quantized(torch.ones(1))
        False
    """
    return False

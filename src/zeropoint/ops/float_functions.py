"""Functions, norms, softmax and products of float32 tensors, for what a model leaves unquantized.

PyTorch's own differ from CPU to CPU in the last bits. These have one fixed formula each, which programs of the engine
use too, so that a program gives the bytes of its graph on every CPU. They are within about 1e-6 of PyTorch's.

==============  ==================================================================================================
gelu            ``x * P(N(0, 1) < x)``, or ``x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x^3))`` with "tanh"
silu            ``x * sigmoid(x)``
layer norm      ``(x - mean(x)) / sqrt(var(x) + eps) * weight + bias``
group norm      a layer norm over the channels of each group, ``* weight + bias`` for each channel
batch norm      ``x * alpha + beta``, ``alpha = weight / sqrt(var + eps)``, ``beta = bias - mean * alpha``
softmax         ``e / sum(e)``, ``e = exp(x - max(x))``
log softmax     ``(x - max(x)) - log(sum(e))``
matmul          ``acc = fma(a[m][k], b[k][n], acc)`` for k = 0, 1, ...
==============  ==================================================================================================
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zeropoint import _native
from zeropoint.ops import checks
from zeropoint.ops.library import Sizes, composite, operator

_GELU = {"none": 0, "tanh": 1}
_TANH, _SIGMOID, _SILU = 2, 3, 4


def _require(op: str, name: str, x: Tensor) -> None:
    checks.require_dtype(op, name, x.dtype, (torch.float32,))
    if x.device.type != "cpu":
        raise NotImplementedError(f"{op}: {name} is on {x.device}, its kernels run on the CPU: call .cpu() first")


# --------------------------------------------------------------------------------------------------------- functions


def _like(input: Tensor) -> Tensor:
    return torch.empty_like(input)


def _function(op: str, which: int, x: Tensor) -> Tensor:
    _require(op, "input", x)
    y = torch.empty_like(x)
    if y.stride() != x.stride():  # there are gaps between the elements of x
        y.copy_(x)
        x = y
    _native.float_function(which, x.data_ptr(), y.data_ptr(), x.numel())
    return y


@operator(fake=_like)
def float_gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x * P(N(0, 1) < x)``, or with "tanh" ``x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x^3))``.

    Example:
        >>> float_gelu(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.1587,  0.0000,  1.9545])
    """
    if approximate not in _GELU:
        raise ValueError(f"float_gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return _function("float_gelu", _GELU[approximate], input)


@operator(fake=_like)
def float_tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent.

    Example:
        >>> float_tanh(torch.tensor([-1.0, 0.0, 20.0]))
        tensor([-0.7616,  0.0000,  1.0000])
    """
    return _function("float_tanh", _TANH, input)


@operator(fake=_like)
def float_sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``

    Example:
        >>> float_sigmoid(torch.tensor([-1.0, 0.0, 20.0]))
        tensor([0.2689, 0.5000, 1.0000])
    """
    return _function("float_sigmoid", _SIGMOID, input)


@operator(fake=_like)
def float_silu(input: Tensor) -> Tensor:
    """``x / (1 + exp(-x))``

    Example:
        >>> float_silu(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2689,  0.0000,  1.7616])
    """
    return _function("float_silu", _SILU, input)


# ------------------------------------------------------------------------------------------------- norms and softmax


def _contiguous_like(input: Tensor) -> Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _parameter(name: str, values: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    if values is None:
        return None
    _require("float_layer_norm", name, values)
    if tuple(values.shape) != shape:
        raise ValueError(f"float_layer_norm: {name} must have the shape {shape} of a row, got {tuple(values.shape)}")
    return values.contiguous()


@operator(fake=_contiguous_like)
def float_layer_norm(
    input: Tensor,
    normalized_shape: Sizes,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` over the last axes, whose sizes are `normalized_shape`.

    Example:
        >>> float_layer_norm(torch.tensor([[1.0, 2.0, 3.0]]), [3])
        tensor([[-1.2247,  0.0000,  1.2247]])
    """
    _require("float_layer_norm", "input", input)
    row = tuple(int(size) for size in normalized_shape)
    if not row or tuple(input.shape[-len(row) :]) != row:
        raise ValueError(
            f"float_layer_norm: normalized_shape must be the last sizes of input, whose shape is {tuple(input.shape)},"
            f" got {list(row)}"
        )
    if not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"float_layer_norm: eps must not be negative, got {eps}")
    w, b = _parameter("weight", weight, row), _parameter("bias", bias, row)
    x = input.contiguous()
    y = _contiguous_like(x)
    length = math.prod(row)
    if length:
        weights, biases = (0 if t is None else t.data_ptr() for t in (w, b))
        _native.float_layer_norm(x.data_ptr(), y.data_ptr(), x.numel() // length, length, weights, biases, eps)
    return y


def batch_norm_line(
    weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The line that a batch norm is for each channel: (alpha, beta) of ``x * alpha + beta``.

    Example:
        >>> batch_norm_line(None, None, torch.tensor([1.0]), torch.tensor([4.0]), 0.0)
        (tensor([0.5000]), tensor([-0.5000]))
    """
    alpha = (var.double() + eps).rsqrt()
    if weight is not None:
        alpha = alpha * weight
    beta = -mean.double() * alpha
    return alpha.float(), (beta if bias is None else beta + bias).float()


def _for_channels(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (x.dim() - 2))


@operator(fake=_like)
def float_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    eps: float = 1e-5,
) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` for each channel of ``(N, C, ...)``, as ``x * alpha + beta``.

    Example:
        >>> float_batch_norm(torch.tensor([[1.0], [3.0]]), None, None, torch.tensor([1.0]), torch.tensor([4.0]), 0.0)
        tensor([[0.],
                [1.]])
    """
    _require("float_batch_norm", "input", input)
    for name, t in (("weight", weight), ("bias", bias), ("running_mean", running_mean), ("running_var", running_var)):
        if t is not None and (input.dim() < 2 or tuple(t.shape) != (input.shape[1],)):
            raise ValueError(
                f"float_batch_norm: {name} of shape {tuple(t.shape)} must have one number for each channel of input of"
                f" shape {tuple(input.shape)}"
            )
    alpha, beta = batch_norm_line(weight, bias, running_mean, running_var, eps)
    return input * _for_channels(alpha, input) + _for_channels(beta, input)


@operator(fake=_contiguous_like)
def float_group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`float_layer_norm` over the channels of each group of ``(N, C, ...)``; weight and bias are for channels.

    Example:
        >>> float_group_norm(torch.tensor([[1.0, 3.0, 2.0, 2.0]]), 2, eps=0.0).nan_to_num()
        tensor([[-1.,  1.,  0.,  0.]])
    """
    if input.dim() < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(
            f"float_group_norm: num_groups {num_groups} must divide the channels of input of shape {tuple(input.shape)}"
        )
    if input.numel() == 0:
        return _contiguous_like(input)
    rows = input.reshape(input.shape[0] * num_groups, -1)
    y = float_layer_norm(rows, [rows.shape[1]], None, None, eps).reshape(input.shape)
    if weight is not None:
        y = y * _for_channels(weight, input)
    return y if bias is None else y + _for_channels(bias, input)


@operator(fake=_contiguous_like)
def float_instance_norm(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`float_group_norm` with a group for each channel.

    Example:
        >>> float_instance_norm(torch.tensor([[[1.0, 3.0], [2.0, 6.0]]]), eps=0.0)
        tensor([[[-1.,  1.],
                 [-1.,  1.]]])
    """
    return float_group_norm(input, max(input.shape[1], 1), weight, bias, eps)


def _softmax(op: str, x: Tensor, dim: int, safe: bool | None) -> Tensor:
    """`safe`: see `float_safe_softmax`; None: the logarithm."""
    _require(op, "input", x)
    if not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        raise IndexError(f"{op}: dim {dim} is out of range for an input of shape {tuple(x.shape)}")
    x = x.contiguous()
    y = _contiguous_like(x)
    axis = dim % max(x.dim(), 1)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    length = x.shape[axis] if x.dim() else 1
    if safe is None:
        _native.float_log_softmax(x.data_ptr(), y.data_ptr(), outer, length, inner)
    else:
        _native.float_softmax(x.data_ptr(), y.data_ptr(), outer, length, inner, safe)
    return y


@operator(fake=_contiguous_like)
def float_softmax(input: Tensor, dim: int) -> Tensor:
    """``e / sum(e)`` with ``e = exp(x - max(x))``, over axis `dim`.

    Example:
        >>> float_softmax(torch.tensor([[0.0, 0.0], [1.0, -torch.inf]]), -1)
        tensor([[0.5000, 0.5000],
                [1.0000, 0.0000]])
    """
    return _softmax("float_softmax", input, dim, safe=False)


@operator(fake=_contiguous_like)
def float_safe_softmax(input: Tensor, dim: int) -> Tensor:
    """`float_softmax`, but zeros instead of NaN where there is nothing but ``-inf``, as attention wants it.

    Example:
        >>> float_safe_softmax(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]), -1)
        tensor([[0.5000, 0.5000],
                [0.0000, 0.0000]])
    """
    return _softmax("float_safe_softmax", input, dim, safe=True)


@operator(fake=_contiguous_like)
def float_log_softmax(input: Tensor, dim: int) -> Tensor:
    """``(x - max(x)) - log(sum(exp(x - max(x))))``, over axis `dim`.

    Example:
        >>> float_log_softmax(torch.tensor([[0.0, 0.0]]), -1)
        tensor([[-0.6931, -0.6931]])
    """
    return _softmax("float_log_softmax", input, dim, None)


# ---------------------------------------------------------------------------------------------------------- products


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            "float_matmul: it takes (..., M, K) and (..., K, N), got shapes"
            f" {tuple(a.shape)} and {tuple(b.shape)}: add axes to vectors with unsqueeze"
        )
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]))


@operator(fake=_product)
def float_matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of ``(..., M, K)`` and ``(..., K, N)``, each sum in the order of K; batches broadcast.

    Example:
        >>> float_matmul(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
        tensor([[11.]])
    """
    _require("float_matmul", "a", a)
    _require("float_matmul", "b", b)
    y = _product(a, b)
    batch = y.shape[:-2]
    if a.stride(-1) != 1:
        a = a.contiguous()
    left, right = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    matrices = (a.shape[-2], a.shape[-1], b.shape[-1], a.stride(-2), b.stride(-2), b.stride(-1))
    steps = list(batch), list(left.stride()[:-2]), list(right.stride()[:-2])
    _native.float_matmul(a.data_ptr(), b.data_ptr(), y.data_ptr(), *steps, matrices)
    return y


@composite()
def float_softsign(input: Tensor) -> Tensor:
    """``x / (|x| + 1)``, which PyTorch has as a function only: one node for it in graphs.

    Example:
        >>> float_softsign(torch.tensor([-1.0, 3.0]))
        tensor([-0.5000,  0.7500])
    """
    return input / (input.abs() + 1)

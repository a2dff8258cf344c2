"""Norms and softmax of QTensors, with the names and arguments of torch.ops.quantized.

See `zeropoint.ops.norms` for the formulas. The result has the dtype and the layout of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from zeropoint.ops import norms
from zeropoint.qfunctions.dispatch import run
from zeropoint.qfunctions.values import activation, result
from zeropoint.tensor.qtensor import QTensor


def _batch_norm(
    op: str,
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: float,
    zero_point: int,
) -> QTensor:
    x, x_scale, x_zero_point = activation(op, qx)
    scale, zero_point = float(scale), int(zero_point)
    y = run(norms, op, x, x_scale, x_zero_point, weight, bias, mean, var, float(eps), scale, zero_point)
    return result(y, scale, zero_point, qx._qdtype)


def batch_norm(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """Batch norm with fixed statistics of 2 to 5 dimensions, ``(N, C, ...)``, rounded once.

    ``y = weight * (x - mean) / sqrt(var + eps) + bias``; without a weight it is 1, without a bias 0.

    Example:
        >>> import torch, zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 2.0]]), 0.5, 10, zeropoint.quint8)
        >>> batch_norm(x, None, None, torch.zeros(2), torch.ones(2), 0.0, 0.25, 100).dequantize()
        tensor([[1., 2.]])
    """
    return _batch_norm("batch_norm", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm_relu(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """As `batch_norm`, with a ReLU."""
    return _batch_norm("batch_norm_relu", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm1d(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """`batch_norm` of 2 or 3 dimensions."""
    return _batch_norm("batch_norm1d", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm1d_relu(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """As `batch_norm1d`, with a ReLU."""
    return _batch_norm("batch_norm1d_relu", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm2d(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """`batch_norm` of 4 dimensions."""
    return _batch_norm("batch_norm2d", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm2d_relu(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """As `batch_norm2d`, with a ReLU."""
    return _batch_norm("batch_norm2d_relu", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm3d(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """`batch_norm` of 5 dimensions."""
    return _batch_norm("batch_norm3d", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def batch_norm3d_relu(
    qx: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """As `batch_norm3d`, with a ReLU."""
    return _batch_norm("batch_norm3d_relu", qx, weight, bias, mean, var, eps, output_scale, output_zero_point)


def layer_norm(
    input: QTensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """``weight * (x - mean) / sqrt(var + eps) + bias``, mean and variance over the last axes, `normalized_shape`.

    Example:
        >>> import torch, zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 3.0]]), 0.5, 10, zeropoint.quint8)
        >>> layer_norm(x, [2], None, None, 0.0, 0.25, 100).dequantize()
        tensor([[-1.,  1.]])
    """
    x = activation("layer_norm", input)
    scale, zero_point = float(output_scale), int(output_zero_point)
    y = run(norms, "layer_norm", *x, normalized_shape, weight, bias, float(eps), scale, zero_point)
    return result(y, scale, zero_point, input._qdtype)


def group_norm(
    input: QTensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """``weight * (x - mean) / sqrt(var + eps) + bias``, mean and variance over each group of the C of ``(N, C, ...)``.

    Example:
        >>> import torch, zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[1.0, 3.0, 5.0, 9.0]]), 0.5, 10, zeropoint.quint8)
        >>> group_norm(x, 2, None, None, 0.0, 0.25, 100).dequantize()
        tensor([[-1.,  1., -1.,  1.]])
    """
    x = activation("group_norm", input)
    scale, zero_point = float(output_scale), int(output_zero_point)
    y = run(norms, "group_norm", *x, num_groups, weight, bias, float(eps), scale, zero_point)
    return result(y, scale, zero_point, input._qdtype)


def instance_norm(
    input: QTensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> QTensor:
    """`group_norm` with as many groups as channels.

    Example:
        >>> import torch, zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.tensor([[[1.0, 3.0]]]), 0.5, 10, zeropoint.quint8)
        >>> instance_norm(x, None, None, 0.0, 0.25, 100).dequantize()
        tensor([[[-1.,  1.]]])
    """
    x = activation("instance_norm", input)
    scale, zero_point = float(output_scale), int(output_zero_point)
    y = run(norms, "instance_norm", *x, weight, bias, float(eps), scale, zero_point)
    return result(y, scale, zero_point, input._qdtype)


def softmax(qx: QTensor, dim: int, output_scale: float, output_zero_point: int) -> QTensor:
    """``exp(x) / sum(exp(x))`` along axis `dim`.

    Example:
        >>> import torch, zeropoint
        >>> x = zeropoint.quantize_per_tensor(torch.ones(1, 4), 0.5, 10, zeropoint.quint8)
        >>> softmax(x, -1, 1 / 256, 0).dequantize()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    x = activation("softmax", qx)
    scale, zero_point = float(output_scale), int(output_zero_point)
    y = run(norms, "softmax", *x, dim, scale, zero_point)
    return result(y, scale, zero_point, qx._qdtype)

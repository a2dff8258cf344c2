"""The oldest quantized layers of `torch`, which took weights that FBGEMM had packed.

A packed weight is a plain tensor here: a float16 one, or the integers themselves. Kernels pack it on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zeropoint.ops import layers
from zeropoint.qfunctions.packed import linear, linear_prepack
from zeropoint.tensor.create import (
    make_per_tensor_quantized_tensor,
    quantize_per_tensor,
    quantize_per_tensor_dynamic,
)


def fbgemm_pack_gemm_matrix_fp16(input: Tensor) -> Tensor:
    """A weight in float16; values beyond it stand at its largest.

    Example:
        >>> fbgemm_pack_gemm_matrix_fp16(torch.tensor([[1e9]]))
        tensor([[65504.]], dtype=torch.float16)
    """
    return layers.to_fp16_weight(input.detach())


def fbgemm_linear_fp16_weight(input: Tensor, packed_weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer in float32 whose weight is kept in float16.

    Example:
        >>> packed = fbgemm_pack_gemm_matrix_fp16(torch.ones(1, 2))
        >>> fbgemm_linear_fp16_weight(torch.ones(1, 2), packed, None)
        tensor([[2.]])
    """
    _require_packed("fbgemm_linear_fp16_weight", packed_weight, torch.float16, "fbgemm_pack_gemm_matrix_fp16")
    return torch.ops.zeropoint.linear_dynamic_fp16(input, packed_weight, bias)


def fbgemm_linear_quantize_weight(input: Tensor) -> tuple[Tensor, Tensor, float, int]:
    """A weight in int8 by its own range: the integers, their sums less the zero points, the scale, the zero point.

    Example:
        >>> integers, sums, scale, zero_point = fbgemm_linear_quantize_weight(torch.tensor([[0.0, 2.55]]))
        >>> integers.tolist(), sums.tolist(), zero_point
        ([[-128, 127]], [255], -128)
    """
    q: Any = quantize_per_tensor_dynamic(input.detach(), "qint8")
    integers, zero_point = q._data, q.q_zero_point()
    sums = integers.sum(1, dtype=torch.int32) - zero_point * integers.shape[1]
    return integers, sums, q.q_scale(), zero_point


def fbgemm_pack_quantized_matrix(input: Tensor, K: int | None = None, N: int | None = None) -> Tensor:
    """The integers of `fbgemm_linear_quantize_weight` as they are; `K` and `N` may say their shape ``(N, K)`` again."""
    _require_packed("fbgemm_pack_quantized_matrix", input, torch.int8, "fbgemm_linear_quantize_weight")
    if K is not None and sorted((K, N or 0)) != sorted(input.shape):
        raise ValueError(f"torch.fbgemm_pack_quantized_matrix: input has shape {tuple(input.shape)}, got K={K}, N={N}")
    return input


def fbgemm_linear_int8_weight(
    input: Tensor,
    weight: Tensor,
    packed: Tensor,
    col_offsets: Tensor,
    weight_scale: float,
    weight_zero_point: int,
    bias: Tensor,
) -> Tensor:
    """A linear layer on floats, which are quantized to 8 bits by their own range.

    Example:
        >>> integers, sums, *parameters = fbgemm_linear_quantize_weight(torch.tensor([[0.0, 1.0]]))
        >>> x = torch.tensor([[0.0, 2.55]])
        >>> fbgemm_linear_int8_weight(x, integers, integers, sums, *parameters, torch.zeros(1))
        tensor([[2.5500]])
    """
    _require_packed("fbgemm_linear_int8_weight", packed, torch.int8, "fbgemm_pack_quantized_matrix")
    scale, zero_point = torch.tensor([float(weight_scale)]), torch.tensor([int(weight_zero_point)])
    return torch.ops.zeropoint.linear_dynamic(input, packed, scale, zero_point, bias)


def wrapped_fbgemm_linear_fp16_weight(X: Tensor, W: Tensor, B: Tensor | None, out_channel: int) -> Tensor:
    """`fbgemm_linear_fp16_weight`, which also is told how many results a row has."""
    _require_outputs("wrapped_fbgemm_linear_fp16_weight", W.shape[0], out_channel)
    return fbgemm_linear_fp16_weight(X, W, B)


def _wrapped_linear_prepack(W: Tensor, W_scale: Tensor, W_zero_point: Tensor, B: Tensor) -> Tensor:
    """A weight in qint8 with its bias, in one tensor of bytes.

    Example:
        >>> _wrapped_linear_prepack(torch.ones(1, 2), torch.tensor(0.5), torch.tensor(0), torch.zeros(1)).tolist()[-2:]
        [2, 2]
    """
    q: Any = quantize_per_tensor(W, W_scale, W_zero_point, "qint8")
    outputs, inputs = q.shape
    numbers = torch.tensor([outputs, inputs, q.q_zero_point()])
    scale = torch.tensor([q.q_scale()], dtype=torch.float64)
    parts = numbers, scale, B.detach().to(torch.float32), q._data
    return torch.cat([part.contiguous().flatten().view(torch.uint8) for part in parts])


_HEADER = 32  # bytes: three int64 and a float64


def _wrapped_quantized_linear_prepacked(
    X: Tensor,
    X_scale: Tensor,
    X_zero_point: Tensor,
    W_prepack: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
    out_channel: int,
) -> Tensor:
    """A linear layer on floats that are quantized to quint8, and back: its weight is of `_wrapped_linear_prepack`."""
    op = "_wrapped_quantized_linear_prepacked"
    _require_packed(op, W_prepack, torch.uint8, "_wrapped_linear_prepack")
    outputs, inputs, zero_point = W_prepack[: _HEADER - 8].view(torch.int64).tolist()
    if W_prepack.numel() != _HEADER + 4 * outputs + outputs * inputs:
        raise ValueError(f"torch.{op}: {W_prepack.numel()} bytes are no weight of torch._wrapped_linear_prepack")
    _require_outputs(op, outputs, out_channel)
    values = W_prepack[_HEADER + 4 * outputs :].view(torch.int8).reshape(outputs, inputs)
    weight = make_per_tensor_quantized_tensor(
        values, W_prepack[_HEADER - 8 : _HEADER].view(torch.float64).item(), zero_point
    )
    bias = W_prepack[_HEADER : _HEADER + 4 * outputs].view(torch.float32)
    x: Any = quantize_per_tensor(X, X_scale, X_zero_point, "quint8")
    return linear(x, linear_prepack(weight, bias), output_scale, output_zero_point).dequantize()


def wrapped_quantized_linear(
    X: Tensor,
    X_scale: Tensor,
    X_zero_point: Tensor,
    W: Tensor,
    W_scale: Tensor,
    W_zero_point: Tensor,
    B: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
    out_channel: int,
) -> Tensor:
    """A linear layer on floats, all of which are quantized, and back."""
    packed = _wrapped_linear_prepack(W, W_scale, W_zero_point, B)
    return _wrapped_quantized_linear_prepacked(
        X, X_scale, X_zero_point, packed, output_scale, output_zero_point, out_channel
    )


def _require_outputs(op: str, outputs: int, out_channel: int) -> None:
    if outputs != out_channel:
        raise ValueError(f"torch.{op}: out_channel is {out_channel}, the weight has {outputs}")


def _require_packed(op: str, packed: Tensor, dtype: torch.dtype, made_by: str) -> None:
    if not isinstance(packed, Tensor) or packed.dtype != dtype:
        got = packed.dtype if isinstance(packed, Tensor) else type(packed).__name__
        raise TypeError(f"torch.{op} takes what torch.{made_by} gives, a tensor of {dtype}; got {got}")


# --------------------------------------------------------------------------------------------------------------- cells


def _cell(name: str, step: Callable[[Tensor, Tensor, Any], Any]) -> Any:
    """One step of a recurrent layer: `step` gets the products with input and hidden state, and the states."""

    def cell(
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor,
        b_hh: Tensor,
        packed_ih: Tensor,
        packed_hh: Tensor,
        col_offsets_ih: Tensor,
        col_offsets_hh: Tensor,
        scale_ih: float,
        scale_hh: float,
        zero_point_ih: int,
        zero_point_hh: int,
    ) -> Any:
        hidden = hx if isinstance(hx, Tensor) else hx[0]
        from_input = fbgemm_linear_int8_weight(input, w_ih, packed_ih, col_offsets_ih, scale_ih, zero_point_ih, b_ih)
        from_hidden = fbgemm_linear_int8_weight(hidden, w_hh, packed_hh, col_offsets_hh, scale_hh, zero_point_hh, b_hh)
        return step(from_input, from_hidden, hx)

    cell.__name__ = cell.__qualname__ = name
    cell.__doc__ = f"``{name}``: a step with weights of `fbgemm_linear_quantize_weight`."
    return cell


def _lstm(from_input: Tensor, from_hidden: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    entering, forgetting, new, leaving = (from_input + from_hidden).chunk(4, 1)
    cell = forgetting.sigmoid() * states[1] + entering.sigmoid() * new.tanh()
    return leaving.sigmoid() * cell.tanh(), cell


def _gru(from_input: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    (r, z, n), (hidden_r, hidden_z, hidden_n) = from_input.chunk(3, 1), from_hidden.chunk(3, 1)
    new = (n + (r + hidden_r).sigmoid() * hidden_n).tanh()
    return new + (z + hidden_z).sigmoid() * (hidden - new)


quantized_lstm_cell = _cell("quantized_lstm_cell", _lstm)
quantized_gru_cell = _cell("quantized_gru_cell", _gru)
quantized_rnn_relu_cell = _cell("quantized_rnn_relu_cell", lambda x, h, _: (x + h).relu())
quantized_rnn_tanh_cell = _cell("quantized_rnn_tanh_cell", lambda x, h, _: (x + h).tanh())

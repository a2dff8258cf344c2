"""Operators on integers with their scales as inputs: what quantizers of ONNX Runtime and its optimizer write.

Each is read as the float operator between a dequantize and a quantize, which lowering then makes one on integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from zeropoint.operators.onnx.geometry import padded
from zeropoint.operators.onnx.layers import convolution, product
from zeropoint.operators.onnx.pooling import average_pool, global_average
from zeropoint.operators.onnx.quantize import MICROSOFT, Scaled
from zeropoint.operators.onnx_forms import OnnxForms, OnnxReader, Read, ReadNode, reads

ours = torch.ops.zeropoint


def _floats(r: OnnxReader, n: ReadNode, place: int, axis: int | None = None) -> Any:
    """What the input at a place stands for, whose scale and zero point follow it."""
    q, scale, shift = (n.input(place + i) for i in range(3))
    return Scaled(r, scale, shift, r.storage(q), axis).floats(q)


def _tensor(r: OnnxReader, n: ReadNode, place: int) -> Any:
    return r.tensor(_floats(r, n, place))


def _result(r: OnnxReader, n: ReadNode, place: int, y: Any, dtype: str = "uint8") -> Any:
    """A result, rounded with the scale and the zero point at a place."""
    return Scaled(r, n.input(place), n.input(place + 1), dtype).integers(y)


def _bias(r: OnnxReader, bias: Any, *scales: Any) -> Any:
    """Of 32-bit integers in steps of the products."""
    if bias is None:
        return None
    step = torch.ones(())
    for scale in scales:
        step = step * r.tensor(scale).reshape(-1)
    return r.tensor(bias).to(torch.float32) * step


# -------------------------------------------------------------------------------------------------------------- layers


def _read_conv(r: OnnxReader, n: ReadNode) -> Any:
    last = bool(n.attribute("channels_last", 0))
    x, weight = _tensor(r, n, 0), r.weight(_floats(r, n, 3, axis=0))
    x = x.movedim(-1, 1) if last else x
    y = convolution(r, n, x, weight, _bias(r, n.input(8), n.input(1), n.input(4)))
    return _result(r, n, 6, y.movedim(1, -1) if last else y)


def _read_product(r: OnnxReader, n: ReadNode) -> Any:
    return _result(r, n, 6, product(r, _tensor(r, n, 0), _floats(r, n, 3, axis=-1)))


def _read_gemm(r: OnnxReader, n: ReadNode) -> Any:
    """Without a scale of the result it gives floats."""
    alpha, turned = n.attribute("alpha", 1.0), bool(n.attribute("transB", 0))
    x, weight = _tensor(r, n, 0), _floats(r, n, 3, axis=0 if turned else 1)
    x = x.t() if n.attribute("transA", 0) else x
    bias = _bias(r, n.input(6), n.input(1), n.input(4))
    if alpha != 1.0:
        raise r.unsupported(f"alpha={alpha} is not supported")
    if r.is_known(weight) and (bias is None or bias.dim() == 1):
        y = F.linear(x, r.weight(weight, (0, 1) if turned else (1, 0)), bias)
    else:
        y = torch.matmul(x, r.tensor(weight).t() if turned else r.tensor(weight))
        y = y if bias is None else y + bias
    return _result(r, n, 7, y) if n.has(7) else y


def _whole(r: OnnxReader, q: Any, shift: Any, axis: int | None) -> Any:
    """Integers less their zero point, as floats."""
    one = r.constant(1.0) if shift is None or r.rank(shift) == 0 or r.count(shift) == 1 else None
    if one is not None and r.is_known(q):
        return r.stored(q, one, shift, None, 0)
    if one is not None:
        return Scaled(r, one, shift, r.storage(q)).floats(q)
    shape = [-1 if a == (axis or 0) % r.rank(q) else 1 for a in range(r.rank(q))]
    return r.tensor(q).to(torch.float32) - r.tensor(shift).to(torch.float32).reshape(shape)


def _read_integer_product(r: OnnxReader, n: ReadNode) -> Any:
    """A product of integers, or a whole layer, ``x, weight, scale, zero point, bias``, joined from its parts."""
    by_row = n.attribute("per_token", None)
    if by_row is None:
        a, b, a_shift, b_shift = n.first(4)
        return torch.round(product(r, _plain(r, a, a_shift, -2), _whole(r, b, b_shift, -1))).to(torch.int32)
    x, weight, scale, shift, bias = n.first(5)
    return _dynamic(r, x, weight, scale, shift, bias, bool(by_row))


def _plain(r: OnnxReader, q: Any, shift: Any, axis: int) -> Any:
    """Integers that were rounded when the model runs have a zero point that is no constant."""
    if shift is None or r.is_known(shift):
        return r.tensor(_whole(r, q, shift, axis))
    return r.tensor(q).to(torch.float32) - r.tensor(shift).to(torch.float32)


def _dynamic(r: OnnxReader, x: Any, weight: Any, scale: Any, shift: Any, bias: Any, by_row: bool = False) -> Any:
    """A layer whose input is rounded when it runs; its weight is ``(inputs, outputs)``."""
    scales = r.tensor(scale).reshape(-1)
    shifts = (
        torch.zeros_like(scales, dtype=torch.int64) if shift is None else r.tensor(shift).to(torch.int64).reshape(-1)
    )
    stored = r.weight(weight, (1, 0)).contiguous()
    return ours.linear_dynamic(r.tensor(x), stored, scales, shifts, r.tensor(bias), False, by_row)


def _read_dynamic_product(r: OnnxReader, n: ReadNode) -> Any:
    x, weight, scale, shift, bias = n.first(5)
    if not r.is_known(weight):
        raise r.unsupported("its weight is not a constant")
    return _dynamic(r, x, weight, scale, shift, bias)


def _read_product_to_float(r: OnnxReader, n: ReadNode) -> Any:
    a, b, a_scale, b_scale, a_shift, b_shift, bias = n.first(7)
    if r.is_known(a_scale) and r.is_known(b_scale) and (a_shift is None or r.is_known(a_shift)):
        x = r.tensor(Scaled(r, a_scale, a_shift, r.storage(a)).floats(a))
        y = product(r, x, Scaled(r, b_scale, b_shift, r.storage(b), -1).floats(b))
    else:
        y = product(r, _plain(r, a, a_shift, -2), r.tensor(_whole(r, b, b_shift, -1)))
        y = y * r.tensor(a_scale) * r.tensor(b_scale)
    return y if bias is None else y + r.tensor(bias)


def _read_integer_conv(r: OnnxReader, n: ReadNode) -> Any:
    """A convolution of integers, or a whole layer, as `_read_integer_product`."""
    if n.attribute("joined", None) is None:
        x, weight, x_shift, w_shift = n.first(4)
        made = convolution(r, n, _plain(r, x, x_shift, 1), r.tensor(_whole(r, weight, w_shift, 0)), None)
        return torch.round(made).to(torch.int32)
    x, weight, scale, shift, bias = n.first(5)
    scales, stored = r.tensor(scale).reshape(-1), r.weight(weight)
    shifts = torch.zeros_like(scales, dtype=torch.int64)
    shifts = shifts if shift is None else r.tensor(shift).to(torch.int64).reshape(-1).expand(scales.shape)
    dims = stored.dim() - 2
    stride, dilation = (list(n.attribute(k, [1] * dims)) for k in ("strides", "dilations"))
    n.without_effect("kernel_shape")
    x, padding = padded(r, n, r.tensor(x), list(stored.shape[2:]), stride, dilation)
    call = getattr(ours, f"conv{dims}d_dynamic")
    given = None if bias is None else r.tensor(bias).reshape(-1)
    return call(x, stored, scales, shifts, given, stride, padding, dilation, n.attribute("group", 1))


# ----------------------------------------------------------------------------------------------------- other operators


def _read_of_two(function: Callable[[Any, Any], Any]) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        return _result(r, n, 6, function(_tensor(r, n, 0), _tensor(r, n, 3)))

    return read


def _read_of_one(function: Callable[..., Any], **attributes: Any) -> Read:
    """`attributes`: names of ONNX with their defaults, in order."""

    def read(r: OnnxReader, n: ReadNode) -> Any:
        return _result(r, n, 3, function(_tensor(r, n, 0), *(n.attribute(k, v) for k, v in attributes.items())))

    return read


def _read_concat(r: OnnxReader, n: ReadNode) -> Any:
    parts = [_tensor(r, n, place) for place in range(2, len(n.every()), 3)]
    return _result(r, n, 0, torch.cat(parts, n.attribute("axis")))


def _read_pool(function: Callable[[OnnxReader, ReadNode, Any], Any]) -> Read:
    def read(r: OnnxReader, n: ReadNode) -> Any:
        last, x = bool(n.attribute("channels_last", 0)), _tensor(r, n, 0)
        y = function(r, n, x.movedim(-1, 1) if last else x)
        return _result(r, n, 3, y.movedim(1, -1) if last else y)

    return read


def _read_softmax(r: OnnxReader, n: ReadNode) -> Any:
    x, axis = _tensor(r, n, 0), n.attribute("axis", -1)
    if n.attribute("opset") < 13 and axis % x.dim() != x.dim() - 1:
        y = torch.softmax(x.flatten(axis % x.dim()), -1).reshape(x.shape)
    else:
        y = torch.softmax(x, axis)
    return _result(r, n, 3, y)


def _read_where(r: OnnxReader, n: ReadNode) -> Any:
    return _result(r, n, 7, torch.where(r.tensor(n.input(0)), _tensor(r, n, 1), _tensor(r, n, 4)))


def _read_mean(r: OnnxReader, n: ReadNode) -> Any:
    x, axes = _tensor(r, n, 0), n.attribute("axes", None)
    y = torch.mean(x, axes or list(range(x.dim())), bool(n.attribute("keepdims", 1)))
    return _result(r, n, 3, y)


# ------------------------------------------------------------------------------------------------------- small weights


def _read_small_linear(r: OnnxReader, n: ReadNode) -> Any:
    """A layer with weights of 4 or 8 bits and a scale for each block of inputs, in the layout of our kernels."""
    x, weight, scale, shift, bias = (r.tensor(value) for value in n.first(5))
    call = ours.weight_only_linear_4bit if n.attribute("bits") == 4 else ours.weight_only_linear
    return call(
        x if x.dtype == torch.float32 else x.to(torch.float32), weight, scale, shift, bias, n.attribute("block_size")
    )


def _read_small_rows(r: OnnxReader, n: ReadNode) -> Any:
    """Rows of a table of bytes with a scale for each block of a row."""
    table, index, scale, shift = (r.tensor(value) for value in n.first(4))
    block, size = n.attribute("block_size"), table.shape[-1]
    rows, scales, shifts = (
        torch.index_select(t, 0, index.reshape(-1)).unflatten(0, index.shape) for t in (table, scale, shift)
    )
    scales, shifts = (t.repeat_interleave(block, -1).narrow(-1, 0, size) for t in (scales, shifts))
    return (rows.to(torch.float32) - shifts) * scales


def _refuse(why: str) -> Read:
    """Of an operator that is read in another form where the file has constants."""

    def read(r: OnnxReader, n: ReadNode) -> Any:
        raise r.unsupported(why)

    return read


FORMS = {
    "conv2d": OnnxForms(
        reads=(
            *reads(_read_conv, "QLinearConv", f"{MICROSOFT}.QLinearConv"),
            *reads(_read_integer_conv, "ConvInteger"),
        )
    ),
    "linear": OnnxForms(
        reads=(
            *reads(_read_product, "QLinearMatMul"),
            *reads(_read_gemm, f"{MICROSOFT}.QGemm"),
            *reads(_read_integer_product, "MatMulInteger"),
            *reads(_read_dynamic_product, f"{MICROSOFT}.DynamicQuantizeMatMul"),
            *reads(_read_product_to_float, f"{MICROSOFT}.MatMulIntegerToFloat"),
            *reads(_read_small_linear, "zeropoint.SmallLinear"),
            *reads(
                _refuse("4 and 8 bits, without g_idx, of constant weights are supported"), f"{MICROSOFT}.MatMulNBits"
            ),
        )
    ),
    "add": OnnxForms(reads=reads(_read_of_two(torch.add), f"{MICROSOFT}.QLinearAdd")),
    "mul": OnnxForms(reads=reads(_read_of_two(torch.mul), f"{MICROSOFT}.QLinearMul")),
    "cat": OnnxForms(reads=reads(_read_concat, f"{MICROSOFT}.QLinearConcat")),
    "sigmoid": OnnxForms(reads=reads(_read_of_one(torch.sigmoid), f"{MICROSOFT}.QLinearSigmoid")),
    "leaky_relu": OnnxForms(reads=reads(_read_of_one(F.leaky_relu, alpha=0.01), f"{MICROSOFT}.QLinearLeakyRelu")),
    "avg_pool2d": OnnxForms(reads=reads(_read_pool(average_pool), f"{MICROSOFT}.QLinearAveragePool")),
    "adaptive_avg_pool2d": OnnxForms(
        reads=reads(_read_pool(lambda r, n, x: global_average(x)), f"{MICROSOFT}.QLinearGlobalAveragePool")
    ),
    "softmax": OnnxForms(reads=reads(_read_softmax, f"{MICROSOFT}.QLinearSoftmax")),
    "where": OnnxForms(reads=reads(_read_where, f"{MICROSOFT}.QLinearWhere")),
    "mean": OnnxForms(reads=reads(_read_mean, f"{MICROSOFT}.QLinearReduceMean")),
    "embedding": OnnxForms(
        reads=(
            *reads(_read_small_rows, "zeropoint.SmallRows"),
            *reads(_refuse("rows of constants along the last axis are supported"), f"{MICROSOFT}.GatherBlockQuantized"),
        )
    ),
}

# Operators whose files are quantized.
NAMES = frozenset(name for forms in FORMS.values() for name, _ in forms.reads)
